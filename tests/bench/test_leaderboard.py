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
from ata_gym.bench.leaderboard import ranking
from ata_gym.bench.leaderboard.experiment import Leaderboard, PricedJob, finals
from ata_gym.bench.leaderboard.ranking import COST, RUNTIME, TO_ORACLE, TO_OTHER, WORKER_TIME
from ata_gym.bench.leaderboard.report import of_defaults, report
from ata_gym.bench.leaderboard.run import measure
from ata_gym.bench.leaderboard.scenario_set import FOLLOWERS, usual_policies
from ata_gym.bench.leaderboard.sets import STEADY
from ata_gym.bench.page.render import NAME
from ata_gym.bench.report.headline import Competitor
from ata_gym.cli import app
from ata_policies import AllocationPolicy
from ata_policies.allocation.baselines import Gta, Ofta, Uta
from ata_policies.registry import DEFAULTS
from tests.flips import unseen
from tests.page_data import parts


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


def board(out: Path, *policies: str) -> Leaderboard:
    chosen = [replace(STEADY.find(name), horizon=4) for name in ("cifar100", "regret")]
    competitors = [Competitor.of(policy) for policy in ("ofta", *policies)]
    return Leaderboard(replace(STEADY, front_prices=(0.0, 0.2)), chosen, (0.0, 1.0), competitors, 3, out)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Leaderboard, list[PricedJob]]:
    playing = board(tmp_path_factory.mktemp("board"), "uta", "ata", THRIFTY, KNOWN, "gta", IDLER)
    jobs = playing.jobs()
    assert play_jobs([one.job for one in jobs], effort=Effort(jobs=1)) == {}
    return playing, jobs


def test_competitors_are_learners_oracles_and_baselines():
    kinds = {name: Competitor.of(name).kind for name in ("ata", "ata:alpha=3.0", "ofta", THRIFTY, KNOWN, IDLER)}
    assert [*kinds.values()] == ["learner", "learner", "oracle", "learner", "oracle", "baseline"]
    assert Competitor.of(IDLER).env == "TaskRace"
    with pytest.raises(ValueError, match="no policy 'nobody'"):
        Competitor.of("nobody")


def test_who_looks_at_the_price_plays_once_for_each(played):
    of: dict[str, list[tuple[str, float, tuple[float, ...]]]] = {}
    for competitor, job, prices in played[1]:
        scenario = job.experiment.scenario
        of.setdefault(competitor.policy, []).append((scenario.name, scenario.price, prices))
    both = (0.0, 1.0)
    assert of["uta"] == [("cifar100", 0.0, both), ("regret", 0.0, both)]
    assert of[THRIFTY] == [(scenario, price, (price,)) for scenario in ("cifar100", "regret") for price in both]
    # an oracle draws the front of one scenario at more prices
    assert [(name, price) for name, price, _ in of[KNOWN]] == [
        ("cifar100", 0.0), ("cifar100", 0.2), ("cifar100", 1.0), ("regret", 0.0), ("regret", 1.0),
    ]  # fmt: skip


def test_results_are_priced_afterwards_or_played_at_the_price(played):
    ends = finals(played[1])
    assert ends.height == (2 * 2 * 7 + 1) * 3  # scenarios, prices, policies, the oracle's price in the picture; seeds
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


def of(frame: pl.DataFrame, **wanted: object) -> dict[str, float]:
    return frame.filter(**wanted).row(0, named=True)


def test_intervals_are_students_of_paired_logarithms():
    ends = synthetic()
    sample = {
        policy: np.log(ends.filter(policy=policy, price=1.0)["cost"].to_numpy()).reshape(2, 6)
        for policy in ("ofta", "good", "bad")
    }
    ratios = ranking.ratios(ends, "ofta")
    for place, scenario in enumerate(("one", "two")):
        row = of(ranking.by_scenario(ratios), policy="bad", scenario=scenario, price=1.0)
        interval = stats.ttest_rel(sample["bad"][place], sample["good"][place]).confidence_interval(0.95)
        difference = (sample["bad"][place] - sample["good"][place]).mean()
        assert row[COST] == pytest.approx(np.exp(difference))
        assert (row[f"{COST}_low"], row[f"{COST}_high"]) == pytest.approx(tuple(np.exp(interval)))
        assert row[RUNTIME] == pytest.approx(np.exp((sample["bad"] - sample["ofta"])[place].mean()))
    total = of(ranking.overall(ratios), policy="bad", price=1.0)
    paired = (sample["bad"] - sample["good"]).mean(axis=0)
    interval = stats.ttest_1samp(paired, 0.0).confidence_interval(0.95)
    assert (total[COST], total[f"{COST}_low"], total[f"{COST}_high"]) == pytest.approx(
        (np.exp(paired.mean()), *np.exp(interval))
    )
    # paired intervals are narrower than the spread of the costs, as what the seeds have in common cancels
    assert np.log(interval.high / interval.low) < sample["bad"].std()


def test_ranks_count_learners_and_the_best_of_them_is_one():
    ratios = ranking.ratios(synthetic(), "ofta")
    table = ranking.overall(ratios, by_price=False)
    assert table["policy"].to_list() == ["ofta", "good", "bad", "none"]
    assert table["rank"].to_list() == [None, 1, 2, None]
    assert table[COST].to_list() == pytest.approx([0.5, 1.0, 2.0, 3.0], rel=0.1)
    assert table[COST][1] == 1.0
    assert table[TO_ORACLE].to_list() == pytest.approx([1.0, 2.0, 4.0, 6.0], rel=0.1)
    assert table["worst"].to_list() == pytest.approx([0.5, 1.0, 2.0, 3.0], rel=0.1)
    assert table[WORKER_TIME].to_list() == pytest.approx([1.0, 2.0, 4.0, 6.0], rel=0.1)
    each = ranking.by_scenario(ratios).group_by("policy", maintain_order=True).agg(pl.col(COST).log().mean().exp())
    assert table[COST].to_list() == pytest.approx(each[COST].to_list())  # the mean of the means


def test_who_has_not_played_everywhere_is_not_ranked_and_without_learners_there_is_no_best():
    ends = synthetic()
    ratios = ranking.ratios(ends.filter(~((pl.col("policy") == "bad") & (pl.col("scenario") == "two"))), "ofta")
    assert "bad" not in ranking.overall(ratios)["policy"]
    assert "bad" not in ranking.overall(ratios, by_price=False)["policy"]
    assert "bad" in ranking.by_scenario(ratios)["policy"]
    table = ranking.overall(ranking.ratios(ends.filter(pl.col("kind") != "learner"), "ofta"))
    assert table[COST].is_null().all()
    assert table["rank"].is_null().all()
    assert table[TO_ORACLE].is_not_null().all()
    assert table[RUNTIME].is_not_null().all()


def made(out: Path) -> list[bytes]:
    """The files of a finished report, without those that say which process is at work."""
    return [path.read_bytes() for path in sorted(out.iterdir()) if path.is_file() and not path.name.startswith(".")]


def test_tables_and_pictures_say_what_was_played_and_are_the_same_each_time(played):
    playing, jobs = played
    bytes_of = []
    for _ in range(2):
        told = report(replace(playing, notes=["A note."]), jobs, {"TaskAllocation": "uta", "TaskDispatch": "none"})
        bytes_of.append([path.read_bytes() for path in (*told.files, *told.pictures)])
        assert [path.name for path in (*told.files, *told.pictures)] == [
            "leaderboard.md", "leaderboard.csv", "scenarios.csv", "front.png", "front.svg",
        ]  # fmt: skip
    assert bytes_of[0] == bytes_of[1]
    text = (playing.out / "leaderboard.md").read_text()
    assert f"Leaderboard {STEADY.title}: 2 of {len(STEADY.names())} scenarios, 3 seeds" in text
    assert "A note." in text
    assert "TaskAllocation: the default, uta, is within 5% of the best of 2 learners in" in text
    cells = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    assert any(line[1:2] == ["TaskAllocation"] for line in cells)  # the envs side by side
    assert any(line[1:3] == ["oracle", "ofta"] for line in cells)
    assert any(line[1:3] == ["baseline", IDLER] for line in cells)
    assert "nan" not in text.lower()


def test_decisions_are_timed_apart_from_the_results(played):
    playing, jobs = played
    jobs = [one for one in jobs if one.competitor.policy in {"ofta", "uta", "gta"}][3:]
    before = set(playing.out.rglob("*.parquet"))
    times = measure(playing, jobs)
    assert set(playing.out.rglob("*.parquet")) == before
    assert times.select("policy", "scenario").rows() == [(name, "regret") for name in ("ofta", "uta", "gta")]
    assert ((times["mean"] > 0) & (times["mean"] <= times["worst"])).all()
    assert measure(playing, jobs).equals(times)  # they are kept
    kept = playing.out / "timings" / "decisions.json"
    kept.write_text(kept.read_text().replace('"code": "', '"code": "other', 1))
    anew = measure(playing, jobs)
    assert anew["policy"].equals(times["policy"])
    assert kept.read_text().count("other") == 0
    told = report(playing, jobs, {"TaskAllocation": "uta"}, times)
    assert "| ms a decision |" in (playing.out / "timings" / "decisions.md").read_text()
    assert "ms a" not in (playing.out / "leaderboard.md").read_text()
    assert [row[1] for row in told.tables[-1].rows] == ["ofta", "uta", "gta"]
    assert float(told.tables[-1].rows[1][3]) == pytest.approx(times["worst"][1], rel=0.01)


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
    whole = ranking.by_scenario(ranking.ratios(ends, "ofta")).filter(policy="bad").sort("price", "scenario")
    assert of_bad[TO_OTHER].to_list() == pytest.approx(whole[COST].to_list())
    learners_gone = ends.filter(pl.col("policy").is_in(["ofta", "bad", "none"]))
    assert ranking.to_best_other(learners_gone, "bad")["other"].unique().to_list() == ["none"]  # a baseline counts
    assert ranking.to_best_other(ends.filter(pl.col("policy") == "good"), "good").is_empty()


def test_each_cell_where_a_default_is_not_near_the_best_is_named():
    ends = synthetic()
    by_scenario = ranking.by_scenario(ranking.ratios(ends, "ofta"))
    *_, far = of_defaults(by_scenario, ends, {"TaskAllocation": "bad"})
    assert [row[:3] for row in far.rows] == [
        ("TaskAllocation", scenario, price) for scenario in ("one", "two") for price in ("0", "1")
    ]
    assert {row[-1] for row in far.rows} == {"good"}
    low, high = far.rows[0][4].split(" to ")
    assert float(low) < float(far.rows[0][3]) < float(high)
    (compared,) = of_defaults(by_scenario, ends, {"TaskAllocation": "good"})
    assert "good, is within 5% of the best of 2 learners in 4 of 4" in compared.title
    one, two, mean = compared.rows
    assert [row[0] for row in compared.rows] == ["one", "two", "geometric mean"]
    for first, second, both in zip(one[1:], two[1:], mean[1:], strict=True):
        assert float(both) ** 2 == pytest.approx(float(first) * float(second), rel=0.02)  # they are rounded
    alone = ends.filter(pl.col("scenario") == "one")
    (compared,) = of_defaults(by_scenario.filter(pl.col("scenario") == "one"), alone, {"TaskAllocation": "good"})
    assert [row[0] for row in compared.rows] == ["one"]
    nobody = ends.filter(policy="good")
    (compared,) = of_defaults(ranking.by_scenario(ranking.ratios(nobody, "ofta")), nobody, {"TaskAllocation": "good"})
    assert "the best of 1 learner in" in compared.title
    assert {cell for row in compared.rows for cell in row[1:]} == {"-"}


def test_a_stopped_leaderboard_goes_on_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    line = (
        "leaderboard --quick --scenarios near-equal,regret --prices 0 --seeds 2 --jobs 1 --save-every 0 --out out "
        "--policies uta,gta,ata-icml:alpha=20"
    )
    monkeypatch.chdir(tmp_path)

    def command(line: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, line.split())
        assert result.exit_code == code, result.output
        return result.output

    told = command(line)
    assert "(quick look): 2 of " in told
    for name in ("TaskAllocation", "TaskRace", "ofta", "ata-icml:alpha=20", "out/leaderboard.{md,csv}"):
        assert name in told
    assert unseen(Path("out")) == []
    charts = parts(Path("out", NAME).read_text("utf-8"))["config"]["charts"]
    assert [*dict.fromkeys(view["scenario"] for view in charts["runtime"]["views"])] == ["near-equal", "regret"]
    assert len(charts["allocations"]["views"]) == 2 * 4
    assert "another configuration: seeds is 2 there and 3 here" in command(line.replace("--seeds 2", "--seeds 3"), 2)
    Path("out").rename("whole")

    def interrupted(self, state):
        if state.round[0] == 100:
            raise KeyboardInterrupt
        return allocate(self, state)

    allocate = Uta.allocate
    with monkeypatch.context() as patch:
        patch.setattr(Uta, "allocate", interrupted)
        command(line, 130)
    stopped, whole = Path("out"), Path("whole")
    assert list(stopped.rglob("*.npz"))
    assert list(stopped.rglob("*.parquet"))
    assert not (stopped / "leaderboard.md").exists()
    command(line)
    assert made(whole) == made(stopped)
    results = [sorted(out.rglob("*.parquet")) for out in (whole, stopped)]
    assert [path.read_bytes() for path in results[0]] == [path.read_bytes() for path in results[1]]
    assert len(results[0]) == 2 * 4 * 2  # records and allocations in two scenarios; ofta, which all are compared with
    assert not list(stopped.rglob("*.npz"))
