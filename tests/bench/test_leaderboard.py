"""The leaderboard: who plays what, ratios on the same seeds, ranks, and that a kill costs nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner

import ata_policies
from ata_gym.bench.experiment.jobs import Effort, play_jobs
from ata_gym.bench.leaderboard import decisions, defaults, ranking
from ata_gym.bench.leaderboard.experiment import Leaderboard, finals
from ata_gym.bench.leaderboard.ranking import COST, RUNTIME, TO_ORACLE, TO_OTHER, WORKER_TIME
from ata_gym.bench.leaderboard.report import report
from ata_gym.bench.leaderboard.sets.players import FOLLOWERS, usual_policies
from ata_gym.bench.leaderboard.sets.steady import STEADY
from ata_gym.bench.report.headline import Competitor
from ata_gym.cli import app
from ata_policies import AllocationPolicy
from ata_policies.allocation.baselines import Gta, Ofta, Uta
from ata_policies.registry import DEFAULTS


class Thrifty(AllocationPolicy):
    """Everything to worker 0 where worker time is dear, else to all in turn: its action depends on the price."""

    priced = True

    def allocate(self, state):
        n, budget = self.setting.n, self.setting.budget
        equal = np.bincount(np.arange(budget) % n, minlength=n)
        dear = np.eye(1, n, dtype=np.int64)[0] * budget
        return np.tile(dear if self.setting.price > 0.5 else equal, (len(state.round), 1))


class Known(Thrifty):
    """The same, and called an oracle."""

    knows = "the distributions"


class Idler(Gta):
    """Neither knows nor learns."""

    learns = False


class Needy(Ofta):
    """Cannot be made without a hyperparameter."""

    def __init__(self, setting, *, file: str | None = None, seed: int = 0):
        super().__init__(setting, seed=seed)
        if file is None:
            raise ValueError("give file=...")


THRIFTY, KNOWN, IDLER, NEEDY = (f"{__name__}:{name}" for name in ("Thrifty", "Known", "Idler", "Needy"))


def board(out: Path, *policies: str, names=("cifar100", "regret"), seeds: int = 3, rounds: int = 4) -> Leaderboard:
    chosen = [replace(STEADY.find(name), horizon=rounds) for name in names]
    competitors = [Competitor.of(policy) for policy in ("ofta", *policies)]
    return Leaderboard(replace(STEADY, front_prices=(0.0, 0.2)), chosen, (0.0, 1.0), competitors, seeds, out)


def test_competitors_are_learners_oracles_and_baselines():
    kinds = {name: Competitor.of(name).kind for name in ("ata", "ofta", THRIFTY, KNOWN, IDLER)}
    assert kinds == {"ata": "learner", "ofta": "oracle", THRIFTY: "learner", KNOWN: "oracle", IDLER: "baseline"}
    assert Competitor.of(IDLER).env == "TaskRace"
    assert Competitor.of("ata:alpha=3.0").kind == "learner"
    with pytest.raises(ValueError, match="no policy 'nobody'"):
        Competitor.of("nobody")


def test_who_looks_at_the_price_plays_once_for_each(tmp_path):
    jobs = board(tmp_path, "uta", THRIFTY, KNOWN).jobs()
    played = [
        (one.competitor.policy, one.job.experiment.scenario.name, one.job.experiment.scenario.price, one.prices)
        for one in jobs
    ]
    both = (0.0, 1.0)
    assert [one for one in played if one[0] == "uta"] == [
        ("uta", "cifar100", 0.0, both), ("uta", "regret", 0.0, both),
    ]  # fmt: skip
    assert [one[1:] for one in played if one[0] == THRIFTY] == [
        (scenario, price, (price,)) for scenario in ("cifar100", "regret") for price in both
    ]
    # an oracle draws the front of one scenario at more prices
    assert [one[1:] for one in played if one[0] == KNOWN] == [
        ("cifar100", 0.0, (0.0,)), ("cifar100", 0.2, (0.2,)), ("cifar100", 1.0, (1.0,)),
        ("regret", 0.0, (0.0,)), ("regret", 1.0, (1.0,)),
    ]  # fmt: skip


def test_results_are_priced_afterwards_or_played_at_the_price(tmp_path):
    jobs = board(tmp_path, "uta", THRIFTY).jobs()
    assert play_jobs([one.job for one in jobs], effort=Effort(jobs=1)) == {}
    ends = finals(jobs)
    assert ends.height == 2 * 2 * 3 * 3  # scenarios, prices, policies, seeds
    for row in ends.to_dicts():
        assert row["cost"] == row["runtime"] + row["price"] * row["total_worker_time"]
    at = {key: group.drop("price", "cost") for key, group in ends.group_by("policy", "price")}
    assert at["uta", 0.0].equals(at["uta", 1.0])
    assert not at[THRIFTY, 0.0].equals(at[THRIFTY, 1.0])


def test_policies_that_cannot_be_made_are_told(tmp_path):
    ((name, reason),) = board(tmp_path, "uta", NEEDY).unable().items()
    assert name == NEEDY
    assert reason.startswith("ValueError: give file=... (")
    assert reason.endswith('raise ValueError("give file=..."))')


def synthetic(seed: int = 0) -> pl.DataFrame:
    """Costs of four policies in two scenarios at two prices, 6 seeds; each seed makes all of them dear or cheap."""
    rng = np.random.default_rng(seed)
    rows = []
    for scenario in ("one", "two"):
        scale = rng.gamma(4.0, size=6)
        for policy, kind, factor in (
            ("ofta", "oracle", 0.5), ("good", "learner", 1.0), ("bad", "learner", 2.0), ("none", "baseline", 3.0),
        ):  # fmt: skip
            runtime = factor * scale * rng.uniform(0.95, 1.05, size=6)
            for price in (0.0, 1.0):
                rows += [
                    ("TaskAllocation", price, scenario, policy, kind, k, r, 2 * r, r + price * 2 * r)
                    for k, r in enumerate(runtime)
                ]
    schema = ["env", "price", "scenario", "policy", "kind", "seed", "runtime", "total_worker_time", "cost"]
    return pl.DataFrame(rows, schema, orient="row")


def test_intervals_are_students_of_paired_logarithms():
    ends = synthetic()
    sample = {
        policy: np.log(ends.filter(pl.col("policy") == policy, pl.col("price") == 1.0)["cost"].to_numpy()).reshape(2, 6)
        for policy in ("ofta", "good", "bad")
    }
    found = ranking.by_scenario(ranking.ratios(ends, "ofta"))
    for place, scenario in enumerate(("one", "two")):
        row = found.row(
            by_predicate=(pl.col("policy") == "bad") & (pl.col("scenario") == scenario) & (pl.col("price") == 1.0),
            named=True,
        )
        interval = stats.ttest_rel(sample["bad"][place], sample["good"][place]).confidence_interval(0.95)
        difference = (sample["bad"][place] - sample["good"][place]).mean()
        assert row[COST] == pytest.approx(np.exp(difference))
        assert (row[f"{COST}_low"], row[f"{COST}_high"]) == pytest.approx(tuple(np.exp(interval)))
        assert row[RUNTIME] == pytest.approx(np.exp((sample["bad"] - sample["ofta"])[place].mean()))
    total = ranking.overall(ranking.ratios(ends, "ofta")).row(
        by_predicate=(pl.col("policy") == "bad") & (pl.col("price") == 1.0), named=True
    )
    paired = (sample["bad"] - sample["good"]).mean(axis=0)
    interval = stats.ttest_1samp(paired, 0.0).confidence_interval(0.95)
    assert (total[COST], total[f"{COST}_low"], total[f"{COST}_high"]) == pytest.approx(
        (np.exp(paired.mean()), *np.exp(interval))
    )
    # paired intervals are narrower than the spread of the costs, as what the seeds have in common cancels
    assert np.log(interval.high / interval.low) < sample["bad"].std()


def test_ranks_count_learners_and_the_best_of_them_is_one():
    table = ranking.overall(ranking.ratios(synthetic(), "ofta"), by_price=False)
    assert table["policy"].to_list() == ["ofta", "good", "bad", "none"]
    assert table["rank"].to_list() == [None, 1, 2, None]
    assert table[COST].to_list() == pytest.approx([0.5, 1.0, 2.0, 3.0], rel=0.1)
    assert table[COST][1] == 1.0
    assert table[TO_ORACLE].to_list() == pytest.approx([1.0, 2.0, 4.0, 6.0], rel=0.1)
    assert table["worst"].to_list() == pytest.approx([0.5, 1.0, 2.0, 3.0], rel=0.1)
    assert table[WORKER_TIME].to_list() == pytest.approx([1.0, 2.0, 4.0, 6.0], rel=0.1)


def test_a_mean_over_all_is_the_mean_of_the_means():
    ratios = ranking.ratios(synthetic(), "ofta")
    each = ranking.by_scenario(ratios).group_by("policy").agg(pl.col(COST).log().mean().exp())
    total = ranking.overall(ratios, by_price=False).select("policy", COST)
    assert total.sort("policy")[COST].to_list() == pytest.approx(each.sort("policy")[COST].to_list())


def test_who_has_not_played_everywhere_is_not_ranked():
    ends = synthetic().filter(~((pl.col("policy") == "bad") & (pl.col("scenario") == "two")))
    ratios = ranking.ratios(ends, "ofta")
    assert "bad" not in ranking.overall(ratios)["policy"]
    assert "bad" not in ranking.overall(ratios, by_price=False)["policy"]
    assert "bad" in ranking.by_scenario(ratios)["policy"]


def test_without_learners_there_is_no_best():
    ends = synthetic().filter(pl.col("kind") != "learner")
    table = ranking.overall(ranking.ratios(ends, "ofta"))
    assert table[COST].is_null().all()
    assert table[TO_ORACLE].is_not_null().all()
    assert table["rank"].is_null().all()
    assert table[RUNTIME].is_not_null().all()


def made(out: Path) -> list[bytes]:
    """The files of a finished report."""
    return [path.read_bytes() for path in sorted(out.iterdir()) if path.is_file()]


def test_tables_and_pictures_say_what_was_played_and_are_the_same_each_time(tmp_path):
    bytes_of = []
    for name in "ab":
        playing = board(tmp_path / name, "uta", "ata", THRIFTY, KNOWN, "gta", IDLER)
        jobs = playing.jobs()
        assert play_jobs([one.job for one in jobs], effort=Effort(jobs=1)) == {}
        told = report(replace(playing, notes=["A note."]), jobs, {"TaskAllocation": "uta", "TaskDispatch": "none"})
        bytes_of.append(made(tmp_path / name))
        assert [path.name for path in (*told.files, *told.pictures)] == [
            "leaderboard.md", "leaderboard.csv", "scenarios.csv", "front.png", "front.svg",
        ]  # fmt: skip
    assert bytes_of[0] == bytes_of[1]
    assert len(bytes_of[0]) == 5
    text = (tmp_path / "a" / "leaderboard.md").read_text()
    assert f"Leaderboard {STEADY.title}: 2 of {len(STEADY.names())} scenarios, 3 seeds" in text
    assert "A note." in text
    assert "TaskAllocation: the default, uta, is within 5% of the best of 2 learners in" in text
    assert "| TaskAllocation" in text  # the envs side by side
    cells = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    assert any(line[1:3] == ["oracle", "ofta"] for line in cells)
    assert any(line[1:3] == ["baseline", IDLER] for line in cells)
    assert "TaskRace at price 1: cost = runtime + 1 x worker time" in text
    assert "nan" not in text.lower()


def test_by_default_it_plays_the_defaults_and_followers_and_no_other_for_nonstationary_scenarios() -> None:
    shown = {*DEFAULTS.values(), *FOLLOWERS}
    left_out = set(ata_policies.names()) - set(usual_policies())
    assert left_out == {name for name in ata_policies.names() if ata_policies.load(name).nonstationary} - shown
    assert shown <= set(usual_policies())


def test_a_policy_is_compared_with_the_best_other_that_is_no_oracle():
    ends = synthetic()
    of_good = ranking.to_best_other(ends, "good")
    assert of_good["other"].unique().to_list() == ["bad"]
    assert (of_good[TO_OTHER] < 0.6).all()
    assert (of_good[f"{TO_OTHER}_low"] < of_good[TO_OTHER]).all()
    of_bad = ranking.to_best_other(ends, "bad").sort("price", "scenario")
    whole = (
        ranking.by_scenario(ranking.ratios(ends, "ofta")).filter(pl.col("policy") == "bad").sort("price", "scenario")
    )
    assert of_bad[TO_OTHER].to_list() == pytest.approx(whole[COST].to_list())
    learners_gone = ends.filter(pl.col("policy").is_in(["ofta", "bad", "none"]))
    assert ranking.to_best_other(learners_gone, "bad")["other"].unique().to_list() == ["none"]  # a baseline counts
    assert ranking.to_best_other(ends.filter(pl.col("policy") == "good"), "good").is_empty()


def test_a_default_that_plays_alone_is_compared_with_nobody():
    alone = synthetic().filter(pl.col("policy") == "good")
    by_scenario = ranking.by_scenario(ranking.ratios(alone, "ofta"))
    (compared,) = defaults.tables(by_scenario, alone, {"TaskAllocation": "good"})
    assert "the best of 1 learner in" in compared.title
    assert {cell for row in compared.rows for cell in row[1:]} <= {"-", ""}


def test_each_cell_where_a_default_is_not_near_the_best_is_named():
    ends = synthetic()
    by_scenario = ranking.by_scenario(ranking.ratios(ends, "ofta"))
    *_, far = defaults.tables(by_scenario, ends, {"TaskAllocation": "bad"})
    assert [row[:3] for row in far.rows] == [
        ("TaskAllocation", scenario, price) for scenario in ("one", "two") for price in ("0", "1")
    ]
    assert {row[-1] for row in far.rows} == {"good"}
    low, high = far.rows[0][4].split(" to ")
    assert float(low) < float(far.rows[0][3]) < float(high)
    (compared,) = defaults.tables(by_scenario, ends, {"TaskAllocation": "good"})
    assert "good, is within 5% of the best of 2 learners in 4 of 4" in compared.title
    one, two, mean = compared.rows
    assert [row[0] for row in compared.rows] == ["one", "two", "geometric mean"]
    for first, second, both in zip(one[1:], two[1:], mean[1:], strict=True):
        assert float(both) ** 2 == pytest.approx(float(first) * float(second), rel=0.02)  # they are rounded
    alone = ends.filter(pl.col("scenario") == "one")
    (compared,) = defaults.tables(by_scenario.filter(pl.col("scenario") == "one"), alone, {"TaskAllocation": "good"})
    assert [row[0] for row in compared.rows] == ["one"]


def test_decisions_are_timed_apart_from_the_results(tmp_path):
    playing = board(tmp_path, "uta", "dispatch-gta", names=("regret",))
    jobs = playing.jobs()
    assert play_jobs([one.job for one in jobs], effort=Effort(jobs=1)) == {}
    before, asked = set(tmp_path.rglob("*.parquet")), []
    times = decisions.measure(playing, jobs, asked.append)
    assert asked == [1, 2, 3]
    assert set(tmp_path.rglob("*.parquet")) == before
    assert times["policy"].to_list() == ["ofta", "uta", "dispatch-gta"]
    assert ((times["mean"] > 0) & (times["mean"] <= times["worst"])).all()
    assert decisions.measure(playing, jobs).equals(times)  # they are kept
    kept = tmp_path / "timings" / "decisions.json"
    changed = kept.read_text().replace('"code": "', '"code": "other', 1)
    kept.write_text(changed)
    anew = decisions.measure(playing, jobs)
    assert anew["policy"].equals(times["policy"])
    assert kept.read_text().count("other") == 0
    told = report(playing, jobs, {"TaskAllocation": "uta"}, times)
    assert (tmp_path / "timings" / "leaderboard.md").read_text().count("| ms a decision |") > 0
    assert "ms a" not in (tmp_path / "leaderboard.md").read_text()
    assert any("ms a\ndecision" in table.columns for table in told.tables)


def test_a_stopped_leaderboard_goes_on_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    line = "leaderboard --quick --scenarios regret --seeds 2 --jobs 1 --save-every 0 --policies uta,gta"
    stopped, whole = tmp_path / "out", tmp_path / "whole"
    command = [*line.split(), "--out", str(stopped)]  # the page shows it, so it is the same for both
    assert CliRunner().invoke(app, command).exit_code == 0
    stopped.rename(whole)

    def interrupted(self, state):
        if state.round[0] == 100:
            raise KeyboardInterrupt
        return allocate(self, state)

    allocate = Uta.allocate
    with monkeypatch.context() as patch:
        patch.setattr(Uta, "allocate", interrupted)
        assert CliRunner().invoke(app, command).exit_code == 130
    assert list(stopped.rglob("*.npz"))
    assert list(stopped.rglob("*.parquet"))
    assert not (stopped / "leaderboard.md").exists()
    assert CliRunner().invoke(app, command).exit_code == 0
    assert made(whole) == made(stopped)
    results = [sorted(out.rglob("*.parquet")) for out in (whole, stopped)]
    assert [path.read_bytes() for path in results[0]] == [path.read_bytes() for path in results[1]]
    assert len(results[0]) == 3 * 2  # records and allocations
    assert not list(stopped.rglob("*.npz"))
