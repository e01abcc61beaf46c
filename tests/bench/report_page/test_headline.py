import re

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ata_gym.bench.report.headline import ONE_SEED, headline, leaders, more_or_less
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.role import Role
from ata_gym.bench.studies.benchmark_report import report_on
from ata_gym.bench.studies.leaderboard import ranking
from ata_gym.bench.studies.leaderboard.report import lead as lead_of_board
from ata_gym.bench.studies.tracking.report import lead as lead_of_tracking

ROLES = [
    Role("ofta", "TaskAllocation", "oracle"),
    Role("uta", "TaskAllocation", "baseline"),
    *(Role(name, "TaskAllocation", "learner") for name in ("mine", "copy", "near", "ata")),
    Role("gta", "TaskRace", "baseline"),
    Role("race", "TaskRace", "learner"),
]
PACE = {
    "ofta": 1.0,
    "uta": 4.0,
    "mine": 1.2,
    "copy": 1.2,
    "near": 1.21,
    "ata": 2.0,
    "gta": 0.5,
    "race": 0.6,
}


def samples(seeds: int = 8) -> dict[str, dict[str, np.ndarray]]:
    """The seeds differ tenfold, and the policies on the same seed by their pace, and a percent of
    their own.
    """
    rng = np.random.default_rng(1)
    scale = rng.uniform(1.0, 10.0, seeds)
    own = {name: rng.normal(1.0, 0.02, seeds) for name in PACE}
    own["copy"] = own["mine"]
    runtime = {name: scale * pace * own[name] for name, pace in PACE.items()}
    return {
        "runtime": runtime,
        "total_worker_time": {name: 3.0 * sample for name, sample in runtime.items()},
    }


def test_each_env_has_a_line_that_names_no_learner_of_another():
    said, _, race = headline(samples(), ROLES).partition("Env TaskRace: ")
    allocation, *compared = said.splitlines()
    assert (
        allocation
        == "Env TaskAllocation: mine has the least runtime of the 4 policies that learn, tied with"
        " copy and near."
    )
    assert "race" not in said
    assert race.startswith("race is the only policy that learns.\n")
    assert not {"mine", "copy", "near", "ata"} & set(re.findall(r"\w+", race))
    assert race.endswith(
        "\nIn brackets: 95 % intervals over 8 paired seeds; less and more are by geometric means of"
        " the ratios, not by ratios of the means. Tied: not different by paired t tests of all"
        " pairs, with Holm's correction.",
    )
    others = (
        "OFTA, an oracle that knows all mean task times",
        "uta, which gives all workers equally many tasks",
        "ata, the published policy as in the preprint",
    )
    assert [line.partition(":")[0] for line in compared] == [
        f"  compared with {other}" for other in others
    ]
    assert leaders(samples(), ROLES) == ["mine", "race"]


def test_the_figures_are_paired_by_seed():
    of = samples()["runtime"]
    logs = np.log(of["mine"] / of["ofta"])
    interval = stats.ttest_1samp(logs, 0.0).confidence_interval(0.95)
    mean, low, high = (f"{100 * (np.exp(end) - 1):.0f}" for end in (logs.mean(), *interval))
    assert f"{mean} % more runtime ({low} to {high} %)" in headline(samples(), ROLES)
    ratio = Estimate.from_ratio(of["mine"], of["ofta"])
    turned = Estimate.from_ratio(of["ofta"], of["mine"])
    assert (1 / turned.mean, 1 / turned.high, 1 / turned.low) == pytest.approx(ratio)


def test_nothing_follows_from_one_seed_and_there_is_no_interval():
    said = headline(samples(1), ROLES)
    assert said.startswith(f"{ONE_SEED}\n")
    assert ONE_SEED.startswith("Nothing follows from one seed")
    assert "(" not in said
    assert "interval" not in said.replace(ONE_SEED, "")
    if "mine has the least" in said:
        assert "mine has the least runtime of the 4 policies that learn, tied with copy.\n" in said
    else:
        assert "near has the least runtime of the 4 policies that learn.\n" in said


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (Estimate(0.633, 0.631, 0.634), "36.7 % less runtime (36.6 to 36.9 %)"),
        (Estimate(1.0, np.nan, np.nan), "as much runtime"),
        (Estimate(1.0002, 1.0001, 1.0003), "under 0.1 % more runtime (under 0.1 to under 0.1 %)"),
        (Estimate(np.nan, np.nan, np.nan), ""),
    ],
)
def test_a_ratio_is_said_as_a_percentage(ratio, said):
    assert more_or_less(ratio, "runtime") == said


def test_a_time_of_0_is_no_ratio_and_no_error():
    nothing = {"runtime": {"mine": np.array([0.0, 0.0]), "uta": np.array([1.0, 0.0])}}
    assert headline(nothing, ROLES).startswith(
        "Env TaskAllocation: mine is the only policy that learns.\n"
    )
    assert headline({"runtime": {}}, ROLES) == "There is nothing to compare yet."
    assert headline(nothing, ROLES[2:3]) == "Env TaskAllocation: mine is the only policy played."
    unknown = [Role("first", "TaskAllocation", "oracle"), ROLES[2]]
    times = {"runtime": {"first": np.array([1.0, 2.0]), "mine": np.array([2.0, 4.0])}}
    assert (
        "mine is the only policy that learns.\n  compared with first: 100 % more runtime"
        in headline(
            times,
            unknown,
        )
    )


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_page_and_a_report_speak_of_intervals_only_where_there_are_some(
    note_of,
    records_of,
    seeds,
):
    names = ["ofta", "mine", "uta"]
    records = records_of(names, seeds=seeds)
    report = report_on(note_of(names, seeds=seeds), records, {})
    made = report.page()
    notes = " ".join(section.note for section in made.sections).replace("which has no interval", "")
    assert ("interval" in notes) == (seeds > 1)
    assert made.lead.startswith(ONE_SEED) == (seeds == 1)
    assert (ONE_SEED if seeds == 1 else "In brackets") in report.findings


def board(seeds: int) -> pl.DataFrame:
    rows = [
        (one.env, scenario, one.policy, one.kind, 0.0, seed, factor * time, 1.0, factor * time)
        for one in ROLES
        for scenario, factor in (("first", 1.0), ("second", 7.0))
        for seed, time in enumerate(samples(seeds)["runtime"][one.policy].tolist())
    ]
    columns = [
        "env",
        "scenario",
        "policy",
        "kind",
        "price",
        "seed",
        "runtime",
        "total_worker_time",
        "cost",
    ]
    return ranking.ratios(pl.DataFrame(rows, columns, orient="row"), "ofta")


def test_the_headline_of_a_leaderboard_has_ties_and_intervals_too():
    title, allocation, *compared = lead_of_board(board(8)).splitlines()
    assert title == "Over all scenarios and prices:"
    assert (
        allocation
        == "Env TaskAllocation: mine has the least cost of the 4 policies that learn, tied with"
        " copy and near."
    )
    assert any(
        line.startswith("  compared with the best oracle of each scenario: 19 % more cost (")
        for line in compared
    )
    race = compared.index("Env TaskRace: race is the only policy that learns.")
    assert compared[race + 1].startswith(
        "  compared with GTA, which keeps every worker busy and cancels the rest: ",
    )
    assert compared[-1].startswith("In brackets: 95 % intervals")
    alone = lead_of_board(board(1))
    assert alone.startswith(ONE_SEED)
    assert "(" not in alone


def test_the_headline_of_tracked_policies_names_the_tied():
    delays = {
        "slow": [90, 100, None],
        "mine": [10, 30, 20],
        "copy": [10, 30, 20],
        "near": [12, 25, 29],
    }
    rows = [
        (name, seed, 5, "dynamic-oracle", found)
        for name, of in delays.items()
        for seed, found in enumerate(of)
    ]
    found = pl.DataFrame(rows, ["policy", "seed", "change", "oracle", "delay"], orient="row")
    times = {
        "expected": {name: np.array([1.0, 2.0, 3.0]) for name in (*delays, "dynamic-oracle")},
    }
    said = lead_of_tracking(found, times, 100)
    assert said.startswith(
        "mine follows a change the soonest of 4, after 20.0 (0.0 to 44.8) rounds on average, ",
    )
    assert "tied with copy and near." in said
    assert "distributions: as much expected round time" in said
    one = lead_of_tracking(found.filter(seed=0), {"expected": {}}, 100)
    assert (
        one
        == f"{ONE_SEED}\nmine follows a change the soonest of 4, after 10.0 rounds on average, tied"
        " with copy."
    )
