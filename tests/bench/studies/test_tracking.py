from contextlib import nullcontext

import numpy as np
import polars as pl
import pytest

from ata_gym import proxy_loss
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report import style
from ata_gym.bench.studies.tracking import report
from ata_gym.bench.studies.tracking.experiment import (
    ORACLES,
    SCHEMA,
    ExpectedTimes,
    TrackedRun,
    Tracking,
    abrupt_changes,
)
from ata_gym.bench.studies.tracking.report import delays, summarise
from ata_gym.changes import Change, Jump, Redraw, Switch, Walk
from ata_gym.pools import PoolDistribution, gamma, trace
from ata_gym.pools.pool import Pool
from ata_gym.scenarios import Scenario
from ata_gym.theory.round_time.expected import expected_round_time
from tests.bench.by_hand import by_hand

MEANS = np.array([1.0, 2.0, 4.0, 8.0])


def experiment(pool: Pool, *changes: Change, rounds: int = 120, seeds: int = 2) -> Experiment:
    return Experiment(
        Scenario(pool, 4, changes=changes, name="test"),
        rounds=rounds,
        seeds=seeds,
        seed=3,
    )


def tracked(before: int = 10, after: int = 40, **kwargs: int) -> Tracking:
    return Tracking.around(
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
    assert (tracking.before, tracking.after, tracking.uneven) == (20, 50, True)
    assert early.windows() == [(0, 50, 60), (50, 100, 110)]
    assert (early.rounds, early.before, early.after, early.uneven) == (110, 50, 10, False)


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
        assert Tracking.around(played, [at], before=5, after=5).changed_at == (at,)


def test_expected_times_of_workers_that_are_drawn_anew_are_those_of_the_draw(play):
    pools = PoolDistribution(3, families=("gamma", "uniform"), cv=(0.3, 0.6))
    drawn = experiment(pools.typical(), Redraw(pools), Switch(every=6), rounds=12)
    tracking = Tracking.around(drawn, before=4, after=4)
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
    tracking = Tracking.around(
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


def test_expected_times_do_not_depend_on_who_has_which_distribution():
    times = ExpectedTimes(gamma(2.0, MEANS), 5)
    order = np.array([2, 0, 3, 1])
    given = np.array([3, 1, 1, 0]), np.arange(4), np.array([1.0, 0.5, 1.0, 3.0])
    one = times(*(each[None] for each in given))
    assert times(*(each[None, order] for each in given)) == one
    assert one == pytest.approx(
        expected_round_time(gamma(2.0, MEANS * given[2]), given[0]),
        rel=0.02,
    )


def test_the_picture_shows_the_workers_of_the_first_seed():
    tracking = tracked(before=5, after=8, rounds=60)
    envs = tracking.make_envs("ata_gym/TaskAllocation-v0", rows=1)
    envs.reset(seed=3)
    assert report.means_before(tracking) == pytest.approx(envs.unwrapped.means()[0])
    values = np.concatenate([np.ones(50), np.full(50, 9.0)])
    # it does not look across the change
    assert report.smooth(values, 50).tolist() == values.tolist()
    assert report.smooth(np.arange(100.0), 50)[49] == np.arange(30, 50).mean()


def test_a_heat_map_keeps_all_tasks():
    tasks = np.random.default_rng(0).multinomial(23, np.full(7, 1 / 7), size=1300).T
    with style.figure(4.0, 3.0) as picture:
        mesh = report._heat(picture.subplots(), np.arange(-300, 1000), tasks, 5)
        edges = np.asarray(mesh.get_coordinates())[0, :, 0]
        assert (edges[0], edges[-1]) == (-300, 1000)
        assert np.asarray(mesh.get_array()).reshape(7, -1) @ np.diff(edges) == pytest.approx(
            tasks.sum(axis=1),
        )
