"""Latency: what a worker pays in a round before its first task, in the three ids."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats

from ata_gym.changes import Congestion, Redraw, Switch
from ata_gym.pools import (
    Pool,
    PoolDistribution,
    deterministic,
    exponential,
    log_normal,
    pareto,
    trace,
)
from ata_gym.scenarios import Scenario, scenario
from tests.envs.playing import ALLOCATION, DISPATCH, IDS, RACE

POOL = deterministic([1.0, 2.0, 4.0])


def played(env_id: str, action: Any, steps: int = 1, seed: int = 0, **options: Any) -> Any:
    env = gym.make(env_id, **{"pool": POOL, "budget": 3, **options})
    env.reset(seed=seed)
    for _ in range(steps):
        observation, reward, *_, info = env.step(np.array(action))
    return observation, reward, info


def test_a_share_takes_its_latency_and_its_task_times() -> None:
    observation, reward, info = played(ALLOCATION, [2, 1, 0], latency=[10.0, 3.0, 7.0], price=0.1)
    assert observation["latency"].tolist() == [10.0, 3.0, 0.0]
    assert observation["duration"].tolist() == [1.0, 1.0, 2.0]
    assert (info["round_time"], info["worker_time"]) == (12.0, 17.0)
    assert reward == pytest.approx(-12.0 - 0.1 * 17.0)


def test_a_cancelled_worker_has_paid_its_latency() -> None:
    observation, _, info = played(RACE, [3, 3, 3], latency=[0.0, 2.5, 7.0])
    # worker 0 gives results at 1, 2 and 3; worker 1 begins at 2.5, worker 2 would begin at 7
    assert observation["latency"].tolist() == [0.0, 2.5, 3.0]
    assert observation["elapsed"].tolist() == [0.0, 0.5, 0.0]
    assert info["worker_time"] == 9.0


def test_in_dispatch_a_worker_pays_once_in_a_round() -> None:
    options = {"latency": [2.0, 5.0, 0.0]}
    observation, _, info = played(DISPATCH, [1, 0, 0], steps=3, **options)
    assert (info["round_time"], info["worker_time"]) == (5.0, 5.0)
    assert observation["latency"].tolist() == [0.0, 0.0, 0.0]
    # worker 1 begins at 5, when the round ends
    assert played(DISPATCH, [1, 1, 0], steps=3, **options)[0]["latency"].tolist() == [0.0, 5.0, 0.0]
    # the next round begins with a latency again
    assert played(DISPATCH, [1, 0, 0], steps=4, **options)[2]["round_time"] == 3.0
    # a worker within its latency runs, and its age counts from its start
    observation, _, _ = played(DISPATCH, [1, 1, 0], steps=1, **options)
    assert observation["running"].tolist() == [0, 1, 0]
    assert observation["age"].tolist() == [0.0, 3.0, 0.0]
    assert observation["latency"].tolist() == [2.0, 0.0, 0.0]


def test_latencies_have_their_distribution_and_noise_of_their_own() -> None:
    pool = exponential([1.0, 1.0])
    latency = log_normal(np.log([5.0, 20.0]), 0.5)
    without, with_latency = (
        _first_round(ALLOCATION, 2_000, pool=pool, **options)
        for options in ({}, {"latency": latency})
    )
    paid = with_latency["latency"]
    for i, scale in enumerate(latency.distributions.scale):
        assert stats.kstest(paid[:, i] / scale, latency.standard(i).cdf).pvalue > 1e-3
    # the task times are those without a latency; two workers, and tasks, have noise of their own
    assert (without["duration"] == with_latency["duration"]).all()
    assert abs(np.corrcoef(np.log(paid).T)[0, 1]) < 0.08
    assert abs(np.corrcoef(paid[:, 0], with_latency["duration"][:, 0])[0, 1]) < 0.08


def test_the_latency_of_a_round_is_the_same_for_every_action() -> None:
    options = {"pool": exponential([1.0, 2.0]), "budget": 2, "latency": exponential([3.0, 1.0])}
    paid = []
    for actions in ([[2, 0], [1, 1]], [[1, 1], [1, 1]]):
        env = gym.make(ALLOCATION, **options)
        env.reset(seed=5)
        observations = [env.step(np.array(action))[0] for action in actions]
        paid.append([observation["latency"] for observation in observations])
    assert paid[0][0][0] == paid[1][0][0] > 0.0
    assert paid[0][1].tolist() == paid[1][1].tolist()


def test_recorded_latencies_are_replayed_by_round() -> None:
    pool = trace([[1.0], [2.0]], latency=trace([[5.0, 6.0], [7.0]]))
    env = gym.make(ALLOCATION, pool=pool, budget=2)
    env.reset(seed=0)
    paid = [env.step(np.array([1, 1]))[0]["latency"].tolist() for _ in range(3)]
    assert paid == [[5.0, 7.0], [6.0, 7.0], [5.0, 7.0]]
    assert env.unwrapped.conditions().mean_latency(pool).tolist() == [6.0, 7.0]


def test_congestion_makes_the_latencies_of_a_rack_longer_together() -> None:
    changes = [Congestion(10.0, starts=0.5, ends=0.5, rack=2)]
    pool = deterministic(np.ones(4)).with_latency([1.0, 1.0, 1.0, 2.0])
    env = gym.make_vec(ALLOCATION, num_envs=400, pool=pool, budget=4, changes=changes)
    env.reset(seed=0)
    conditions = env.unwrapped.conditions()
    paid = env.step(np.ones((400, 4), np.int64))[0]["latency"]
    assert set(np.unique(paid / [1.0, 1.0, 1.0, 2.0])) == {1.0, 10.0}
    assert (paid[:, 0] == paid[:, 1]).all()
    assert (2.0 * paid[:, 2] == paid[:, 3]).all()
    assert 0.2 < (paid[:, 0] == paid[:, 2]).mean() < 0.8
    np.testing.assert_array_equal(conditions.mean_latency(pool), paid)
    assert conditions.row(0).pool(pool).latency.mean().tolist() == paid[0].tolist()


def test_a_latency_goes_with_the_distribution_of_its_worker() -> None:
    pool = deterministic([1.0, 2.0]).with_latency([0.0, 5.0])
    changes = [Switch(at=(1,), permutation=(1, 0))]
    observation, _, _ = played(ALLOCATION, [1, 1], steps=2, pool=pool, budget=2, changes=changes)
    assert observation["duration"].tolist() == [2.0, 1.0]
    assert observation["latency"].tolist() == [5.0, 0.0]


def test_worker_time_counts_latency_at_the_costs_of_the_workers() -> None:
    options = {"latency": [10.0, 3.0, 7.0], "unit_costs": [1.0, 100.0, 5.0]}
    assert played(ALLOCATION, [2, 1, 0], **options)[2]["worker_time"] == 12.0 + 500.0


def test_without_a_latency_there_is_no_key() -> None:
    for env_id in IDS:
        assert "latency" not in gym.make(env_id).observation_space.spaces  # type: ignore[attr-defined]


@pytest.mark.parametrize("env_id", IDS)
def test_an_env_with_a_latency_is_made_again_from_its_spec(env_id: str) -> None:
    env = gym.make(env_id, scenario="five-workers", latency=exponential(np.ones(5)))
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.unwrapped.pool == env.unwrapped.pool  # type: ignore[attr-defined]
    assert again.unwrapped.pool.latency is not None  # type: ignore[attr-defined]
    assert again.observation_space == env.observation_space


@pytest.mark.parametrize(
    ("latency", "sentence"),
    [
        (-1.0, "must be at least 0"),
        ([1.0, -0.5, 2.0], "must be at least 0"),
        (np.nan, "must be finite"),
        (np.inf, "must be finite"),
        ([1.0, 2.0], "one per worker: 3, and it has 2"),
        (exponential([1.0, 2.0]), "one per worker: 3, and it has 2"),
        (pareto(np.full(3, 0.5), np.ones(3)), "finite mean"),
        (POOL.with_latency(1.0), "has a latency itself"),
        ("slow", "must be a number"),
        ({"scale": [1.0, 2.0, 3.0]}, "hold family"),
        (trace([[1.0], [2.0], [3.0]], end="truncate"), "start over"),
    ],
)
def test_bad_latencies_are_refused(latency: Any, sentence: str) -> None:
    for make in (
        POOL.with_latency,
        lambda bad: gym.make(ALLOCATION, pool=POOL, budget=3, latency=bad),
    ):
        with pytest.raises(ValueError, match=sentence):
            make(latency)


def test_what_has_its_latency_inside_is_refused() -> None:
    recorded = trace([[1.0, 2.0], [3.0]])
    for make in (
        recorded.with_latency,
        lambda x: gym.make(RACE, pool=recorded, budget=2, latency=x),
    ):
        with pytest.raises(ValueError, match="recorded times of worker 0 hold the latency"):
            make(1.0)
    with pytest.raises(ValueError, match="drawn anew pay no latency"):
        gym.make(ALLOCATION, pool=PoolDistribution(3), budget=2, latency=1.0)
    drawn = Redraw(PoolDistribution(3))
    with pytest.raises(ValueError, match="drawn anew pay no latency"):
        Scenario(POOL.with_latency(1.0), budget=3, changes=(drawn,))
    with pytest.raises(ValueError, match="these workers pay none"):
        Scenario(POOL, budget=3, changes=(Congestion(2.0, 0.1, 0.1),))


def test_a_pool_with_a_latency_is_data_and_joins() -> None:
    part = POOL.with_latency(exponential([1.0, 2.0, 3.0]))
    joined = part + exponential([9.0])
    assert joined.latency is not None
    assert joined.latency.mean().tolist() == [1.0, 2.0, 3.0, 0.0]
    for pool in (part, joined):
        again = Pool.from_data(pool.to_data())
        assert (again, hash(again)) == (pool, hash(pool))
        assert "mean latencies" in repr(pool)
    assert part != POOL
    assert part.with_latency(None) == POOL
    assert scenario("five-workers").pool.latency is None


def _first_round(env_id: str, rows: int, **options: Any) -> Any:
    env = gym.make_vec(env_id, num_envs=rows, budget=2, **options)
    env.reset(seed=3)
    return env.step(np.ones((rows, 2), np.int64))[0]
