import json
import sys

import pytest

from ata_gym.cli import console
from ata_gym.cluster import doctor
from ata_gym.cluster.doctor import Finding

GOOD = [Finding("ata-gym", "ok", "0.1.0 from " + "/a/long/path" * 9), Finding("extra all", "ok", "bench, cluster")]
LACKING = Finding("extra integrations", "missing", "not installed: torch", 'pip install "ata-gym[integrations]"')
BROKEN = Finding("backend gloo", "broken", "no name [Errno 1]", "let the name resolve")


@pytest.mark.parametrize(("findings", "code"), [([*GOOD, LACKING], 0), ([*GOOD, LACKING, BROKEN], 1)])
def test_the_same_findings_are_shown_in_every_form(run, findings, code, monkeypatch, capsys):
    monkeypatch.setattr(console, "WIDTH", 80)
    monkeypatch.setattr(doctor, "examine", lambda: list(findings))
    table = run("doctor", code).stdout
    assert max(map(len, table.splitlines())) <= 80
    document = json.loads(run("doctor --json", code).stdout)
    assert [Finding(**finding) for finding in document["findings"]] == findings
    assert document["works"] == (code == 0)
    monkeypatch.setattr(sys, "argv", ["doctor"])
    assert doctor.main() == code
    lines = capsys.readouterr().out
    squeezed = "".join(table.split())
    for finding in findings:
        assert f"{finding.subject}{finding.state}".replace(" ", "") in squeezed
        assert "".join(f"{finding.detail}->{finding.cure}".removesuffix("->").split()) in squeezed
        assert str(finding) in lines
    assert '-> pip install "ata-gym[integrations]"' in table  # the command on one line, with its brackets
