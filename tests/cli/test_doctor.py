import json
import re
from dataclasses import replace

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


def test_the_files_of_results_are_checked(run, benched):
    assert json.loads(run("doctor out --json").stdout)["works"]
    assert re.fullmatch(r"ok       out: \d+ files checked, 0 damaged\n", run("doctor out").stdout)
    records = benched.out / "results" / "uta.parquet"
    records.write_bytes(records.read_bytes()[:100])
    told = run("doctor .", 1).stdout
    assert told.startswith("broken   out/results/uta.parquet: ")
    assert told.endswith(" files checked, 1 damaged\n")
    document = json.loads(run("doctor out --json", 1).stdout)
    assert [finding["state"] for finding in document["findings"]] == ["broken", "broken"]


def test_the_cluster_of_an_address_is_looked_at_and_nothing_else(run, monkeypatch):
    examination = pytest.importorskip("ata_gym.cluster.on_ray.examination")
    monkeypatch.setattr(
        examination, "cluster_findings", lambda address: [replace(GOOD[0], subject=address)]
    )
    assert run("doctor --address 10.0.0.1:6379").stdout.startswith("ok       10.0.0.1:6379: ")
    monkeypatch.setattr(examination, "cluster_findings", lambda _: [LACKING, BROKEN])
    assert not json.loads(run("doctor --address auto --json", 1).stdout)["works"]
