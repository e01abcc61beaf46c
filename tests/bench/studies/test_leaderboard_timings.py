"""What decisions cost, beside a leaderboard: measured once, kept apart, and said with its place."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ata_gym import bench
from ata_gym.bench import decision_cost
from ata_gym.bench.decision_cost import DecisionTimes, exponential_workers
from ata_gym.bench.store.folder import verify
from ata_gym.bench.store.provenance import provenance
from ata_gym.bench.studies.leaderboard import timings
from ata_gym.scenarios import Scenario
from tests.bench.studies.test_leaderboard import SMALL, Thrifty

SCENARIOS = {"n = 3, B = 2": (3, 2), "n = 9, B = 4": (9, 4)}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The policies and numbers of workers that are timed; each takes its number of workers."""
    calls: list[tuple[str, int]] = []

    def times(name: str, scenario: Scenario, rounds: int) -> DecisionTimes:
        assert rounds == decision_cost.FIRST_ROUNDS
        calls.append((name, scenario.pool.n))
        if name == "gta" and scenario.pool.n == 9:
            raise RuntimeError("too many")
        if name == "race":
            raise KeyboardInterrupt
        return DecisionTimes(scenario.pool.n / 3, 10.0 * scenario.pool.n)

    scenarios = {title: exponential_workers(*sizes) for title, sizes in SCENARIOS.items()}
    monkeypatch.setattr(decision_cost, "timed_scenarios", lambda: scenarios)
    monkeypatch.setattr(decision_cost, "decision_times", times)
    return calls


@pytest.fixture
def rank(tmp_path: Path) -> Any:
    return partial(bench.leaderboard, out=tmp_path / "out", **SMALL)


def results_of(out: Path) -> dict[Path, bytes]:
    left_out = {"timings.json", "timings.md", "report.html", "about.json", "ata-gym.sha256"}
    return {
        path: path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name not in left_out and not path.name.startswith(".")
    }


def test_they_are_measured_once_and_shown_with_sizes_rounds_and_machine(rank, measured, tmp_path):
    out = tmp_path / "out"
    without = rank(policies="uta")
    assert measured == []
    assert "milliseconds" not in repr([table.title for table in without.content.tables])
    before = results_of(out)
    results = rank(policies="uta", timings=True)
    assert measured == [(name, n) for name in ("ofta", "uta") for n in (3, 9)]
    # the results are the same bytes, and the figures of the clock are not among the listed files
    assert results_of(out) == before
    assert [checked for checked in verify(out) if checked.fault] == []
    assert "timings" not in (out / "ata-gym.sha256").read_text()
    table = results.content.tables[-1]
    machine = provenance("uta")["machine"]
    assert (
        f"in the first {decision_cost.FIRST_ROUNDS} rounds of one row, on {machine}\n"
        in table.title
    )
    assert [title.replace("\n", " ") for title in table.columns] == ["policy", *SCENARIOS]
    assert [*table.rows[1]] == ["uta", "1 (30)", "3 (90)"]
    text = (out / "timings.md").read_text()
    assert "| uta " in text
    assert machine in text
    section = results.content.page().sections[-1]
    assert (section.id, [cell.text for cell in section.views[0].rows[1]]) == (
        "timings",
        [*table.rows[1]],
    )
    assert all(part in section.note for part in (machine, "100 rounds", "n workers, B results"))
    # a policy that is added is measured alone, and what is there is shown without asking for it
    rank(policies="uta,ata", timings=True)
    assert measured[4:] == [("ata", 3), ("ata", 9)]
    assert [row[0] for row in rank(policies="uta,ata").content.tables[-1].rows] == [
        "ofta",
        "uta",
        "ata",
    ]
    assert len(measured) == 6


def test_what_was_measured_before_a_kill_is_kept(rank, measured, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        rank(policies="uta,race", timings=True)
    kept = json.loads((tmp_path / "out" / timings.NAME).read_text())
    assert [*kept] == ["ofta", "uta"]
    measured.clear()
    with pytest.raises(KeyboardInterrupt):
        rank(policies="uta,race", timings=True)
    assert measured == [("race", 3)]


def test_other_code_is_measured_anew_and_another_machine_has_its_own_table(
    rank, measured, tmp_path
):
    rank(policies="uta,ata", timings=True)
    path = tmp_path / "out" / timings.NAME
    kept = json.loads(path.read_text())
    kept["uta"]["code"] = {"another": "0"}
    kept["ata"]["machine"] = "another machine"
    path.write_text(json.dumps(kept))
    measured.clear()
    results = rank(policies="uta,ata", timings=True)
    assert measured == [("uta", 3), ("uta", 9)]
    titles = [table.title for table in results.content.tables if "milliseconds" in table.title]
    assert len(titles) == 2
    assert "on another machine" in titles[1]
    views = results.content.page().sections[-1].views
    assert ["another machine" in view.choice["measured"] for view in views] == [False, True]


def test_a_policy_that_cannot_be_timed_has_a_sentence(rank, measured):
    results = rank(policies="gta", timings=True)
    assert [*results.content.tables[-1].rows[1]] == ["gta", "1 (30)", "-"]
    (remark,) = [remark for remark in results.remarks if "gta" in remark]
    assert remark.startswith("Decisions of gta were not timed for n = 9, B = 4: RuntimeError: too")
    measured.clear()
    rank(policies="gta", timings=True)
    assert measured == []  # a reason is kept, too


@pytest.mark.parametrize("content", ["{", '{"uta": 5}', '{"uta": {"rounds": 3}}'])
def test_a_damaged_file_is_said_and_begun_anew(rank, measured, tmp_path, content):
    rank(policies="uta")
    path = tmp_path / "out" / timings.NAME
    path.write_text(content)
    (remark,) = [remark for remark in rank(policies="uta").remarks if "timings.json" in remark]
    assert "is damaged" in remark
    assert not [one for one in rank(policies="uta", timings=True).remarks if "damaged" in one]
    assert len(measured) == 4


def test_a_class_of_a_notebook_is_measured_too(monkeypatch, tmp_path):
    monkeypatch.setattr(decision_cost, "FIRST_ROUNDS", 3)
    scenarios = {title: exponential_workers(*sizes) for title, sizes in SCENARIOS.items()}
    monkeypatch.setattr(decision_cost, "timed_scenarios", lambda: scenarios)
    results = bench.leaderboard(policies={"mine": Thrifty}, timings=True, **SMALL)
    name, *cells = results.content.tables[-1].rows[1]
    assert name == "mine"
    for cell in cells:
        mean, worst = (float(text) for text in cell.rstrip(")").split(" ("))
        assert 0.0 < mean <= worst
    assert "in the first 3 rounds" in results.content.tables[-1].title
    assert not list(tmp_path.iterdir())
