import gc
import json
import pickle
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner

from ata_gym import bench
from ata_gym.bench.report.page.render import NAME
from ata_gym.bench.report.report import leave
from ata_gym.bench.role import Role
from ata_gym.bench.runner.jobs import Effort, play_jobs
from ata_gym.bench.runner.policies import by_name
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.studies.leaderboard import ranking
from ata_gym.bench.studies.leaderboard.ranking import (
    COST,
    RUNTIME,
    TO_ORACLE,
    TO_OTHER,
    WORKER_TIME,
)
from ata_gym.bench.studies.leaderboard.report import lead, read_board
from ata_gym.bench.studies.leaderboard.sets import STEADY
from ata_gym.bench.studies.leaderboard.study import Leaderboard
from ata_gym.bench.studies.leaderboard.tables import constants, default_tables
from ata_gym.cli import app
from ata_gym.utils.files import manifest
from ata_policies import AllocationPolicy
from ata_policies.allocation.baselines import Uta
from docs import tables
from tests.flips import unseen
from tests.mutated import refused_by_field
from tests.page_data import parts


class Thrifty(AllocationPolicy):
    """Everything to worker 0 where worker time is dear, else to all in turn: its action depends on
    the price.
    """

    priced = True

    def allocate(self, state):
        n = self.setting.n
        budget = self.setting.budget
        equal = np.bincount(np.arange(budget) % n, minlength=n)
        dear = np.eye(1, n, dtype=np.int64)[0] * budget
        return np.tile(dear if self.setting.price > 0.5 else equal, (len(state.round), 1))


class Known(Thrifty):
    knows = "the distributions"


THRIFTY, KNOWN = (f"{__name__}:{name}" for name in ("Thrifty", "Known"))


class Played(NamedTuple):
    board: Leaderboard
    jobs: list[Job]
    out: Path


def board(*policies: str) -> Leaderboard:
    return Leaderboard(
        by_name(["ofta", *policies]),
        replace(STEADY, front_prices=(0.0, 0.2)),
        [replace(STEADY.find(name), horizon=4) for name in ("cifar100", "regret")],
        (0.0, 1.0),
        3,
        remarks=["A note."],
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    names = ["uta", "ata", "ata:width=0.1", THRIFTY, KNOWN, "gta", "dispatch-gta"]
    study = board(*names)
    out = tmp_path_factory.mktemp("board")
    jobs = study.begin(out, ["ata-gym", "leaderboard"])
    assert play_jobs(jobs, effort=Effort(jobs=1)) == {}
    return Played(study, jobs, out)


def test_policies_are_learners_oracles_and_baselines():
    kinds = [Role.from_name(name).kind for name in ("ata:alpha=3.0", "ofta", THRIFTY, KNOWN, "gta")]
    assert (kinds, Role.from_name("gta").env) == (
        ["learner", "oracle", "learner", "oracle", "baseline"],
        "TaskRace",
    )
    with pytest.raises(ValueError, match="no policy 'nobody'"):
        Role.from_name("nobody")


def test_who_looks_at_the_price_plays_once_for_each(played):
    of: dict[str, list[Any]] = {}
    for role, job, prices in played.board.jobs(played.out):
        scenario = job.experiment.scenario
        of.setdefault(role.policy, []).append((scenario.name, scenario.price, prices))
    both = (0.0, 1.0)
    two = ("cifar100", "regret")
    assert of["uta"] == [(scenario, 0.0, both) for scenario in two]
    assert of[THRIFTY] == [(scenario, price, (price,)) for scenario in two for price in both]
    front = [("cifar100", 0.2)]  # an oracle draws the front of one scenario at more prices
    assert [one[:2] for one in of[KNOWN]] == sorted(
        [(name, price) for name in two for price in both] + front,
    )


def test_results_are_priced_afterwards_or_played_at_the_price(played):
    read = read_board(played.out)
    ends = read.finals
    # scenarios, prices, policies, seeds; the oracle's price in the picture has a point alone
    assert ends.height == 2 * 2 * 8 * 3
    assert read.points.filter(policy=KNOWN)["price"].to_list() == [0.0, 0.2, 1.0]
    for row in ends.to_dicts():
        assert row["cost"] == row["runtime"] + row["price"] * row["total_worker_time"]
    at = {key: group.drop("price", "cost") for key, group in ends.group_by("policy", "price")}
    assert at["uta", 0.0].equals(at["uta", 1.0])
    assert not at[THRIFTY, 0.0].equals(at[THRIFTY, 1.0])


def test_a_note_whose_fields_hold_something_else_is_refused_by_file_and_field(played, tmp_path):
    out = tmp_path / "board"
    shutil.copytree(played.out, out)
    (out / manifest.NAME).unlink(missing_ok=True)
    note = json.loads((out / "about.json").read_text())
    note |= {
        "remarks": ["a remark"],
        "policies": note["policies"][:2],
        "scenarios": note["scenarios"][:1],
        "defaults": {"TaskAllocation": "uta"},
    }
    (out / "about.json").write_text(json.dumps({**note, "jobs": note["jobs"][:2]}))
    taken = refused_by_field(out / "about.json", lambda: read_board(out))
    free = {name for name in taken if ".facts." not in name and not name.endswith(".own")}
    assert free == {
        "defaults.TaskAllocation",  # a default may be missing
        "prices[0]",
        "prices[1]",
        *(f"jobs[{job}].prices[{price}]" for job in (0, 1) for price in (0, 1)),
    }
    whole = json.loads((out / "about.json").read_text())
    for folder in ("/", "../board", "scenarios/../../board"):
        whole["jobs"][1]["folder"] = folder
        (out / "about.json").write_text(json.dumps(whole))
        with pytest.raises(
            ValueError,
            match=r"about.json .*jobs\[1\].folder must be a path inside the folder, not ",
        ):
            read_board(out)


def synthetic() -> pl.DataFrame:
    """Costs of four policies in two scenarios at two prices, 6 seeds; each seed makes all of them
    dear or cheap.
    """
    rng = np.random.default_rng(0)
    rows = []
    factors = {
        ("ofta", "oracle"): 0.5,
        ("good", "learner"): 1.0,
        ("bad", "learner"): 2.0,
        ("none", "baseline"): 3.0,
    }
    for scenario in ("one", "two"):
        scale = rng.gamma(4.0, size=6)
        for player, factor in factors.items():
            runtime = factor * scale * rng.uniform(0.95, 1.05, size=6)
            for price in (0.0, 1.0):
                where = "TaskAllocation", price, scenario, *player
                rows += [(*where, k, r, 2 * r, r + price * 2 * r) for k, r in enumerate(runtime)]
    schema = [
        "env",
        "price",
        "scenario",
        "policy",
        "kind",
        "seed",
        "runtime",
        "total_worker_time",
        "cost",
    ]
    return pl.DataFrame(rows, schema, orient="row")


def of(frame: pl.DataFrame, **wanted: object) -> dict[str, float]:
    return frame.filter(**wanted).row(0, named=True)


def test_intervals_are_students_of_paired_logarithms():
    ends = synthetic()
    logs = {
        name: np.log(group["cost"].to_numpy()).reshape(2, 6)
        for (name,), group in ends.filter(price=1.0).group_by("policy", maintain_order=True)
    }
    ratios = ranking.ratios(ends, "ofta")
    to_good = logs["bad"] - logs["good"]
    to_ofta = logs["bad"] - logs["ofta"]
    by_scenario = ranking.by_scenario(ratios)
    for row, paired, oracle in (
        (of(by_scenario, policy="bad", scenario="one", price=1.0), to_good[0], to_ofta[0]),
        (of(by_scenario, policy="bad", scenario="two", price=1.0), to_good[1], to_ofta[1]),
        (
            of(ranking.overall(ratios), policy="bad", price=1.0),
            to_good.mean(axis=0),
            to_ofta.mean(axis=0),
        ),
    ):
        interval = stats.ttest_1samp(paired, 0.0).confidence_interval(0.95)
        expected = np.exp([paired.mean(), *interval, oracle.mean()])
        assert [
            row[name] for name in (COST, f"{COST}_low", f"{COST}_high", RUNTIME)
        ] == pytest.approx(expected)


def test_ranks_count_learners_and_the_best_of_them_is_one():
    ratios = ranking.ratios(synthetic(), "ofta")
    table = ranking.overall(ratios, by_price=False)
    assert table["policy"].to_list() == ["ofta", "good", "bad", "none"]
    assert (table["rank"].to_list(), table[COST][1]) == ([None, 1, 2, None], 1.0)
    for columns, scale in (((COST, "worst"), 0.5), ((TO_ORACLE, WORKER_TIME), 1.0)):
        for column in columns:
            assert table[column].to_list() == pytest.approx(
                [scale * k for k in (1.0, 2.0, 4.0, 6.0)],
                rel=0.1,
            )
    each = (
        ranking.by_scenario(ratios)
        .group_by("policy", maintain_order=True)
        .agg(pl.col(COST).log().mean().exp())
    )
    assert table[COST].to_list() == pytest.approx(each[COST].to_list())  # the mean of the means


def test_who_has_not_played_everywhere_is_not_ranked_and_without_learners_there_is_no_best():
    ends = synthetic()
    ratios = ranking.ratios(
        ends.filter(~((pl.col("policy") == "bad") & (pl.col("scenario") == "two"))),
        "ofta",
    )
    assert not any(
        "bad" in ranking.overall(ratios, by_price=by_price)["policy"] for by_price in (True, False)
    )
    assert "bad" in ranking.by_scenario(ratios)["policy"]
    table = ranking.overall(ranking.ratios(ends.filter(pl.col("kind") != "learner"), "ofta"))
    missing = {name: table[name].null_count() for name in (COST, "rank", TO_ORACLE, RUNTIME)}
    assert missing == {COST: table.height, "rank": table.height, TO_ORACLE: 0, RUNTIME: 0}


def test_tables_and_pictures_say_what_was_played(played, tmp_path):
    out = tmp_path / "board"
    shutil.copytree(played.out, out)
    note = json.loads((out / "about.json").read_text())
    note["defaults"] = {"TaskAllocation": "uta", "TaskDispatch": "none"}
    (out / manifest.NAME).unlink(missing_ok=True)
    (out / "about.json").write_text(json.dumps(note))
    left = leave(Leaderboard.report(out), out)
    made = [path.relative_to(out).as_posix() for path in (*left.tables, *left.pictures)]
    assert made == [
        "leaderboard.md",
        "leaderboard.csv",
        "scenarios.csv",
        "cells.csv",
        NAME,
        "plots/front.png",
        "plots/front.svg",
    ]
    text = (out / "leaderboard.md").read_text()
    assert f"Leaderboard {STEADY.title}: 2 of {len(STEADY.names())} scenarios, 3 seeds" in text
    assert "A note." in text
    assert "](plots/front.png)" in text
    assert "TaskAllocation: the default, uta, is within 5% of the best of 3 learners in" in text
    assert tables.table(text, "Price 0, rivals as published").splitlines()[2].startswith("| ata ")
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in text.splitlines()]
    for row in (["oracle", "ofta"], ["baseline", "gta"]):
        assert row in rows
    assert any(row[:1] == ["TaskAllocation"] for row in rows)  # the envs side by side
    assert "nan" not in text.lower()
    assert text.index("All prices and scenarios") < text.index("Price 0, all scenarios")
    each = tables.table(text, "TaskAllocation, price 1, each scenario").splitlines()
    assert [cell.strip() for cell in each[0].split("|")[1:-1]] == ["policy", "cifar100", "regret"]
    columns = np.array([[cell.strip() for cell in line.split("|")[2:-1]] for line in each[2:]])
    assert columns.shape == (6, 2)
    assert (columns == "1 (1)").any(axis=0).all()  # the best learner of each scenario
    cells = pl.read_csv(out / "cells.csv")
    # scenarios, prices, policies and seeds; not the prices of the picture
    assert cells.height == 2 * 2 * 8 * 3
    ends = read_board(out).finals
    assert cells["cost"].to_list() == pytest.approx(ends["cost"].to_list())
    uta, ofta = (
        cells.filter(policy=name, price=1.0)["runtime"].to_numpy() for name in ("uta", "ofta")
    )
    assert cells.filter(policy="uta", price=1.0)[RUNTIME].to_numpy() == pytest.approx(uta / ofta)


def test_the_page_and_the_tables_show_the_same_figures(played):
    report = Leaderboard.report(played.out)
    overview, matrix, front, *_ = report.page().sections
    allocation = next(view for view in overview.views if view.choice["env"] == "TaskAllocation")
    shown = {row[1]: (row[2], row[3]) for row in report.tables[0].rows}
    assert {
        row.policy.text: (row.cost.text, row.to_oracle.text) for row in allocation.rows
    } == shown
    by_scenario = report.files["scenarios.csv"]
    for view in matrix.views:
        column = {"mean": COST, "worst seed": f"{COST}_worst"}[view.choice["seeds"]]
        of_view = by_scenario.filter(env=view.choice["env"], price=float(view.choice["price"]))
        figures = {(row["policy"], row["scenario"]): row[column] for row in of_view.to_dicts()}
        scenarios = [title.title.replace("\u200b", "") for title in view.columns[1:]]
        assert figures == {
            (row[0].text, scenario): cell.value
            for row in view.rows
            for scenario, cell in zip(scenarios, row[1:], strict=True)
        }
    points = {(view.choice["scenario"], view.choice["price"]): view.data for view in front.views}
    names = [line.name for line in report.page().series]
    for point in points["regret", "1"]["points"]:
        row = of(by_scenario, policy=names[point["p"]], scenario="regret", price=1.0)
        assert point["x"] == [row[f"{WORKER_TIME}{end}"] for end in ("", "_low", "_high")]


def test_policies_are_compared_over_scenarios_and_prices(played):
    results = bench.read(played.out)
    ends = read_board(played.out).finals
    costs = {
        name: np.log(ends.filter(policy=name).sort("scenario", "price", "seed")["cost"].to_numpy())
        for name in ("uta", "ofta")
    }
    comparison = results.compare("uta", "ofta")
    assert comparison.ratio.mean == pytest.approx(np.exp((costs["uta"] - costs["ofta"]).mean()))
    assert "on 4 scenario-price pairs: " in comparison.sentence
    assert [*results.content.samples][:2] == ["cifar100 at price 0", "cifar100 at price 1"]
    assert next(iter(results.content.samples["regret at price 1"])) == "cost"
    table = results.table()
    mean = table.filter(policy="uta", quantity=RUNTIME, price=0.0)["mean"].item()
    assert mean == pytest.approx(
        np.exp(np.mean(np.log(_clocks(ends, "uta") / _clocks(ends, "ofta")))),
    )
    kept = pickle.loads(pickle.dumps(results))
    assert kept.table().equals(table)
    for picture in ("front", "profile"):
        assert kept.plot(picture)._repr_png_().startswith(b"\x89PNG")


def _clocks(ends: pl.DataFrame, policy: str) -> np.ndarray:
    return ends.filter(policy=policy, price=0.0).sort("scenario", "seed")["runtime"].to_numpy()


def test_the_worst_seed_stands_beside_the_mean_and_price_0_by_itself():
    ends = synthetic()
    lost = ends.with_columns(
        pl.when(policy="bad", scenario="two", seed=3)
        .then(9.0 * pl.col("cost"))
        .otherwise("cost")
        .alias("cost"),
    )
    ratios = ranking.ratios(lost, "ofta")
    row = of(ranking.overall(ratios), policy="bad", price=0.0)
    assert (row["where"], row["where_seed"]) == ("two", "two")
    assert row["worst"] < 4.0
    assert row["worst_seed"] == pytest.approx(18.0, rel=0.12)
    cell = of(ranking.by_scenario(ratios), policy="bad", price=0.0, scenario="two")
    assert cell[f"{COST}_worst"] == row["worst_seed"]
    assert all(
        of(ranking.overall(ratios), policy="good", price=0.0)[name] == 1.0
        for name in ("worst", "worst_seed")
    )
    compared, far = default_tables(ranking.by_scenario(ratios), lost, {"TaskAllocation": "bad"})
    mean, worst = compared.rows[1][1].rstrip(")").split(" (")
    assert float(worst) == pytest.approx(row["worst_seed"], rel=0.01)
    assert float(mean) < 4.0
    assert worst in {row[5] for row in far.rows}
    said = lead(ratios).splitlines()
    assert said[0] == "Over all scenarios and prices:"
    zero = said.index("At price 0, where runtime alone counts:")
    assert said[1].startswith("Env TaskAllocation: good has the least cost")
    assert said[zero + 1].startswith("Env TaskAllocation: good has the least runtime")
    assert not any(
        line.startswith("At price 0") for line in lead(ratios.filter(price=0.0)).splitlines()
    )


def test_a_policy_is_compared_with_the_best_other_that_is_no_oracle():
    ends = synthetic()
    of_good, of_bad = (
        ranking.to_best_other(ends, name).sort("price", "scenario") for name in ("good", "bad")
    )
    assert of_good["other"].unique().to_list() == ["bad"]
    assert (of_good[TO_OTHER] < 0.6).all()
    assert (of_good[f"{TO_OTHER}_low"] < of_good[TO_OTHER]).all()
    whole = (
        ranking.by_scenario(ranking.ratios(ends, "ofta"))
        .filter(policy="bad")
        .sort("price", "scenario")
    )
    assert of_bad[TO_OTHER].to_list() == pytest.approx(whole[COST].to_list())
    learners_gone = ends.filter(pl.col("policy").is_in(["ofta", "bad", "none"]))
    # a baseline counts
    assert ranking.to_best_other(learners_gone, "bad")["other"].unique().to_list() == [
        "none",
    ]
    assert ranking.to_best_other(ends.filter(policy="good"), "good").is_empty()


def test_a_rival_is_shown_as_published_and_with_its_best_constant():
    ends = synthetic()
    names = {"bad": "thompson-gamma", "good": "thompson-gamma:weight=2"}
    ends = ends.with_columns(pl.col("policy").replace(names))
    worse = ends.filter(policy="thompson-gamma").with_columns(
        pl.col("cost") * 3.0,
        policy=pl.lit("thompson-gamma:weight=9"),
    )
    for ends_of, which in (
        (pl.concat([ends, worse]), "weight=2"),
        (ends.filter(pl.col("price") < 1.0), "weight=2"),
    ):
        for table in constants(ranking.overall(ranking.ratios(ends_of, "ofta"))):
            (row,) = table.rows
            assert (row[0], row[3]) == ("thompson-gamma", which)
            assert float(row[1].split()[0]) > float(row[2].split()[0]) == 1.0
    tried = ends.filter(pl.col("policy") != "thompson-gamma:weight=2")
    assert constants(ranking.overall(ranking.ratios(tried, "ofta"))) == []
    at_0, _ = constants(ranking.overall(ranking.ratios(pl.concat([tried, worse]), "ofta")))
    assert (at_0.rows[0][3], at_0.rows[0][5]) == ("as published", "weight=9")


def test_each_cell_where_a_default_is_not_near_the_best_is_named():
    ends = synthetic()

    def told(ends: pl.DataFrame, default: str) -> list[Any]:
        return default_tables(
            ranking.by_scenario(ranking.ratios(ends, "ofta")),
            ends,
            {"TaskAllocation": default},
        )

    *_, far = told(ends, "bad")
    cells = [
        ("TaskAllocation", scenario, price) for scenario in ("one", "two") for price in ("0", "1")
    ]
    assert ([row[:3] for row in far.rows], {row[-1] for row in far.rows}) == (cells, {"good"})
    low, high = far.rows[0][4].split(" to ")
    assert float(low) < float(far.rows[0][3]) < float(high)
    (compared,) = told(ends, "good")
    assert "good, is within 5% of the best of 2 learners in 4 of 4" in compared.title
    assert [row[0] for row in compared.rows] == ["one", "two", "geometric mean"]
    for first, second, both in zip(
        *([float(cell.split()[0]) for cell in row[1:]] for row in compared.rows),
        strict=True,
    ):
        assert both**2 == pytest.approx(first * second, rel=0.02)  # they are rounded
    (compared,) = told(ends.filter(scenario="one"), "good")
    assert [row[0] for row in compared.rows] == ["one"]
    (compared,) = told(ends.filter(policy="good"), "good")
    assert "the best of 1 learner in" in compared.title
    assert {cell for row in compared.rows for cell in row[1:]} == {"-"}


def test_a_stopped_leaderboard_goes_on_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    line = (
        "leaderboard --quick --scenarios near-equal,regret --prices 0 --seeds 2 --jobs 1"
        " --save-every 0 --out out --policies uta,gta,ata-icml:alpha=20"
    )
    monkeypatch.chdir(tmp_path)

    def command(line: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, line.split())
        assert result.exit_code == code, result.output
        return result.output

    def made(pattern: str) -> dict[str, bytes]:
        return {
            str(path): path.read_bytes()
            for path in sorted(Path("out").glob(pattern))
            if path.is_file()
        }

    told = command(line)
    assert "(quick look): 2 of " in told
    for name in (
        "TaskAllocation",
        "TaskRace",
        "ofta",
        "ata-icml:alpha=20",
        "out/leaderboard.{md,csv}",
    ):
        assert name in told
    assert unseen(Path("out")) == []
    page = Path("out", NAME).read_text("utf-8")
    assert '<option value="worst seed">' in page
    charts = parts(page)["config"]["charts"]
    assert [view["scenario"] for view in charts["spread"]["views"]] == ["near-equal", "regret"]
    assert "another configuration: seeds is 2 there and 3 here" in command(
        line.replace("--seeds 2", "--seeds 3"),
        2,
    )
    whole = made("[!.]*")
    results = made("**/*.parquet")
    # records and allocations in two scenarios; ofta, which all are compared with
    assert len(results) == 2 * 4 * 2
    assert bench.read("out").compare("gta", "uta").ratio.high < 1.0
    gc.collect()  # a command that was refused holds the folder until its objects are collected
    Path("out").rename("whole")

    def interrupted(self, state):
        if state.round[0] == 100:
            raise KeyboardInterrupt
        return allocate(self, state)

    allocate = Uta.allocate
    with monkeypatch.context() as patch:
        patch.setattr(Uta, "allocate", interrupted)
        command(line, 130)
    assert made("**/*.npz")
    assert made("**/*.parquet")
    assert not Path("out", "leaderboard.md").exists()
    command(line)
    assert (made("[!.]*"), made("**/*.parquet"), made("**/*.npz")) == (whole, results, {})


SMALL: dict[str, Any] = {
    "quick": True,
    "scenarios": "near-equal",
    "prices": 0.0,
    "seeds": 2,
    "jobs": 1,
}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"set_name": "stedy"}, "no set of scenarios 'stedy'; did you mean steady"),
        ({"scenarios": []}, "name at least one scenario"),
        ({"scenarios": ["nowhere"]}, "no quick scenario of the leaderboard 'nowhere'"),
        ({"prices": []}, "name at least one price"),
        ({"prices": [0.0, -1.0]}, "each price must be"),
        ({"seeds": 0}, "seeds must be"),
        ({"policies": "utah"}, "utah"),
        ({"policies": {"ofta": Thrifty}}, "ofta is the name of another policy"),
        ({"policies": "ata:alpha=nan"}, "ata:alpha=nan: give alpha"),
        ({"quick": False, "scenarios": "alibaba-1"}, "give --data, the folder of the recordings"),
    ],
)
def test_what_cannot_be_ranked_is_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        bench.leaderboard(**{"policies": "uta", **SMALL, "out": tmp_path / "out", **options})
    assert not list(tmp_path.iterdir())


def test_nothing_is_made_where_one_of_several_folders_is_refused(tmp_path):
    out = tmp_path / "out"
    rank = partial(bench.leaderboard, policies="uta", out=out)
    rank(**SMALL)
    before = sorted(out.rglob("*"))
    with pytest.raises(ValueError, match="another configuration: seeds is 2 there and 3 here"):
        rank(**{**SMALL, "scenarios": ["regret", "near-equal"], "seeds": 3})
    assert sorted(path for path in out.rglob("*") if not path.name.startswith(".")) == [
        path for path in before if not path.name.startswith(".")
    ]


class Fragile(Thrifty):
    def allocate(self, state):
        if self.setting.price > 0.5 and state.round[0] > 1:
            raise RuntimeError("no idea")
        return super().allocate(state)


def test_a_failure_is_named_by_scenario_and_price_and_leaves_the_others_alone(tmp_path):
    label = "mine in near-equal at price 1"
    with pytest.warns(bench.PolicyFailedWarning, match=f"{label} failed: .*no idea"):
        results = bench.leaderboard(
            policies={"mine": Fragile, "thrifty": Thrifty},
            **{**SMALL, "prices": [0.0, 1.0], "out": tmp_path / "out"},
        )
    assert [*results.failures] == [label]
    assert "no idea" in results.failures[label].traceback.read_text()
    assert "1 of 5 runs have not finished, and are not shown: run the command again." in (
        results.remarks
    )
    assert results.records.filter(policy="mine")["price"].unique().to_list() == [0.0]
    with pytest.raises(ValueError, match="mine"):
        results.compare("mine", "ofta")
    with pytest.warns(bench.PolicyFailedWarning):
        nothing = bench.leaderboard(policies={"mine": Fragile}, **{**SMALL, "prices": 1.0})
    assert nothing.finished  # the policy with which all are compared
