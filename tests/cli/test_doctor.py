import json

import pytest

from ata_gym.cluster import doctor
from ata_gym.cluster.doctor import Finding

GOOD = [
    Finding("ata-gym", "ok", "0.1.0 from " + "/a/long/path" * 9),
    Finding("extra all", "ok", "bench, " * 20),
]
LACKING = Finding(
    "extra integrations",
    "missing",
    "not installed: torch",
    'pip install "ata-gym[integrations]"',
)
BROKEN = Finding("backend gloo", "broken", "no name [Errno 1]", "let the name resolve")


@pytest.mark.parametrize(
    ("findings", "code"),
    [([*GOOD, LACKING], 0), ([*GOOD, LACKING, BROKEN], 1)],
)
def test_the_same_findings_are_shown_in_every_form(run, findings, code, monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: list(findings))
    lines = run("doctor", code).stdout
    assert max(len(line) for line in lines.splitlines() if "/a/long/path" not in line) <= 80
    document = json.loads(run("doctor --json", code).stdout)
    assert ([Finding(**one) for one in document["findings"]], document["works"]) == (
        findings,
        code == 0,
    )
    for finding in findings:
        assert "".join(finding.detail.split()) in "".join(lines.split())
        assert str(finding) in lines
    # the command on one line, with its brackets
    assert '-> pip install "ata-gym[integrations]"\n' in lines
