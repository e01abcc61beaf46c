"""What ``gym.make`` takes and refuses, and backends that run the rounds in place of the simulation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import ata_gym.envs.allocation
from ata_gym import Scenario
from ata_gym.changes import Periodic
from ata_gym.pools import trace
from ata_gym.scenarios import AtaConstants, Published
from ata_gym.simulation.dispatch import Completion, RoundState, dispatch_step
from ata_gym.simulation.rounds import RoundResult, race_round

IDS = ["ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0"]
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
        ({"pool": POOL, "budget": 3, "horizon": -1}, "horizon must be a whole number"),
        ({"pool": POOL, "budget": 3, "price": -0.1}, "price must be a finite number"),
        ({"pool": POOL, "budget": 3, "price": float("nan")}, "price must be a finite number"),
        ({"pool": POOL, "budget": 3, "price": float("inf")}, "price must be a finite number"),
        ({"pool": POOL, "budget": 3, "price": "free"}, "price must be a finite number"),
        ({"scenario": 3}, "scenario must be a name or a Scenario, not 3"),
        ({"pool": POOL, "budget": 10**24}, r"budget must be a whole number from 1 to 2\*\*50, not 10000"),
        ({"pool": POOL, "budget": 10**9_999}, r"budget must .* not a whole number of 33216 bits"),
        ({"pool": POOL, "budget": float("nan")}, "budget must be a whole number"),
        ({"pool": POOL, "budget": 10**12}, "1000000000000 results each needs about 64,000 GB"),
        ({"pool": POOL, "budget": 3, "horizon": 10**400}, "horizon must be a whole number"),
        ({"pool": POOL, "budget": 3, "price": 10**400}, "price must be a finite number"),
        ({"pool": POOL, "budget": 3, "price": True}, "price must be a finite number"),
        ({"pool": POOL, "budget": 3, "signals": 1}, "signals must be True or False"),
        ({"pool": POOL, "budget": 3, "changes": 3}, "changes must be a list"),
        ({"pool": POOL, "budget": 3, "changes": np.array(3)}, "changes must be a list"),
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
        make(IDS[0], **arguments)


def test_bad_vector_arguments() -> None:
    with pytest.raises(ValueError, match="num_envs must be"):
        ata_gym.envs.allocation.TaskAllocationVectorEnv(0, pool=POOL, budget=3)
    for mode in ("x", 3, np.array([1, 2])):
        with pytest.raises(ValueError, match="NEXT_STEP, SAME_STEP or DISABLED"):
            gym.make_vec(IDS[0], num_envs=2, pool=POOL, budget=3, autoreset_mode=mode)
    named = gym.make_vec(IDS[0], num_envs=2, pool=POOL, budget=3, autoreset_mode="SameStep")
    assert named.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    with pytest.raises(ValueError, match=r"3 results each needs about .* fewer rows"):
        gym.make_vec(IDS[0], num_envs=10**12, pool=POOL, budget=3)


def test_a_large_budget_needs_no_memory_in_dispatch() -> None:
    env: Any = gym.make("ata_gym/TaskDispatch-v0", pool=POOL, budget=10**12)
    env.reset(seed=0)
    assert env.step(np.ones(3, np.int8))[0]["missing"].tolist() == [10**12 - 1]


@pytest.mark.parametrize(("name", "value"), [("alpha", "x"), ("alpha", float("nan")), ("eta", 0.0), ("eta", 10**400)])
def test_hyperparameters_of_a_scenario_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a finite number above 0"):
        Scenario(POOL, 3, published=Published(icml=AtaConstants(**{name: value})))
    with pytest.raises(ValueError, match="published holds alpha and eta by version, which is preprint or icml"):
        Scenario(POOL, 3, published={name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("changes", [(), (Periodic(5, 0.5),)])
def test_a_backend_runs_the_rounds(env_id: str, changes: tuple[Periodic, ...]) -> None:
    calls = []

    def backend(*arguments: Any) -> RoundResult:
        calls.append(len(arguments))
        return race_round(*arguments)

    options: dict[str, Any] = {"pool": POOL, "budget": 4, "changes": changes}
    env, plain = gym.make(env_id, backend=backend, **options), gym.make(env_id, **options)
    assert env.unwrapped.backend is backend  # type: ignore[attr-defined]
    env.reset(seed=2)
    plain.reset(seed=2)
    for _ in range(5):
        seen, expected = env.step(np.array([2, 1, 1])), plain.step(np.array([2, 1, 1]))
        assert all(seen[0][name].tobytes() == field.tobytes() for name, field in expected[0].items())
        assert seen[1:] == expected[1:]
    assert calls == [8 if changes else 7] * 5  # the disturbances are handed on where something changes


def test_an_error_of_a_backend_leaves_the_env_as_it_was() -> None:
    broken = True

    def backend(*arguments: Any) -> RoundResult:
        if broken:
            raise OSError("the device is gone")
        return race_round(*arguments)

    env, plain = gym.make(IDS[0], pool=POOL, budget=3, backend=backend), gym.make(IDS[0], pool=POOL, budget=3)
    env.reset(seed=0)
    plain.reset(seed=0)
    with pytest.raises(OSError, match="the device is gone"):
        env.step(np.array([1, 1, 1]))
    broken = False
    assert env.step(np.array([1, 1, 1]))[1] == plain.step(np.array([1, 1, 1]))[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"duration": np.array([[1.0, np.nan, 1.0]])}, "backend's duration must be finite and at least 0"),
        ({"elapsed": np.array([[0.0, -1.0, 0.0]])}, "backend's elapsed must be finite"),
        ({"round_time": np.array([np.inf])}, "backend's round_time must be finite"),
        ({"worker": np.array([[0, 1]])}, r"backend's worker must have shape \(1, 3\), not \(1, 2\)"),
        ({"worker": np.array([[0, 1, 3]])}, "backend's worker must be from 0 to 2"),
    ],
)
def test_what_a_backend_gives_is_checked(wrong: dict[str, Any], message: str) -> None:
    env = gym.make(IDS[0], pool=POOL, budget=3, backend=lambda *arguments: race_round(*arguments)._replace(**wrong))
    env.reset(seed=0)
    before = env.unwrapped.checkpoint()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=message):
        env.step(np.array([1, 1, 1]))
    after = env.unwrapped.checkpoint()  # type: ignore[attr-defined]
    assert all(after[name].tobytes() == field.tobytes() for name, field in before.items())


def test_a_backend_that_cannot_be_used_is_refused() -> None:
    for env_id in IDS:
        with pytest.raises(ValueError, match=r"backend must be a function .* not 3"):
            gym.make(env_id, pool=POOL, budget=3, backend=3)
    with pytest.raises(ValueError, match=r"backend of TaskDispatch-v0 must have a method dispatch, .* has none"):
        gym.make("ata_gym/TaskDispatch-v0", pool=POOL, budget=3, backend=race_round)


class Simulated:
    """The simulation as a backend of all three ids; what it gives in dispatch may be changed."""

    def __init__(self, **wrong: Any) -> None:
        self.wrong = wrong

    def check(self, scenario: Scenario) -> None:
        if scenario.budget != 3:
            raise ValueError(f"it has B = 3, not {scenario.budget}")

    def __call__(self, *arguments: Any) -> RoundResult:
        return race_round(*arguments)

    def dispatch(self, *arguments: Any) -> Completion:
        return dispatch_step(*arguments)._replace(**self.wrong)


def test_a_backend_runs_dispatch() -> None:
    env, plain = (
        gym.make("ata_gym/TaskDispatch-v0", pool=POOL, budget=3, price=0.5, backend=backend, changes=[Periodic(5, 0.5)])
        for backend in (Simulated(), None)
    )
    env.reset(seed=2)
    plain.reset(seed=2)
    for k in range(9):
        seen, expected = (each.step(np.array([1, k % 2, 1])) for each in (env, plain))
        assert all(seen[0][name].tobytes() == field.tobytes() for name, field in expected[0].items())
        assert seen[1:] == expected[1:]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"age": np.array([[0.0, -1.0, 0.0]])}, "backend's age must be finite and at least 0"),
        ({"worker": np.array([3])}, "backend's worker must be from 0 to 2"),
        ({"round_over": np.array([True])}, r"one result of the \[2\] that are missing, so that \[1\] are"),
        ({"round_time": np.zeros(1)}, "must not become less within a round"),
        ({"round_state": RoundState.start(1, 3, 1)._replace(missing=np.array([1, 1]))}, "one result of the"),
        ({"round_state": RoundState.start(1, 3, 1)._replace(lost=np.zeros(2))}, r"lost must have shape \(1,\)"),
        ({"round_state": RoundState.start(1, 3, 1)._replace(tasks=np.array([[0, 4, 0]]))}, "tasks must be from 0 to 3"),
    ],
)
def test_what_a_backend_of_dispatch_gives_is_checked(wrong: dict[str, Any], message: str) -> None:
    backend = Simulated()
    env = gym.make("ata_gym/TaskDispatch-v0", pool=POOL, budget=3, backend=backend)
    env.reset(seed=0)
    env.step(np.array([1, 1, 1]))
    before = env.unwrapped.checkpoint()  # type: ignore[attr-defined]
    backend.wrong = wrong
    with pytest.raises(ValueError, match=message):
        env.step(np.array([1, 1, 1]))
    after = env.unwrapped.checkpoint()  # type: ignore[attr-defined]
    assert all(after[name].tobytes() == field.tobytes() for name, field in before.items())


@pytest.mark.parametrize("env_id", [*IDS, "ata_gym/TaskDispatch-v0"])
def test_a_backend_that_does_not_fit_is_refused_when_the_env_is_made(env_id: str) -> None:
    with pytest.raises(ValueError, match="it has B = 3, not 4"):
        gym.make(env_id, pool=POOL, budget=4, backend=Simulated())


@pytest.mark.parametrize("env_id", IDS)
def test_a_backend_is_for_single_envs(env_id: str) -> None:
    with pytest.raises(ValueError, match=r"a backend runs the tasks of a single env: use gymnasium\.make"):
        gym.make_vec(env_id, num_envs=2, pool=POOL, budget=3, backend=print)
