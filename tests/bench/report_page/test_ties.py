"""Ties among many policies, and shares of paired wins, against independent formulas and by
simulation.
"""

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ata_gym.bench.report.headline import best_of, headline
from ata_gym.bench.report.statistics import different_pairs, paired_wins
from ata_gym.bench.role import Role
from ata_gym.bench.runner.results import Results
from ata_gym.bench.studies.benchmark_report import report_on
from ata_gym.bench.studies.leaderboard import ranking
from ata_gym.bench.studies.leaderboard.report import lead
from ata_gym.typing import Floats
from docs.ties import DRAWN, called_different, covered


def holm(samples: dict[str, Floats]) -> set[frozenset[str]]:
    """By the definition: p values in order, each beside 0.05 over the number of those that are
    left.
    """
    p = {
        pair: stats.ttest_rel(*(samples[name] for name in pair)).pvalue
        for pair in combinations(samples, 2)
    }
    found = set()
    for rank, (pair, chance) in enumerate(sorted(p.items(), key=lambda item: item[1])):
        if chance > 0.05 / (len(p) - rank):
            break
        found.add(frozenset(pair))
    return found


@pytest.mark.parametrize("seeds", [2, 4, 8, 48])
def test_pairs_differ_by_holms_definition(seeds):
    rng = np.random.default_rng(seeds)
    for _ in range(20):
        shift = rng.choice([0.0, 1.0, 4.0], 7) * rng.normal(size=7)
        samples = {
            f"p{k}": 5.0 * rng.normal() + shift[k] + rng.normal(size=seeds) for k in range(7)
        }
        assert different_pairs(samples) == holm(samples)


@pytest.mark.parametrize(("policies", "seeds"), [(2, 8), (5, 8), (20, 8), (5, 48), (20, 48)])
@pytest.mark.parametrize("kind", [*DRAWN])
def test_of_equal_policies_all_are_tied_in_95_of_100_cases(kind, policies, seeds):
    cases = 200
    alone, corrected = called_different(kind, policies, seeds, cases)
    assert round(cases * corrected) <= stats.binom.ppf(0.999, cases, 0.05)
    assert policies == 2 or alone > 0.1  # without the correction


def test_the_interval_is_that_of_the_geometric_mean():
    geometric, of_means = covered(48, 400)
    assert round(400 * geometric) >= stats.binom.ppf(0.001, 400, 0.95)
    assert of_means < 0.8


def test_who_is_clearly_worse_makes_it_no_harder_to_tell_the_rest():
    rng = np.random.default_rng(3)
    of = {f"p{k}": 2.0**k * np.exp(0.1 * rng.normal(size=48)) for k in range(20)}
    noise = stats.zscore(rng.normal(size=48), ddof=1)
    of["p1"] = of["p0"] * np.exp(0.015 + 0.03 * noise)
    chance = stats.ttest_rel(np.log(of["p0"]), np.log(of["p1"])).pvalue
    assert 0.05 / 190 < chance < 0.05  # it is the last of 190 pairs
    assert best_of({"runtime": of}, [*of]) == ("p0", [])
    of["p1"] = of["p0"] * np.exp(0.005 + 0.03 * noise)
    assert best_of({"runtime": of}, [*of]) == ("p0", ["p1"])


def test_equal_numbers_are_tied_and_numbers_that_are_not_finite_decide_nothing():
    same = np.array([1.0, 2.0, 3.0])
    other = np.array([1.5, 2.5, 3.5])
    zero = np.array([-np.inf, 1.0, 2.0])
    apart = different_pairs({"a": same, "b": same, "c": other, "d": zero})
    assert apart == {frozenset("ac"), frozenset("bc")}
    assert different_pairs({"a": same[:1], "b": same[:1], "c": other[:1]}) == {
        frozenset("ac"),
        frozenset("bc"),
    }
    assert different_pairs({"a": same}) == different_pairs({}) == frozenset()


def test_wins_are_counted_on_the_same_seed():
    rng = np.random.default_rng(5)
    seed = 10.0 ** rng.normal(size=20)  # seeds differ far more than policies
    mine = seed * np.exp(0.01 * rng.normal(size=20) - 0.01)
    theirs = seed * np.exp(0.01 * rng.normal(size=20))
    won = int((mine < theirs).sum())
    interval = stats.binomtest(won, 20).proportion_ci(0.95, "exact")
    assert paired_wins([mine], [theirs]) == pytest.approx((won / 20, interval.low, interval.high))
    # of all pairs of runs, which are not paired
    assert won / 20 > (mine[:, None] < theirs).mean() + 0.1
    assert paired_wins([mine], [mine]).mean == 0.5
    assert paired_wins([mine], [9.0 * mine])[::2] == (1.0, 1.0)
    two = paired_wins([mine, theirs], [theirs, mine])
    assert two.mean == pytest.approx(0.5)
    assert np.isnan(paired_wins([mine[:1]], [theirs[:1]]).low)


NAMES = [f"p{k}" for k in range(20)]


@pytest.fixture
def of_equal_policies(note_of, records_of):
    """Twenty policies that differ by chance alone: the interval of the best and another one does
    not hold 1.
    """
    rng = np.random.default_rng(0)
    records = records_of(NAMES, seeds=8)
    times = {(name, seed): float(np.exp(0.1 * rng.normal())) for name in NAMES for seed in range(8)}
    factor = pl.Series(
        [100.0 * times[name, seed] for name, seed in records.select("policy", "seed").rows()],
    )
    note = note_of(NAMES, seeds=8)
    note["policies"] = [{**one, "kind": "learner"} for one in note["policies"]]
    return note, records.with_columns(runtime=factor, total_worker_time=factor)


def test_every_door_names_the_same_ties(of_equal_policies):
    note, records = of_equal_policies
    last = records.filter(pl.col("round") == pl.col("round").max())
    runtime = {name: last.filter(policy=name).sort("seed")["runtime"].to_numpy() for name in NAMES}
    best = min(runtime, key=lambda name: np.log(runtime[name]).mean())
    others = [name for name in NAMES if name != best]
    alone = {
        name: stats.ttest_rel(np.log(runtime[best]), np.log(runtime[name])).pvalue
        for name in others
    }
    far = min(alone, key=alone.__getitem__)
    assert alone[far] < 0.05  # which is what a pair alone would say
    learners = [Role(name, "TaskAllocation", "learner") for name in NAMES]
    tied = (
        f"{best} has the least runtime of the 20 policies that learn, tied with"
        f" {', '.join(others[:-1])} and {others[-1]}."
    )
    assert tied in headline({"runtime": runtime}, learners)
    report = report_on(note, records, {})
    assert tied in report.page().lead
    rows = [
        (one.env, "only", one.policy, one.kind, 0.0, k, time, time, time)
        for one in learners
        for k, time in enumerate(runtime[one.policy].tolist())
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
    assert tied.replace("runtime", "cost") in lead(
        ranking.ratios(pl.DataFrame(rows, columns, orient="row"), "p0"),
    )
    compared = Results(report).compare(best, far)
    assert compared.tied
    assert "By runtime the two are tied (a tie among 20 policies)." in compared.sentence
    assert compared.ratio.high < 1.0
