import json
from contextlib import nullcontext
from typing import Any

import numpy as np
import polars as pl
import pytest

from ata_gym import bench, proxy_loss
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report import style
from ata_gym.bench.studies.tracking import pictures
from ata_gym.bench.studies.tracking.delays import delays, summarise
from ata_gym.bench.studies.tracking.experiment import (
    ORACLES,
    SCHEMA,
    ExpectedTimes,
    TrackedExperiment,
    TrackedRun,
    abrupt_changes,
)
from ata_gym.bench.studies.tracking.study import Tracking
from ata_gym.changes import Change, Conditions, Jump, Redraw, Switch, Walk, Warming
from ata_gym.pools import PoolDistribution, gamma, trace
from ata_gym.pools.pool import Pool
from ata_gym.scenarios import Scenario
from ata_gym.theory.round_time.expected import expected_round_time
from tests.bench.by_hand import by_hand
from tests.mutated import refused_by_field
from tests.page_data import parts

MEANS = np.array([1.0, 2.0, 4.0, 8.0])
SWITCHED = Scenario(gamma(4.0, MEANS / 4), 4, changes=(Switch(every=50),), name="switched")
SMALL: dict[str, Any] = {
    "rounds": 110,
    "before": 10,
    "after": 30,
    "seeds": 2,
    "seed": 3,
    "jobs": 1,
}


def experiment(pool: Pool, *changes: Change, rounds: int = 120, seeds: int = 2) -> Experiment:
    return Experiment(
        Scenario(pool, 4, changes=changes, name="test"),
        rounds=rounds,
        seeds=seeds,
        seed=3,
    )


def tracked(before: int = 10, after: int = 40, **kwargs: int) -> TrackedExperiment:
    return TrackedExperiment.around(
        experiment(gamma(4.0, MEANS / 4), Switch(every=50), **kwargs),
        before=before,
        after=after,
    )


@pytest.fixture
def play(played):
    return lambda tracking, *policies: played(tracking, *policies, run_of=TrackedRun).results(
        list(policies),
    )


def test_abrupt_changes_are_found():
    assert abrupt_changes([Switch(every=50), Walk(0.1, 1.0)], 100) == (50,)
    assert abrupt_changes([Switch(at=(30, 99, 100)), Jump(0, (1,), 2.0, until=30)], 100) == (30, 99)


def test_windows_end_where_another_change_or_the_episode_does():
    tracking = tracked(before=20, after=60)
    early = tracked(before=70, after=10)
    assert (tracking.changed_at, tracking.windows()) == ((50, 100), [(30, 50, 100), (80, 100, 120)])
    assert tracking.record_at().tolist() == list(range(31, 121))
    assert (tracking.before, tracking.after) == (20, 50)
    assert early.windows() == [(0, 50, 60), (50, 100, 110)]
    assert (early.rounds, early.before, early.after) == (110, 50, 10)


@pytest.mark.parametrize(
    ("changes", "at", "told"),
    [
        ((), 30, "nothing changes in test after 30 rounds.*choose a scenario that changes"),
        ((Switch(at=(20,)),), 30, "nothing changes in test after 30 rounds.*leave --change out"),
        ((Switch(at=(20,)),), 20, None),
        ((Walk(0.1, 1.0),), 30, None),
    ],
)
def test_a_change_that_there_is_not_is_refused(changes, at, told):
    played = experiment(gamma(4.0, MEANS), *changes, rounds=60)
    with pytest.raises(ValueError, match=told) if told else nullcontext():
        assert TrackedExperiment.around(played, [at], before=5, after=5).changed_at == (at,)


def test_workers_that_follow_the_load_are_not_tracked():
    played = experiment(gamma(4.0, MEANS), Switch(at=(20,)), Warming(3, 2.0))
    with pytest.raises(ValueError, match="workers of this scenario follow the load"):
        TrackedExperiment.around(played, before=5, after=5)


def test_expected_times_of_workers_that_are_drawn_anew_are_those_of_the_draw(play):
    pools = PoolDistribution(3, families=("gamma", "uniform"), cv=(0.3, 0.6))
    drawn = experiment(pools.typical(), Redraw(pools), Switch(every=6), rounds=12)
    tracking = TrackedExperiment.around(drawn, before=4, after=4)
    records = play(tracking, "dynamic-ofta")
    env = tracking.make_envs("ata_gym/TaskAllocation-v0").unwrapped
    env.reset(seed=3)
    for e in range(2):
        first = records.filter(seed=3 + e).row(0, named=True)
        pool = env.conditions().row(e).pool(drawn.scenario.catalogue)  # until the switch
        assert first["expected"] == pytest.approx(
            expected_round_time(pool, first["tasks"]),
            rel=0.03,
        )


def test_the_records_are_those_of_single_envs_played_by_hand(play):
    tracking = tracked()
    pool = gamma(4.0, MEANS / 4)
    records = play(tracking, "ata-icml")
    assert records.schema == pl.Schema(SCHEMA)
    every = [a for a in np.ndindex(5, 5, 5, 5) if sum(a) == 4]
    for seed in (3, 4):
        mine = {row["round"]: row for row in records.filter(seed=seed).to_dicts()}
        regret = 0.0
        assert list(mine) == tracking.record_at().tolist()
        for k, (tasks, info, means, distribution) in enumerate(
            by_hand("ata-icml", tracking, seed),
            start=1,
        ):
            regret += proxy_loss(tasks, means) - proxy_loss(every, means).min()
            if k in mine:
                assert (mine[k]["tasks"], mine[k]["round_time"]) == (
                    tasks.tolist(),
                    info["round_time"],
                )
                assert mine[k]["regret"] == pytest.approx(regret)
                exact = expected_round_time(pool, tasks[np.argsort(distribution)])
                assert mine[k]["expected"] == pytest.approx(exact, rel=0.03)
        least = min(expected_round_time(pool, a) for a in every)
        assert mine[41]["dynamic-oracle"] == pytest.approx(least, rel=0.03)


def test_oracles_have_followed_at_once_and_have_no_regret(play):
    tracking = tracked()
    records = play(tracking, *ORACLES, "uta")
    found = delays(records, tracking.windows())
    summary = summarise(records, tracking.windows())
    mean = {(row["policy"], row["quantity"]): row["mean"] for row in summary.to_dicts()}
    assert found.height == 3 * 2 * 2 * 2
    for oracle in ORACLES:
        assert found.filter(policy=oracle, oracle=oracle)["delay"].to_list() == [0] * 4
        assert mean[oracle, f"before/{oracle}"] == mean[oracle, f"after/{oracle}"] == 1.0
    assert (mean["dynamic-ofta", "regret"], found.filter(policy="uta")["delay"].null_count()) == (
        0.0,
        8,
    )


def test_times_replayed_by_round_are_compared_with_the_best_of_the_round(play):
    times = np.random.default_rng(0).integers(1, 9, size=(3, 60)).astype(float)
    tracking = TrackedExperiment.around(
        experiment(trace(times, replay="round"), rounds=60),
        [30],
        before=5,
        after=25,
    )
    records = play(tracking, "uta").filter(pl.col("seed") == 3)
    for row in records.to_dicts():
        now = times[:, row["round"] - 1]
        every = [a for a in np.ndindex(5, 5, 5) if sum(a) == 4]
        assert row["expected"] == row["round_time"] == proxy_loss(row["tasks"], now)
        assert row["dynamic-oracle"] == row["dynamic-ofta"] == proxy_loss(every, now).min()


def conditions_of(distribution, factor, latency_factor=None):
    n = len(distribution)
    conditions = Conditions.unchanged(np.ones(1, np.int64), n)
    latency_factor = np.ones(n) if latency_factor is None else latency_factor
    return conditions._replace(
        distribution=distribution[None], factor=factor[None], latency_factor=latency_factor[None]
    )


def test_expected_times_do_not_depend_on_who_has_which_distribution():
    times = ExpectedTimes(gamma(2.0, MEANS), 5)
    order = np.array([2, 0, 3, 1])
    tasks = np.array([3, 1, 1, 0])
    distribution = np.arange(4)
    factor = np.array([1.0, 0.5, 1.0, 3.0])
    one = times(tasks[None], conditions_of(distribution, factor))
    assert times(tasks[None, order], conditions_of(distribution[order], factor[order])) == one
    assert one == pytest.approx(
        expected_round_time(gamma(2.0, MEANS * factor), tasks),
        rel=0.02,
    )


def test_expected_times_hold_the_latency_of_the_round():
    latency = np.array([8.0, 4.0, 2.0, 1.0])
    pool = gamma(2.0, MEANS).with_latency(gamma(2.0, latency / 2))
    tasks = np.array([3, 1, 1, 0])
    ones = np.ones(4)
    slow_link = np.array([1.0, 5.0, 1.0, 1.0])
    times = ExpectedTimes(pool, 5)
    congested = pool.with_latency(gamma(2.0, latency * slow_link / 2))
    assert times(tasks[None], conditions_of(np.arange(4), ones, slow_link)) == pytest.approx(
        expected_round_time(congested, tasks), rel=0.02
    )
    # recorded times and latencies are read by round, here the second
    records = np.array([[1.0, 2.0], [4.0, 3.0]])
    replayed = trace(records, replay="round", latency=trace([[5.0, 7.0], [0.5, 0.25]], "round"))
    times = ExpectedTimes(replayed, 3)
    conditions = conditions_of(np.arange(2), np.ones(2))
    assert times(np.array([[1, 2]]), conditions).tolist() == [max(7.0 + 2.0, 0.25 + 2 * 3.0)]


def test_the_picture_shows_the_workers_of_the_first_seed():
    tracking = tracked(before=5, after=8, rounds=60)
    envs = tracking.make_envs("ata_gym/TaskAllocation-v0", rows=1)
    envs.reset(seed=3)
    assert tracking.means_before() == pytest.approx(envs.unwrapped.means()[0])
    values = np.concatenate([np.ones(50), np.full(50, 9.0)])
    # it does not look across the change
    assert pictures.smooth(values, 50).tolist() == values.tolist()
    assert pictures.smooth(np.arange(100.0), 50)[49] == np.arange(30, 50).mean()


def test_a_heat_map_keeps_all_tasks():
    tasks = np.random.default_rng(0).multinomial(23, np.full(7, 1 / 7), size=1300).T
    with style.figure(4.0, 3.0) as picture:
        mesh = pictures.heat_map(picture.subplots(), np.arange(-300, 1000), tasks, 5)
        edges = np.asarray(mesh.get_coordinates())[0, :, 0]
        assert (edges[0], edges[-1]) == (-300, 1000)
        assert np.asarray(mesh.get_array()).reshape(7, -1) @ np.diff(edges) == pytest.approx(
            tasks.sum(axis=1),
        )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    out = tmp_path_factory.mktemp("tracked") / "out"
    return out, bench.track("uta,restarting-beta,dynamic-oracle", SWITCHED, out=out, **SMALL)


def test_a_folder_is_read_as_it_was_shown_and_has_a_page(results):
    out, shown = results
    assert [path.name for path in (*shown.files, *shown.pictures)] == [
        "table.md",
        "table.csv",
        "delays.csv",
        "report.html",
        "change.png",
        "change.svg",
    ]
    read = bench.read(out)
    assert read.table().equals(shown.table())
    assert read.records.equals(shown.records)
    assert read._repr_html_() == shown._repr_html_()
    page = parts((out / "report.html").read_text("utf-8"))
    assert [*page["config"]["charts"]] == ["changes", "allocations"]
    changes = [view["change"] for view in page["config"]["charts"]["changes"]["views"]]
    assert changes == ["after 50 rounds", "after 100 rounds"]
    assert read.plot()._repr_png_().startswith(b"\x89PNG")
    again = bench.track("uta,restarting-beta,dynamic-oracle", SWITCHED, **SMALL)
    assert again.records.equals(shown.records)


def test_the_page_and_the_tables_show_the_same_figures(results):
    content = results[1].content
    delay_section, cost_section, *_ = content.page().sections
    for table, section in zip(content.tables, (delay_section, cost_section), strict=True):
        (view,) = section.views
        assert [*table.columns] == [column.title for column in view.columns]
        assert [[*row] for row in table.rows] == [[cell.text for cell in row] for row in view.rows]
    of_uta = content.files["delays.csv"].filter(policy="uta", oracle="dynamic-oracle")
    row = next(row for row in delay_section.views[0].rows if row[0].text == "uta")
    assert row[3].value == of_uta["delay"].null_count()
    summary = content.files["table.csv"].filter(policy="uta", quantity="after/dynamic-oracle")
    titles = [column.title for column in cost_section.views[0].columns]
    row = next(row for row in cost_section.views[0].rows if row[0].text == "uta")
    assert row[titles.index("after\n/ oracle")].value == summary["mean"].item()


def test_the_curves_of_the_page_are_smoothed_ratios_of_both_sides_of_a_change(results):
    shown = results[1]
    *_, curves, heat = shown.content.page().sections
    names = [line.name for line in shown.content.page().series]
    first = curves.views[0].data
    assert [*first["x"]] == [*range(-10, 30)]
    for series in first["series"]:
        rows = shown.records.filter(policy=names[series["p"]]).filter(
            pl.col("round").is_between(41, 80),
        )
        ratio = (rows["expected"] / rows["dynamic-oracle"]).to_numpy().reshape(2, 40)
        # after k rounds on its side of the change, a mean over all of them, and at most 20
        assert series["mean"][9] == pytest.approx(ratio[:, :10].mean())
        assert series["mean"][12] == pytest.approx(ratio[:, 10:13].mean())
        assert series["mean"][39] == pytest.approx(ratio[:, 20:].mean())
    oracle = next(line for line in first["series"] if names[line["p"]] == "dynamic-oracle")
    assert oracle["mean"] == pytest.approx(np.ones(40))
    assert [view.choice["policy"] for view in heat.views] == names
    assert "logX" not in heat.settings
    assert heat.views[0].data["rounds"] == [*range(-10, 30)]


def test_policies_are_compared_by_the_round_times_after_the_changes(results):
    shown = results[1]
    after = shown.records.filter(
        pl.col("round").is_between(51, 80) | pl.col("round").is_between(101, 110),
    )
    sums = {
        str(policy): rows.group_by("seed", maintain_order=True).agg(pl.col("expected").sum())
        for (policy,), rows in after.group_by("policy")
    }
    logs = {name: np.log(rows["expected"].to_numpy()) for name, rows in sums.items()}
    comparison = shown.compare("restarting-beta", "uta")
    assert comparison.ratio.mean == pytest.approx(
        np.exp((logs["restarting-beta"] - logs["uta"]).mean()),
    )
    assert "expected round time" in comparison.sentence


@pytest.mark.parametrize(
    ("policies", "options", "message"),
    [
        ("race", {}, "only allocations that sum to the budget"),
        ("uta", {"changes": []}, "name at least one change"),
        ("uta", {"changes": 0}, "change must be a whole number from 1"),
        ("uta", {"changes": [49]}, "nothing changes in switched after 49 rounds"),
        ("uta", {"before": 0}, "before must be"),
        ("uta", {"seeds": 0}, "seeds must be"),
        ("utah", {}, "utah"),
    ],
)
def test_what_cannot_be_tracked_is_refused(tmp_path, policies, options, message):
    with pytest.raises(ValueError, match=message):
        bench.track(policies, SWITCHED, **{**SMALL, **options}, out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_same_call_goes_on_with_more_policies_and_another_one_is_refused(tmp_path):
    out = tmp_path / "out"
    first = bench.track("uta", SWITCHED, out=out, **SMALL)
    before = {path: path.stat().st_mtime_ns for path in out.glob("results/*")}
    both = bench.track("uta,dynamic-ofta", SWITCHED, out=out, **SMALL)
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    assert both.records.filter(policy="uta").equals(first.records)
    with pytest.raises(ValueError, match="another configuration: after is 30 there and 20 here"):
        bench.track("uta", SWITCHED, out=out, **{**SMALL, "after": 20})


def test_a_note_whose_fields_hold_something_else_is_refused_by_file_and_field(tmp_path):
    out = tmp_path / "out"
    bench.track("uta", SWITCHED, out=out, **SMALL)
    (out / "ata-gym.sha256").unlink()
    path = out / "about.json"

    def read_and_draw() -> None:
        bench.read(out).plot("change")

    free = refused_by_field(path, read_and_draw)
    # other sizes are as good where nothing else contradicts them
    assert not {"order", "order[0]", "order[3]", "changes", "changes[0]", "workers"} & free
    note = json.loads(path.read_text())
    for order in ([0, 1, 2], [0, 1, 2, 2], [1, 2, 3, 4]):
        path.write_text(json.dumps({**note, "order": order}))
        with pytest.raises(ValueError, match="order must name each of the 4 workers once"):
            bench.read(out)
    path.write_text(json.dumps({**note, "changes": [100, 50]}))
    with pytest.raises(ValueError, match="changes must rise from 1 to below 110"):
        bench.read(out)
    assert Tracking.name == note["study"]
