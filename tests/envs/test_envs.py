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

from ata_gym.changes import Change, Correlated, Crash, Jump, Load, OnOff, Outliers, Periodic, Spot, Switch, Walk
from ata_gym.pools import deterministic, exponential, gamma, trace

IDS = ["ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0"]
STEPS = {IDS[0]: 1, IDS[1]: 1, "ata_gym/TaskDispatch-v0": 4}
"""Each id's steps in a round of budget 4."""
POOL = {"family": ["exponential", "gamma", "log-normal"], "shift": [1.0, 0.0, 0.5], "shape": [1.0, 3.0, 0.7]}
CHANGING = exponential([1.0, 2.0], shift=[0.5, 0.0]) + gamma(2.5, 0.7) + trace([[1.0, 5.0, 2.0]]) + deterministic([3.0])
CHANGES: list[Change] = [
    Switch(every=2),
    Jump(at=1, workers=(0, 3), factor=0.1),
    Periodic(7, 0.5),
    Walk(0.3, 0.5),
    OnOff(5, 0.2, 0.4),
    Correlated(0.6, 0.8),
    Outliers(0.05, 10, 30),
    Load(0.5, 0.3, 0.2, 0.9),
    Spot(0.2, 0.5, deadline=3),
    Crash(0.2, within=2, away=2, deadline=1),
]
WORLDS: dict[str, dict[str, Any]] = {
    "still": {"pool": POOL, "budget": 4},
    "changing": {"pool": CHANGING, "changes": CHANGES, "budget": 4, "signals": True},
}
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


def same(a: Any, b: Any) -> bool:
    return a.keys() >= b.keys() and all(np.asarray(a[name]).tobytes() == np.asarray(b[name]).tobytes() for name in b)


@pytest.mark.parametrize("env_id", STEPS)
@pytest.mark.parametrize("options", [{"pool": POOL, "budget": 4, "horizon": 5}, {"scenario": "icml2025-cifar100"}])
def test_gymnasiums_checker(env_id: str, options: dict[str, Any]) -> None:
    check_env(gym.make(env_id, **options).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("env_id", STEPS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("world", WORLDS)
@settings(max_examples=12)
@given(seed=st.integers(0, 2**40), rows=st.integers(1, 4), horizon=st.integers(1, 4), price=st.sampled_from([0.0, 0.3]))
def test_a_row_equals_a_single_env_over_three_episodes(
    env_id: str, mode: AutoresetMode, world: str, seed: int, rows: int, horizon: int, price: float
) -> None:
    options = {**WORLDS[world], "horizon": horizon, "price": price}
    vector = gym.make_vec(env_id, num_envs=rows, autoreset_mode=mode, **options)
    singles = [gym.make(env_id, **options) for _ in range(rows)]
    vector.action_space.seed(seed)
    observation, _ = vector.reset(seed=seed)
    for e, single in enumerate(singles):
        assert same({k: v[e] for k, v in observation.items()}, single.reset(seed=seed + e)[0])
    steps = horizon * STEPS[env_id]
    for _ in range(3):
        for k in range(steps):
            means, conditions = vector.unwrapped.means(), vector.unwrapped.conditions()  # type: ignore[attr-defined]
            actions = vector.action_space.sample()
            observation, reward, terminated, truncated, info = vector.step(actions)
            for e, single in enumerate(singles):
                bare: Any = single.unwrapped
                assert bare.means().tobytes() == means[e].tobytes()
                for here, part in zip(bare.conditions(), conditions, strict=True):
                    assert np.array_equal(here, part[e] if isinstance(part, np.ndarray) else part)
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
            assert not any(field.any() for name, field in info.items() if name.startswith("_"))
            assert (observation["worker"] == -1).all()


@pytest.mark.parametrize("env_id", STEPS)
@pytest.mark.parametrize("world", WORLDS)
def test_gymnasiums_own_vector_envs_give_the_same(env_id: str, world: str) -> None:
    options = {**WORLDS[world], "horizon": 3}
    kinds = ["sync", "async", "vector_entry_point"]
    envs = [gym.make_vec(env_id, num_envs=3, vectorization_mode=kind, **options) for kind in kinds]
    envs[0].action_space.seed(1)
    lost = 0
    try:
        firsts = [env.reset(seed=11)[0] for env in envs]
        assert same(firsts[0], firsts[2])
        for _ in range(11 * STEPS[env_id]):
            actions = envs[0].action_space.sample()
            sync, process, native = (env.step(actions) for env in envs)
            for other in (process, native):
                assert same(sync[0], other[0])
                for a, b in zip(sync[1:4], other[1:4], strict=True):
                    assert a.tolist() == b.tolist()
            assert same(native[4], sync[4])  # where all rows are reset, Gymnasium's is empty
            lost += native[4].get("lost", np.zeros(3)).sum()
    finally:
        for env in envs:
            env.close()
    assert (lost > 0) == (world == "changing")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("changes", [(), (Walk(0.3, 0.5), Periodic(5, 0.5), Switch(every=2))])
def test_rows_that_end_at_different_times_begin_anew_alone(mode: AutoresetMode, changes: tuple[Change, ...]) -> None:
    """By task, a row ends when any worker might run out: rows that use the trace unevenly end apart."""
    options: dict[str, Any] = {"pool": trace([[1.0] * 9, [2.0] * 9], end="truncate"), "budget": 3, "changes": changes}
    vector = gym.make_vec(IDS[0], num_envs=2, autoreset_mode=mode, **options)
    singles = [gym.make(IDS[0], **options) for _ in range(2)]
    vector.reset(seed=0)
    for e, single in enumerate(singles):
        single.reset(seed=e)
    actions, restarting, ended = np.array([[3, 0], [2, 1]]), np.zeros(2, bool), []
    for _ in range(20):
        truncated, info = vector.step(actions)[3:]
        ended.append(truncated.tolist())
        for e, single in enumerate(singles):
            if restarting[e]:
                single.reset()
                continue
            own = single.step(actions[e])
            final = own[3] and mode is AutoresetMode.SAME_STEP
            assert (info["final_info"] if final else info)["round_time"][e] == own[4]["round_time"]
            if final:
                single.reset()
        restarting = truncated & (mode is AutoresetMode.NEXT_STEP)
    assert ended[:3] == [[False, False], [False, False], [True, False]]
    assert ended[3] == [False, True] if mode is AutoresetMode.NEXT_STEP else ended[3][1]


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


@pytest.mark.parametrize("env_id", STEPS)
def test_observations_are_the_users_own_and_inside_their_space(env_id: str) -> None:
    def made() -> tuple[Any, Any]:
        return gym.make(env_id, pool=POOL, budget=3), gym.make_vec(env_id, num_envs=2, pool=POOL, budget=3)

    for env, twin in zip(made(), made(), strict=True):
        observation, expected = env.reset(seed=0)[0], twin.reset(seed=0)[0]
        env.action_space.seed(0)
        for _ in range(9):
            assert observation in env.observation_space
            assert same(observation, expected)
            for field in observation.values():
                field[...] = 7
            action = env.action_space.sample()
            observation, *_, info = env.step(action)
            expected = twin.step(action)[0]
            for value in info.values():
                if isinstance(value, np.ndarray):
                    value[...] = 1
        assert all(np.isfinite(box.low).all() and np.isfinite(box.high).all() for box in env.observation_space.values())


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


@pytest.mark.parametrize("env_id", STEPS)
@pytest.mark.parametrize("pool", [POOL, CHANGING.to_data()], ids=["plain", "data"])
def test_spec_survives_json_and_pickle(env_id: str, pool: Any) -> None:
    env = gym.make(env_id, pool=pool, budget=4, price=0.1)
    env.action_space.seed(0)
    assert env.spec is not None
    for spec in (EnvSpec.from_json(env.spec.to_json()), pickle.loads(pickle.dumps(env.spec))):
        twin: Any = gym.make(spec)
        twin.reset(seed=1)
        env.reset(seed=1)
        action = env.action_space.sample()
        assert same(twin.step(action)[0], env.step(action)[0])
        assert twin.unwrapped.pool == env.unwrapped.pool  # type: ignore[attr-defined]
    assert json.loads(json.dumps(twin.unwrapped.pool.to_data()))


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


BAD_DISPATCHES = [
    (np.ones(2, np.int8), "shape"),
    (np.ones((2, 3), np.int8), "shape"),
    (np.full(3, 0.5), "integer dtype"),
    (np.full(3, np.nan), "integer dtype"),
    (np.full(3, 2), "worker 0.* must have 0 or 1, not 2"),
    (np.arange(3), "worker 2.* must have 0 or 1, not 2"),
    (-np.ones(3, np.int8), "must have 0 or 1, not -1"),
    (np.full(3, 256), "must have 0 or 1, not 256"),
    (None, "."),
    ("111", "."),
]


@pytest.mark.parametrize(
    ("env_id", "action", "message"),
    [(env_id, *bad) for env_id in STEPS for bad in (BAD_ACTIONS if env_id in IDS else BAD_DISPATCHES)],
)
def test_a_bad_action_changes_nothing(env_id: str, action: Any, message: str) -> None:
    options: dict[str, Any] = {"pool": POOL, "budget": 4}
    single: Any = gym.make(env_id, disable_env_checker=True, **options)
    vector: Any = gym.make_vec(env_id, num_envs=1, **options)
    for env, wrong, said in (
        (single, action, message),
        (vector, None if action is None else np.array(action)[None], "."),
    ):
        env.reset(seed=0)
        env.step(env.action_space.sample())
        before = env.unwrapped.checkpoint()
        with pytest.raises(ValueError, match=said):
            env.step(wrong)
        assert same(env.unwrapped.checkpoint(), before)


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


@pytest.mark.parametrize("env_id", STEPS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("world", WORLDS)
def test_a_checkpoint_goes_on_bit_for_bit(env_id: str, mode: AutoresetMode, world: str) -> None:
    """In the middle of a round too; and one that does not fit changes nothing."""
    options = {**WORLDS[world], "horizon": 3, "price": 0.5}
    singles = [gym.make(env_id, **options).unwrapped for _ in range(2)]
    vectors = [gym.make_vec(env_id, num_envs=2, autoreset_mode=mode, **options) for _ in range(2)]
    env: Any
    later: Any
    for env, later in (singles, vectors):
        alone, ended = env is singles[0], False
        env.reset(seed=4)
        env.action_space.seed(2)
        for steps in range(6 * STEPS[env_id]):
            saved = pickle.loads(pickle.dumps(env.unwrapped.checkpoint()))
            if steps % 3:
                later.reset(seed=9)
                later.step(later.action_space.sample())
            later.unwrapped.restore(saved)
            action = env.action_space.sample()
            if ended and alone:
                for one in (later, env):
                    with pytest.raises(ValueError, match="call reset"):
                        one.step(action)
                assert same(later.reset()[0], env.reset()[0])
            assert later.unwrapped.means().tobytes() == env.unwrapped.means().tobytes()
            expected, seen = env.step(action), later.step(action)
            assert same(seen[0], expected[0])
            assert all(np.array_equal(a, b) for a, b in zip(seen[1:4], expected[1:4], strict=True))
            infos = [{name: v for name, v in info.items() if "final" not in name} for info in (seen[4], expected[4])]
            assert same(*infos)
            ended = bool(np.all(expected[3]))
        before = env.unwrapped.checkpoint()
        for name in ("round", "over", *(["finish"] if "Dispatch" in env_id else [])):
            fewer = {key: field for key, field in before.items() if key != name}
            for broken in ({**before, "runtime": 7 + before["runtime"], name: np.zeros(5)}, fewer):
                with pytest.raises(ValueError, match=f"does not fit the env: '{name}' must hold"):
                    env.unwrapped.restore(broken)
        assert same(env.unwrapped.checkpoint(), before)


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
