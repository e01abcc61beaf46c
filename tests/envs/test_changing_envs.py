"""Envs whose pool changes: rows, batches, checkpoints and ids agree; and a pool without changes gives what it did."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import ata_gym  # noqa: F401 - registers the ids
from ata_gym.changes import (
    Change,
    Correlated,
    Crash,
    Jump,
    Load,
    OnOff,
    Outliers,
    Periodic,
    Spot,
    Switch,
    Walk,
)
from ata_gym.pools import deterministic, exponential, gamma, log_normal, pareto, trace

IDS = {"ata_gym/TaskAllocation-v0": 1, "ata_gym/TaskRace-v0": 1, "ata_gym/TaskDispatch-v0": 4}
"""Each id's steps in a round of budget 4."""
POOL = exponential([1.0, 2.0], shift=[0.5, 0.0]) + gamma(2.5, 0.7) + trace([[1.0, 5.0, 2.0]]) + deterministic([3.0])
GENTLE: list[Change] = [
    Switch(every=2),
    Jump(at=1, workers=(0, 3), factor=0.1),
    Periodic(7, 0.5),
    Walk(0.3, 0.5),
    OnOff(5, 0.2, 0.4),
    Correlated(0.6, 0.8),
    Outliers(0.05, 10, 30),
    Load(0.5, 0.3, 0.2, 0.9),
]
FAULTY = [*GENTLE, Spot(0.2, 0.5, deadline=3), Crash(0.2, within=2, away=2, deadline=1)]
OPTIONS = {"pool": POOL, "changes": [*FAULTY], "budget": 4, "horizon": 4, "price": 0.25, "signals": True}
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


def same(a: Any, b: Any) -> bool:
    return a.keys() == b.keys() and all(np.asarray(a[name]).tobytes() == np.asarray(b[name]).tobytes() for name in b)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("mode", MODES)
def test_a_row_equals_a_single_env_in_any_batch(env_id: str, mode: AutoresetMode) -> None:
    rows = 3
    vector = gym.make_vec(env_id, num_envs=rows, autoreset_mode=mode, **OPTIONS)
    singles = [gym.make(env_id, **OPTIONS) for _ in range(rows)]
    vector.action_space.seed(1)
    observation, _ = vector.reset(seed=7)
    for e, single in enumerate(singles):
        assert same({name: field[e] for name, field in observation.items()}, single.reset(seed=7 + e)[0])
    lost = 0
    for _ in range(3):  # episodes
        for _ in range(4 * IDS[env_id]):
            means, conditions = vector.unwrapped.means(), vector.unwrapped.conditions()
            action = vector.action_space.sample()
            observation, reward, _, truncated, info = vector.step(action)
            for e, single in enumerate(singles):
                bare: Any = single.unwrapped
                assert bare.means().tobytes() == means[e].tobytes()
                for own, part in zip(bare.conditions(), conditions, strict=True):
                    assert np.array_equal(own, part[e] if isinstance(part, np.ndarray) else part)
                seen, own_reward, _, own_truncated, own_info = single.step(action[e])
                assert (own_reward, own_truncated) == (reward[e], truncated[e])
                ended = own_truncated and mode is AutoresetMode.SAME_STEP
                assert same(info["final_obs"][e] if ended else {n: v[e] for n, v in observation.items()}, seen)
                for name, value in own_info.items():
                    assert (info["final_info"] if ended else info)[name][e] == value
                lost += own_info["lost"]
                if own_truncated:
                    blank = single.reset()[0]
                    if ended:
                        assert same({n: v[e] for n, v in observation.items()}, blank)
        if mode is AutoresetMode.NEXT_STEP:
            observation, _, _, _, info = vector.step(vector.action_space.sample())
            assert not info["_lost"].any()
    assert lost > 0
    assert truncated.all()


@pytest.mark.parametrize("env_id", IDS)
def test_the_native_vector_env_is_gymnasiums_own(env_id: str) -> None:
    native, sync = (
        gym.make_vec(env_id, num_envs=3, vectorization_mode=mode, **OPTIONS) for mode in ("vector_entry_point", "sync")
    )
    native.action_space.seed(5)
    assert same(native.reset(seed=11)[0], sync.reset(seed=11)[0])
    for _ in range(11 * IDS[env_id]):
        action = native.action_space.sample()
        one, other = native.step(action), sync.step(action)
        assert same(one[0], other[0])
        for mine, theirs in zip(one[1:4], other[1:4], strict=True):
            assert np.array_equal(mine, theirs)
        assert same(
            {name: one[4][name] for name in other[4]}, other[4]
        )  # where all rows are reset, Gymnasium's is empty


def test_rows_that_end_at_different_times_begin_anew_alone() -> None:
    """By task, rows that use a trace unevenly end apart; the conditions of a row are those of its own round."""
    pool = trace([[1.0] * 9, [2.0] * 9], end="truncate")
    changes = [Walk(0.3, 0.5), Periodic(5, 0.5), Switch(every=2)]
    for mode in MODES:
        options: dict[str, Any] = {"pool": pool, "changes": changes, "budget": 3}
        vector = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=2, autoreset_mode=mode, **options)
        singles = [gym.make("ata_gym/TaskAllocation-v0", **options) for _ in range(2)]
        vector.reset(seed=0)
        for e, single in enumerate(singles):
            single.reset(seed=e)
        actions, restarting = np.array([[3, 0], [2, 1]]), np.zeros(2, bool)
        for _ in range(20):
            truncated, info = vector.step(actions)[3:]
            for e, single in enumerate(singles):
                if restarting[e]:
                    single.reset()
                    continue
                own = single.step(actions[e])
                ended = own[3] and mode is AutoresetMode.SAME_STEP
                assert (info["final_info"] if ended else info)["round_time"][e] == own[4]["round_time"]
                if ended:
                    single.reset()
            restarting = truncated & (mode is AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize("env_id", IDS)
def test_a_checkpoint_goes_on_bit_for_bit(env_id: str) -> None:
    env, later = (gym.make_vec(env_id, num_envs=2, **OPTIONS) for _ in range(2))
    env.reset(seed=4)
    env.action_space.seed(2)
    for steps in range(6 * IDS[env_id]):
        saved = pickle.loads(pickle.dumps(env.unwrapped.checkpoint()))
        if steps % 3:
            later.reset(seed=9)
        later.unwrapped.restore(saved)
        assert later.unwrapped.means().tobytes() == env.unwrapped.means().tobytes()
        action = env.action_space.sample()
        expected, seen = env.step(action), later.step(action)
        assert same(seen[0], expected[0])
        assert seen[1].tobytes() == expected[1].tobytes()
        assert same(seen[4], expected[4])


def test_an_allocation_its_race_and_its_rule_of_dispatch_agree() -> None:
    options = {"num_envs": 3, "pool": POOL, "changes": [*GENTLE], "budget": 4, "horizon": 5}
    plain, race, results = (gym.make_vec(env_id, **options) for env_id in IDS)
    plain.action_space.seed(0)
    for env in (plain, race):
        env.reset(seed=2)
    observation, _ = results.reset(seed=2)
    for _ in range(5):
        allocation = plain.action_space.sample()
        expected, _, _, _, whole = plain.step(allocation)
        assert same(race.step(allocation)[0], expected)
        time, worker = np.empty((3, 4)), np.empty((3, 4), np.int64)
        for b in range(4):
            observation, _, _, _, info = results.step((observation["started"] < allocation).astype(np.int8))
            worker[:, b], time[:, b] = observation["worker"][:, 0], observation["duration"][:, 0]
        order = np.argsort(worker, axis=1, kind="stable")
        assert np.take_along_axis(time, order, 1).tobytes() == expected["duration"].tobytes()
        for name in ("round_time", "worker_time", "runtime", "total_worker_time"):
            assert info[name].tobytes() == whole[name].tobytes(), name
        assert results.unwrapped.means().tobytes() == plain.unwrapped.means().tobytes()
        assert "lost" not in whole


def test_all_policies_meet_the_same_conditions() -> None:
    envs = [gym.make_vec("ata_gym/TaskRace-v0", num_envs=2, **OPTIONS) for _ in range(2)]
    for seed, env in enumerate(envs):
        env.reset(seed=3)
        env.action_space.seed(seed)
    for _ in range(9):
        first, second = (env.unwrapped.conditions() for env in envs)
        for a, b in zip(first[:5], second[:5], strict=True):
            assert a.tobytes() == b.tobytes()
        for env in envs:
            env.step(env.action_space.sample())


def test_conditions_are_those_of_the_episode_and_the_seed() -> None:
    env: Any = gym.make("ata_gym/TaskAllocation-v0", **OPTIONS).unwrapped
    first = [(env.reset(seed=seed), env.means().tolist())[1] for seed in (1, None, 2, 1)]
    assert first[0] == first[3]
    assert len({tuple(means) for means in first}) == 3


@pytest.mark.parametrize("env_id", IDS)
def test_signals(env_id: str) -> None:
    env: Any = gym.make(env_id, **OPTIONS).unwrapped
    check_env(env, skip_render_check=True)
    assert env.observation_space["signal"].shape == (5, 2)
    observation, _ = env.reset(seed=0)
    for _ in range(12):
        assert observation["signal"].tobytes() == env.conditions().signal.tobytes()
        observation["signal"][:] = 7  # it is the user's own
        observation, *_, truncated, _ = env.step(env.action_space.sample())
        if truncated:
            break
    blind = gym.make(env_id, **{**OPTIONS, "signals": False})
    assert "signal" not in blind.reset(seed=0)[0]
    plain = gym.make(env_id, pool=POOL, budget=4, signals=True)
    assert not plain.reset(seed=0)[0]["signal"].any()
    with pytest.raises(ValueError, match="signals must be True or False, not 'cpu'"):
        gym.make(env_id, pool=POOL, budget=4, signals="cpu")


def test_spec_survives_json() -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=OPTIONS["pool"].to_data(), budget=4)  # type: ignore[attr-defined]
    assert env.spec is not None
    twin = gym.make(EnvSpec.from_json(env.spec.to_json()))
    for one in (env, twin):
        one.reset(seed=1)
    assert same(twin.step(np.array([0, 1, 1, 1, 1]))[0], env.step(np.array([0, 1, 1, 1, 1]))[0])
    assert twin.unwrapped.pool == OPTIONS["pool"]  # type: ignore[attr-defined]


BEFORE = {
    "ata_gym/TaskAllocation-v0": [
        [5.637789362062856, 3.5827595866512847, 3.345019719778647],
        [72.96623691581696, 68.99120995980743, 88.11015124329087],
        [0.5514107811677665, 1.2494792995099062, 2.151079879249259],
    ],
    "ata_gym/TaskRace-v0": [
        [1.4730231916324938, 1.7144246816142965, 1.5794739520556507],
        [79.88270672244377, 73.86677965904899, 102.74632140854865],
        [1.0, 0.6389081228387945, 0.9759632962688626],
    ],
    "ata_gym/TaskDispatch-v0": [
        [1.268231628267012, 1.2378041457582611, 4.658913930634846],
        [23.681397139179964, 18.11020919778974, 24.99647088655656],
        [1.0507043710906003, 1.2378041457582611, 2.6828325970184683],
    ],
}
"""Round time, total worker time and last time of three rows, computed when pools could not change."""


@pytest.mark.parametrize("env_id", IDS)
def test_a_pool_without_changes_gives_what_it_did(env_id: str) -> None:
    pool = (
        exponential([1.0, 2.0]) + gamma(2.5, 0.7) + log_normal(0.1, 0.8) + pareto(3.0, 1.0) + trace([[1.0, 5.0, 2.0]])
    )
    env = gym.make_vec(env_id, num_envs=3, pool=pool, budget=4, price=0.25)
    env.action_space.seed(3)
    env.reset(seed=5)
    for _ in range(12):
        observation, *_, info = env.step(env.action_space.sample())
    seen = [info["round_time"], info["total_worker_time"], observation["duration"][:, -1]]
    np.testing.assert_allclose(seen, BEFORE[env_id], rtol=1e-14)
    assert not any(name.startswith("change") for name in env.unwrapped.checkpoint())  # type: ignore[attr-defined]
