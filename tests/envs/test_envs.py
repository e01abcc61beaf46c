"""The envs: contracts, and row e of the vector env against the single env."""

from __future__ import annotations

import json
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym.pools import trace

IDS = ["ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0"]
STEPS = {IDS[0]: 1, IDS[1]: 1, "ata_gym/TaskDispatch-v0": 4}
"""Each id's steps in a round of budget 4."""
POOL = {"family": ["exponential", "gamma", "log-normal"], "shift": [1.0, 0.0, 0.5], "shape": [1.0, 3.0, 0.7]}
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


def same(a: Any, b: Any) -> bool:
    return all(np.asarray(a[name]).tobytes() == np.asarray(b[name]).tobytes() for name in b)


@pytest.mark.parametrize("env_id", STEPS)
@pytest.mark.parametrize("options", [{"pool": POOL, "budget": 4, "horizon": 5}, {"scenario": "icml2025-cifar100"}])
def test_gymnasiums_checker(env_id: str, options: dict[str, Any]) -> None:
    check_env(gym.make(env_id, **options).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("env_id", STEPS)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**40), rows=st.integers(1, 4), horizon=st.integers(1, 4), price=st.sampled_from([0.0, 0.3]))
def test_a_row_equals_a_single_env_over_three_episodes(
    env_id: str, mode: AutoresetMode, seed: int, rows: int, horizon: int, price: float
) -> None:
    options = {"pool": POOL, "budget": 4, "horizon": horizon, "price": price}
    vector = gym.make_vec(env_id, num_envs=rows, autoreset_mode=mode, **options)
    singles = [gym.make(env_id, **options) for _ in range(rows)]
    vector.action_space.seed(seed)
    observation, _ = vector.reset(seed=seed)
    for e, single in enumerate(singles):
        assert same({k: v[e] for k, v in observation.items()}, single.reset(seed=seed + e)[0])
    steps = horizon * STEPS[env_id]
    for _ in range(3):
        for k in range(steps):
            actions = vector.action_space.sample()
            observation, reward, terminated, truncated, info = vector.step(actions)
            for e, single in enumerate(singles):
                own, own_reward, own_terminated, own_truncated, own_info = single.step(actions[e])
                assert (own_terminated, own_truncated) == (terminated[e], truncated[e])
                assert own_reward == reward[e]
                ended = own_truncated and mode is AutoresetMode.SAME_STEP
                values = info["final_info"] if ended else info
                for name, value in own_info.items():
                    assert values[name][e] == value
                    assert values[f"_{name}"][e]
                assert same(info["final_obs"][e] if ended else {n: v[e] for n, v in observation.items()}, own)
                if own_truncated:
                    assert k == steps - 1
                    blank = single.reset()[0]
                    if ended:
                        assert same({n: v[e] for n, v in observation.items()}, blank)
        if mode is AutoresetMode.NEXT_STEP:  # one step whose action is ignored, even a bad one
            bad = vector.action_space.sample()
            bad[:] = -1
            observation, reward, _, truncated, info = vector.step(bad)
            assert not truncated.any()
            assert not reward.any()
            assert not info["_runtime"].any()
            assert (observation["worker"] == -1).all()


@pytest.mark.parametrize("env_id", STEPS)
def test_gymnasiums_own_vector_envs_give_the_same(env_id: str) -> None:
    options = {"pool": POOL, "budget": 4, "horizon": 3}
    kinds = ["sync", "async", "vector_entry_point"]
    envs = [gym.make_vec(env_id, num_envs=3, vectorization_mode=kind, **options) for kind in kinds]
    envs[0].action_space.seed(1)
    try:
        firsts = [env.reset(seed=11)[0] for env in envs]
        assert same(firsts[0], firsts[2])
        for _ in range(8 * STEPS[env_id]):
            actions = envs[0].action_space.sample()
            sync, process, native = (env.step(actions) for env in envs)
            for other in (process, native):
                assert same(sync[0], other[0])
                for a, b in zip(sync[1:4], other[1:4], strict=True):
                    assert a.tolist() == b.tolist()
    finally:
        for env in envs:
            env.close()


def test_rows_that_end_at_different_times() -> None:
    """By task, a row ends when any worker might run out: rows that use the trace unevenly end apart."""
    options = {"pool": trace([[1.0] * 9, [2.0] * 9], end="truncate"), "budget": 3}
    for mode in MODES:
        vector = gym.make_vec(IDS[0], num_envs=2, autoreset_mode=mode, **options)
        vector.reset(seed=0)
        actions = np.array([[3, 0], [2, 1]])
        ended = np.array([vector.step(actions)[3] for _ in range(4)])
        assert ended[:3].tolist() == [[False, False], [False, False], [True, False]], mode
        assert ended[3].tolist() == [False, True] if mode is AutoresetMode.NEXT_STEP else ended[3, 1]


def test_a_trace_by_round_ends_after_its_last_round() -> None:
    env = gym.make(IDS[0], pool=trace([[1.0, 2.0], [3.0, 4.0]], replay="round", end="truncate"), budget=3)
    env.reset(seed=0)
    observation, *_, truncated, _ = env.step(np.array([2, 1]))
    assert observation["duration"].tolist() == [1.0, 1.0, 3.0]
    assert not truncated
    observation, *_, truncated, _ = env.step(np.array([0, 3]))
    assert observation["duration"].tolist() == [4.0] * 3
    assert truncated
    assert env.reset()[0]["worker"].tolist() == [-1, -1, -1]
    assert env.step(np.array([3, 0]))[0]["duration"].tolist() == [1.0] * 3


def test_reward_info_and_price() -> None:
    env = gym.make(IDS[0], pool=POOL, budget=5, price=0.25)
    env.reset(seed=3)
    runtime = worker_time = 0.0
    for _ in range(4):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert type(reward) is float
        assert type(terminated) is bool
        assert type(truncated) is bool
        assert reward == -(info["round_time"] + 0.25 * info["worker_time"])
        runtime += info["round_time"]
        worker_time += info["worker_time"]
        assert (info["runtime"], info["total_worker_time"]) == (runtime, worker_time)


def test_observations_are_fresh_and_inside_their_space() -> None:
    env = gym.make(IDS[1], pool=POOL, budget=3)
    seen = [env.reset(seed=0)[0]]
    for _ in range(3):
        seen.append(env.step(np.array([3, 3, 3]))[0])
        assert seen[-1] in env.observation_space
    copies = pickle.loads(pickle.dumps(seen))
    seen[-1]["duration"][:] = -1.0
    env.step(np.array([3, 3, 3]))
    assert all(same(a, b) for a, b in zip(seen[:-1], copies[:-1], strict=True))
    bounds = [env.observation_space[name] for name in seen[0]]
    assert all(np.isfinite(box.low).all() and np.isfinite(box.high).all() for box in bounds)


def test_seeds() -> None:
    env = gym.make(IDS[0], pool=POOL, budget=3)
    action = np.array([1, 1, 1])

    def episode(seed: int | None) -> list[float]:
        env.reset(seed=seed)
        return env.step(action)[0]["duration"].tolist()

    first, second = episode(5), episode(None)
    assert first != second
    assert (episode(5), episode(None)) == (first, second)
    assert episode(6) != first
    fresh = [gym.make(IDS[0], pool=POOL, budget=3) for _ in range(2)]
    drawn = [(env.reset(), env.step(action))[1][0]["duration"].tolist() for env in fresh]
    assert drawn[0] != drawn[1]
    assert episode(2**100) == episode(2**100)


def test_vector_seeds() -> None:
    vector = gym.make_vec(IDS[0], num_envs=3, pool=POOL, budget=3)
    actions = np.ones((3, 3), np.int64)

    def episode(seed: Any) -> list[Any]:
        vector.reset(seed=seed)
        return vector.step(actions)[0]["duration"].tolist()

    rows = episode(5)
    assert episode([5, 6, 7]) == rows
    assert episode([5, 6, None])[:2] == rows[:2]
    assert episode(None) != rows
    with pytest.raises(ValueError, match="one for each of 3 rows"):
        vector.reset(seed=[1, 2])


@pytest.mark.parametrize("env_id", IDS)
def test_spec_survives_json_and_pickle(env_id: str) -> None:
    env = gym.make(env_id, pool=POOL, budget=4, price=0.1)
    assert env.spec is not None
    for spec in (EnvSpec.from_json(env.spec.to_json()), pickle.loads(pickle.dumps(env.spec))):
        twin = gym.make(spec)
        twin.reset(seed=1)
        env.reset(seed=1)
        action = np.array([2, 1, 1])
        assert same(twin.step(action)[0], env.step(action)[0])
    assert json.loads(json.dumps(env.unwrapped.pool.to_data()))  # type: ignore[attr-defined]


BAD_ACTIONS = [
    (np.array([1, 1]), "shape"),
    (np.array([[1, 1, 2]]), "shape"),
    (np.array([1.0, 1.0, 2.0]), "integer"),
    (np.array([True, True, True]), "integer"),
    (np.array([-1, 3, 2]), "0 or more"),
    (np.array([1, 1, 1]), "sum"),
    (np.array([5, 0, 0]), "budget"),
    (np.array([2**62, 2**62, 2**62]), "budget"),
    (np.array([2**63, 0, 0], np.uint64), "."),
    (np.array([np.nan, 1, 1]), "integer"),
    (np.array([np.inf, 1, 1]), "integer"),
    (None, "."),
    ("112", "."),
]


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize(("action", "message"), BAD_ACTIONS)
def test_a_bad_action_changes_nothing(env_id: str, action: Any, message: str) -> None:
    env, twin = (gym.make(env_id, pool=POOL, budget=4, disable_env_checker=True) for _ in range(2))
    vector = gym.make_vec(env_id, num_envs=1, pool=POOL, budget=4)
    good = np.array([2, 1, 1])
    for one in (env, twin, vector):
        one.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(action)
    with pytest.raises(ValueError):  # noqa: PT011 - the sentence is the space's own
        vector.step(action if action is None else np.array(action)[None])
    expected = twin.step(good)
    assert same(env.step(good)[0], expected[0])
    assert vector.step(good[None])[1][0] == expected[1]


def test_steps_out_of_turn() -> None:
    action = np.array([1, 1, 1])
    env = gym.make(IDS[0], pool=POOL, budget=3, horizon=1).unwrapped
    with pytest.raises(ValueError, match="call reset"):
        env.step(action)
    with pytest.raises(gym.error.Error, match="Seed"):
        env.reset(seed=-1)
    env.reset(seed=0)
    assert env.step(action)[3]
    with pytest.raises(ValueError, match="call reset"):
        env.step(action)
    vector = gym.make_vec(IDS[0], num_envs=2, pool=POOL, budget=3)
    with pytest.raises(ValueError, match="call reset"):
        vector.step(np.ones((2, 3), np.int64))


@pytest.mark.parametrize("mode", MODES)
def test_a_checkpoint_goes_on_bit_for_bit(mode: AutoresetMode) -> None:
    options = {"pool": POOL, "budget": 4, "horizon": 3, "autoreset_mode": mode}
    env, later = (gym.make_vec(IDS[1], num_envs=2, **options) for _ in range(2))
    env.reset(seed=4)
    actions = np.full((2, 3), 4)
    for steps in range(5):
        saved = {name: field.copy() for name, field in env.unwrapped.checkpoint().items()}
        later.unwrapped.restore(saved)
        expected = env.step(actions)
        assert same(later.step(actions)[0], expected[0]), steps
    with pytest.raises(ValueError, match="does not fit"):
        gym.make_vec(IDS[0], num_envs=3, **options).unwrapped.restore(saved)


@pytest.mark.parametrize("env_id", IDS)
def test_a_single_env_goes_on_bit_for_bit(env_id: str) -> None:
    options = {"pool": POOL, "budget": 4, "horizon": 3}
    bare: Any = gym.make(env_id, **options).unwrapped
    bare.reset(seed=4)
    action = np.array([4, 0, 0])
    for steps in range(8):
        saved = {name: field.copy() for name, field in bare.checkpoint().items()}
        later: Any = gym.make(env_id, **options).unwrapped
        if steps % 2:
            later.reset(seed=9)
        later.restore(saved)
        if steps % 4 == 3:  # the episode is over
            for env in (later, bare):
                with pytest.raises(ValueError, match="call reset"):
                    env.step(action)
            assert same(later.reset()[0], bare.reset()[0])
        else:
            expected, seen = bare.step(action), later.step(action)
            assert same(seen[0], expected[0])
            assert seen[1:] == expected[1:]


def test_a_restored_env_goes_on_with_its_own_next_episode() -> None:
    options = {"pool": POOL, "budget": 4}
    single, vector = gym.make(IDS[0], **options), gym.make_vec(IDS[0], num_envs=2, **options)
    for env, fresh, action in (
        (single, gym.make(IDS[0], **options), np.array([4, 0, 0])),
        (vector, gym.make_vec(IDS[0], num_envs=2, **options), np.array([[4, 0, 0], [0, 4, 0]])),
    ):
        bare: Any = env.unwrapped
        later: Any = fresh.unwrapped
        bare.reset(seed=1)
        later.restore(bare.checkpoint())
        bare.reset()
        later.reset()
        assert same(later.step(action)[0], bare.step(action)[0])


def test_a_checkpoint_that_does_not_fit_changes_nothing() -> None:
    bare: Any = gym.make(IDS[0], pool=POOL, budget=4).unwrapped
    bare.reset(seed=0)
    before = bare.checkpoint()
    broken = {**bare.checkpoint(), "round": np.array([7]), "over": np.zeros(3, np.bool_)}
    with pytest.raises(ValueError, match=r"'over' must be an array of shape \(1,\)"):
        bare.restore(broken)
    assert same(bare.checkpoint(), before)
