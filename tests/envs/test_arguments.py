"""What ``gym.make`` and ``gym.make_vec`` take and refuse, and the ids that need no arguments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import ata_gym.envs.allocation
from ata_gym import Scenario
from ata_gym.pools import trace
from ata_gym.scenarios import AtaConstants, Published
from tests.envs.playing import ALLOCATION, DISPATCH, IDS

POOL = {"family": ["exponential", "gamma", "log-normal"], "shift": [1.0, 0.0, 0.5], "shape": [1.0, 3.0, 0.7]}
RECURSIVE: list[Any] = []
RECURSIVE.append(RECURSIVE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observation": "worker"}, "no observation .* did you mean workers"),
        ({"action": "starts"}, "no action of this env 'starts'"),
        ({"reward_unit": "rounds"}, "did you mean first round"),
        ({"signals": True, "observation": "workers"}, "signals=True shows the loads in observation=.feedback"),
        ({"scenario": "icml2025-regret", "pool": POOL}, "not both"),
        ({"scenario": "icml2025-cifar10"}, "did you mean icml2025-cifar100"),
        ({"pool": POOL}, "needs budget"),
        ({"pool": POOL, "budget": 0}, "budget must be a whole number"),
        ({"pool": POOL, "budget": 2.0}, "budget must be a whole number"),
        ({"pool": POOL, "budget": 3, "horizon": 0}, "horizon must be a whole number"),
        ({"pool": POOL, "budget": 3, "price": -0.1}, "price must be a finite number"),
        ({"pool": POOL, "budget": 3, "price": float("nan")}, "price must be a finite number"),
        ({"pool": POOL, "budget": 3, "price": "free"}, "price must be a finite number"),
        ({"scenario": 3}, "scenario must be a name or a Scenario, not 3"),
        ({"pool": POOL, "budget": 10**24}, r"budget must be a whole number from 1 to 2\*\*50, not 10000"),
        ({"pool": POOL, "budget": 10**9_999}, r"budget must .* not a whole number of 33216 bits"),
        ({"pool": POOL, "budget": 10**12}, "1000000000000 results each needs about 64,000 GB"),
        ({"pool": POOL, "budget": 3, "price": 10**400}, "price must be a finite number"),
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
@pytest.mark.parametrize("vector", [False, True])
def test_an_argument_that_is_wrong_is_named(arguments: dict[str, Any], message: str, vector: bool) -> None:
    make = gym.make_vec if vector else gym.make
    with pytest.raises(ValueError, match=message):
        make(ALLOCATION, **arguments)


def test_bad_vector_arguments() -> None:
    with pytest.raises(ValueError, match="num_envs must be"):
        ata_gym.envs.allocation.TaskAllocationVectorEnv(0, pool=POOL, budget=3)
    for mode in ("x", 3, np.array([1, 2])):
        with pytest.raises(ValueError, match="NEXT_STEP, SAME_STEP or DISABLED"):
            gym.make_vec(ALLOCATION, num_envs=2, pool=POOL, budget=3, autoreset_mode=mode)
    named = gym.make_vec(ALLOCATION, num_envs=2, pool=POOL, budget=3, autoreset_mode="SameStep")
    assert named.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    with pytest.raises(ValueError, match=r"3 results each needs about .* fewer rows"):
        gym.make_vec(ALLOCATION, num_envs=10**12, pool=POOL, budget=3)


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


def test_there_is_one_for_each_env_and_form() -> None:
    assert {spec.id for spec in FORMS} == {
        f"ata_gym/{form}-v0"
        for form in ("TaskAllocation-flat-shares", "TaskAllocation-flat-assign", "TaskRace-flat-shares",
                     "TaskDispatch-flat-dispatch", "TaskDispatch-flat-start")
    }  # fmt: skip
    assert not {spec.id for spec in FORMS} & set(IDS)


@pytest.mark.parametrize("spec", FORMS, ids=lambda spec: spec.name)
def test_an_id_gives_what_its_arguments_give(spec: gym.envs.registration.EnvSpec) -> None:
    short, plain = gym.make(spec.id), gym.make(f"ata_gym/{spec.name.partition('-')[0]}-v0", **spec.kwargs)
    assert isinstance(short.action_space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete))
    assert short.action_space == plain.action_space
    short.action_space.seed(0)
    assert np.array_equal(short.reset(seed=3)[0], plain.reset(seed=3)[0])
    for _ in range(20):
        action = short.action_space.sample()
        first, second = short.step(action), plain.step(action)
        assert np.array_equal(first[0], second[0])
        assert first[1:4] == second[1:4]
        assert {k: v for k, v in first[4].items() if k != "action_mask"} == {
            k: v for k, v in second[4].items() if k != "action_mask"
        }
    assert gym.make_vec(spec.id, num_envs=2, horizon=7).unwrapped.single_observation_space == short.observation_space
