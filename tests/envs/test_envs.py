"""The contracts of the envs: arguments, ids, rewards, seeds, specs, and steps that are refused and change nothing."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from ata_gym import Scenario
from ata_gym.changes import Correlated, Load, Spot, Switch
from ata_gym.pools import exponential, gamma, log_normal, pareto, trace
from ata_gym.scenarios import AtaConstants, Published
from tests.envs.playing import ALLOCATION, DISPATCH, IDS, RACE, WORLDS, same

POOL = {"family": ["exponential", "gamma", "log-normal"], "shift": [1.0, 0.0, 0.5], "shape": [1.0, 3.0, 0.7]}
RECURSIVE: list[Any] = []
RECURSIVE.append(RECURSIVE)


def test_a_trace_by_round_ends_after_its_last_round() -> None:
    env = gym.make(ALLOCATION, pool=trace([[1.0, 2.0], [3.0, 4.0]], replay="round", end="truncate"), budget=3)
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
    env = gym.make(ALLOCATION, pool=POOL, budget=5, price=0.25)
    env.reset(seed=3)
    runtime = worker_time = 0.0
    for _ in range(4):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert [type(part) for part in (reward, terminated, truncated)] == [float, bool, bool]
        assert reward == -(info["round_time"] + 0.25 * info["worker_time"])
        runtime += info["round_time"]
        worker_time += info["worker_time"]
        assert (info["runtime"], info["total_worker_time"]) == (runtime, worker_time)


@pytest.mark.parametrize("env_id", IDS)
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
    env = gym.make(ALLOCATION, pool=POOL, budget=3)
    action = np.array([1, 1, 1])

    def episode(seed: int | None) -> list[float]:
        env.reset(seed=seed)
        return env.step(action)[0]["duration"].tolist()

    first, second = episode(5), episode(None)
    assert first != second
    assert (episode(5), episode(None)) == (first, second)
    assert episode(6) != first
    fresh = [gym.make(ALLOCATION, pool=POOL, budget=3) for _ in range(2)]
    drawn = [(env.reset(), env.step(action))[1][0]["duration"].tolist() for env in fresh]
    assert drawn[0] != drawn[1]
    assert episode(2**100) == episode(2**100)


@pytest.mark.parametrize("env_id", IDS)
def test_spec_survives_json_and_pickle(env_id: str) -> None:
    for pool in (POOL, WORLDS["changing"].pool.to_data()):
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


BAD_ACTIONS = [
    (np.array([[1, 1, 2]]), "shape"),
    (np.array([1.0, 1.0, 2.0]), "integer"),
    (np.array([-1, 3, 2]), "0 or more"),
    (np.array([5, 0, 0]), "budget"),
    (None, "."),
]
BAD_DISPATCHES = [
    (np.ones(2, np.int8), "shape"),
    (np.full(3, 0.5), "integer dtype"),
    (np.arange(3), "worker 2.* must have 0 or 1, not 2"),
    ("111", "."),
]


@pytest.mark.parametrize("env_id", IDS)
def test_a_bad_action_changes_nothing(env_id: str) -> None:
    options: dict[str, Any] = {"pool": POOL, "budget": 4}
    single: Any = gym.make(env_id, disable_env_checker=True, **options)
    vector: Any = gym.make_vec(env_id, num_envs=1, **options)
    for env in (single, vector):
        env.reset(seed=0)
        env.step(env.action_space.sample())
        before = env.unwrapped.checkpoint()
        for action, message in BAD_DISPATCHES if env_id == DISPATCH else BAD_ACTIONS:
            wrong: Any = action if env is single or action is None else np.array(action)[None]
            with pytest.raises(ValueError, match=message if env is single else "."):
                env.step(wrong)
            assert same(env.unwrapped.checkpoint(), before)


@pytest.mark.parametrize("env_id", IDS)
def test_steps_out_of_turn(env_id: str) -> None:
    action = np.array([1, 1, 1])
    env = gym.make(env_id, pool=POOL, budget=3, horizon=1).unwrapped
    with pytest.raises(ValueError, match="call reset"):
        env.step(action)
    with pytest.raises(gym.error.Error, match="Seed"):
        env.reset(seed=-1)
    env.reset(seed=0)
    while not env.step(action)[3]:
        assert env_id == DISPATCH
    with pytest.raises(ValueError, match="call reset"):
        env.step(action)
    vector = gym.make_vec(env_id, num_envs=2, pool=POOL, budget=3)
    with pytest.raises(ValueError, match="call reset"):
        vector.step(np.ones((2, 3), np.int64))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observation": "worker"}, "no observation .* did you mean workers"),
        ({"action": "starts"}, "no action of this env 'starts'"),
        ({"reward_unit": "rounds"}, "did you mean first round"),
        ({"signals": True, "observation": "workers"}, "signals=True shows the loads in observation=.feedback"),
        ({"scenario": "icml2025-regret", "pool": POOL}, "not both"),
        ({"scenario": "icml2025-cifar10"}, "did you mean icml2025-cifar100"),
        ({"scenario": 3}, "scenario must be a name or a Scenario, not 3"),
        ({"pool": POOL}, "needs budget"),
        ({"pool": POOL, "budget": 0}, "budget must be a whole number"),
        ({"pool": POOL, "budget": 10**9_999}, r"budget must .* not a whole number of 33216 bits"),
        ({"pool": POOL, "budget": 10**12}, "1000000000000 results each needs about 64,000 GB"),
        ({"pool": POOL, "budget": 3, "horizon": 0}, "horizon must be a whole number"),
        ({"pool": POOL, "budget": 3, "price": -0.1}, "price must be a finite number"),
        ({"pool": POOL, "budget": 3, "signals": 1}, "signals must be True or False"),
        ({"pool": POOL, "budget": 3, "changes": 3}, "changes must be a list"),
        ({"pool": POOL, "budget": 3, "changes": {"change": "walk"}}, "changes must be a list"),
        ({"pool": POOL, "budget": 3, "changes": ["walk"]}, "a change is a mapping"),
        ({"pool": 3, "budget": 3}, "a pool is made from"),
        ({"pool": RECURSIVE, "budget": 3}, "a pool's data cannot hold itself"),
        ({"pool": [], "budget": 3}, "at least one"),
        ({"pool": trace([[1.0, 2.0]], end="truncate"), "budget": 3}, "cannot fill one round"),
    ],
)
def test_an_argument_that_is_wrong_is_named(arguments: dict[str, Any], message: str) -> None:
    for make in (gym.make, gym.make_vec):
        with pytest.raises(ValueError, match=message):
            make(ALLOCATION, **arguments)


def test_bad_vector_arguments() -> None:
    given: dict[str, Any] = {"id": ALLOCATION, "pool": POOL, "budget": 3}
    with pytest.raises(ValueError, match="num_envs must be"):
        gym.make_vec(**given, num_envs=0)
    for mode in ("x", 3, np.array([1, 2])):
        with pytest.raises(ValueError, match="NEXT_STEP, SAME_STEP or DISABLED"):
            gym.make_vec(**given, num_envs=2, autoreset_mode=mode)
    named = gym.make_vec(**given, num_envs=2, autoreset_mode="SameStep")
    assert named.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    with pytest.raises(ValueError, match=r"3 results each needs about .* fewer rows"):
        gym.make_vec(**given, num_envs=10**12)


def test_a_large_budget_needs_no_memory_in_dispatch() -> None:
    env: Any = gym.make(DISPATCH, pool=POOL, budget=10**12)
    env.reset(seed=0)
    assert env.step(np.ones(3, np.int8))[0]["missing"].tolist() == [10**12 - 1]


@pytest.mark.parametrize(("name", "value"), [("alpha", "x"), ("alpha", float("nan")), ("eta", 0.0), ("eta", 10**400)])
def test_hyperparameters_of_a_scenario_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a finite number above 0"):
        Scenario(POOL, 3, published=Published(icml=AtaConstants(**{name: value})))
    with pytest.raises(ValueError, match="published holds alpha and eta by version, which is preprint or icml"):
        Scenario(POOL, 3, published={name: value})  # type: ignore[arg-type]


FORMS = [spec for spec in gym.registry.values() if spec.namespace == "ata_gym" and spec.kwargs]


def test_there_is_one_id_for_each_env_and_form() -> None:
    assert {spec.id for spec in FORMS} == {
        f"ata_gym/{form}-v0"
        for form in ("TaskAllocation-flat-shares", "TaskAllocation-flat-assign", "TaskRace-flat-shares",
                     "TaskDispatch-flat-dispatch", "TaskDispatch-flat-start")
    }  # fmt: skip


@pytest.mark.parametrize("spec", FORMS, ids=lambda spec: spec.name)
def test_an_id_gives_what_its_arguments_give(spec: gym.envs.registration.EnvSpec) -> None:
    assert spec.kwargs["observation"] == "flat"
    assert spec.kwargs["reward_unit"] == "first round"
    assert spec.id.endswith(f"-{spec.kwargs['action']}-v0")
    short, plain = gym.make(spec.id), gym.make(f"ata_gym/{spec.name.partition('-')[0]}-v0", **spec.kwargs)
    assert isinstance(short.action_space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete))
    assert short.action_space == plain.action_space
    short.action_space.seed(0)
    assert same(short.reset(seed=3)[0], plain.reset(seed=3)[0])
    for _ in range(5):
        action = short.action_space.sample()
        first, second = short.step(action), plain.step(action)
        assert same(first[0], second[0])
        assert first[1:4] == second[1:4]
    assert gym.make_vec(spec.id, num_envs=2, horizon=7).unwrapped.single_observation_space == short.observation_space


CHANGING: dict[str, Any] = {
    "pool": WORLDS["changing"].pool,
    "changes": [Switch(every=2), Correlated(0.6, 0.8), Load(0.5, 0.3, 0.2, 0.9), Spot(0.2, 0.5, 3)],
    "budget": 4,
    "horizon": 4,
    "signals": True,
}


@pytest.mark.parametrize("env_id", IDS)
def test_signals(env_id: str) -> None:
    env: Any = gym.make(env_id, **CHANGING).unwrapped
    assert env.observation_space["signal"].shape == (5, 2)
    observation, _ = env.reset(seed=0)
    for _ in range(12):
        assert observation["signal"].tobytes() == env.conditions().signal.tobytes()
        observation["signal"][:] = 7  # it is the user's own
        observation, *_, truncated, _ = env.step(env.action_space.sample())
        if truncated:
            break
    blind = gym.make(env_id, **{**CHANGING, "signals": False})
    assert "signal" not in blind.reset(seed=0)[0]
    plain = gym.make(env_id, pool=POOL, budget=4, signals=True)
    assert not plain.reset(seed=0)[0]["signal"].any()


BEFORE = {
    ALLOCATION: [
        [5.637789362062856, 3.5827595866512847, 3.345019719778647],
        [72.96623691581696, 68.99120995980743, 88.11015124329087],
        [0.5514107811677665, 1.2494792995099062, 2.151079879249259],
    ],
    RACE: [
        [1.4730231916324938, 1.7144246816142965, 1.5794739520556507],
        [79.88270672244377, 73.86677965904899, 102.74632140854865],
        [1.0, 0.6389081228387945, 0.9759632962688626],
    ],
    DISPATCH: [
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
    actions = spaces.MultiBinary((3, 6), seed=3) if env_id == DISPATCH else env.action_space
    actions.seed(3)
    env.reset(seed=5)
    for _ in range(12):
        observation, *_, info = env.step(actions.sample())
    seen = [info["round_time"], info["total_worker_time"], observation["duration"][:, -1]]
    np.testing.assert_allclose(seen, BEFORE[env_id], rtol=1e-14)
    assert not any(name.startswith("change") for name in env.unwrapped.checkpoint())  # type: ignore[attr-defined]
