"""Backends, which run the tasks of a round in place of the simulation."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ata_gym import Scenario
from ata_gym.changes import Periodic
from ata_gym.simulation.dispatch import Completion, RoundState, dispatch_step
from ata_gym.simulation.rounds import RoundResult, race_round
from tests.envs.playing import ALLOCATION, DISPATCH, IDS, RACE, same

POOL = {
    "family": ["exponential", "gamma", "log-normal"],
    "shift": [1.0, 0.0, 0.5],
    "shape": [1.0, 3.0, 0.7],
}


class Simulated:
    """The simulation as a backend of all three ids; what it gives may be changed, and it may
    break.
    """

    def __init__(self) -> None:
        self.wrong: dict[str, Any] = {}
        self.broken = False
        self.calls: list[int] = []

    def check(self, scenario: Scenario) -> None:
        if scenario.budget != 3:
            raise ValueError(f"it has B = 3, not {scenario.budget}")

    def __call__(self, *arguments: Any) -> RoundResult:
        self.calls.append(len(arguments))
        if self.broken:
            raise OSError("the device is gone")
        return race_round(*arguments)._replace(**self.wrong)

    def dispatch(self, *arguments: Any) -> Completion:
        self.calls.append(len(arguments))
        if self.broken:
            raise OSError("the device is gone")
        return dispatch_step(*arguments)._replace(**self.wrong)


def make_env(env_id: str, backend: Any, **options: Any) -> Any:
    return gym.make(env_id, **{"pool": POOL, "budget": 3, "backend": backend, **options}).unwrapped


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("changes", [(), (Periodic(5, 0.5),)])
def test_a_backend_runs_the_rounds_and_an_error_leaves_the_env_as_it_was(
    env_id: str,
    changes: Any,
) -> None:
    backend = Simulated()
    env, plain = (
        make_env(env_id, one, price=0.5, changes=changes, render_mode="ansi")
        for one in (backend, None)
    )
    env.reset(seed=2)
    plain.reset(seed=2)
    for k in range(9):
        action = np.array([1, k % 2, 1] if env_id == DISPATCH else [1, 1, 1])
        backend.broken = True
        with pytest.raises(OSError, match="the device is gone"):
            env.step(action)
        backend.broken = False
        result, expected = (each.step(action) for each in (env, plain))
        assert same(result[0], expected[0])
        assert result[1:] == expected[1:]
        assert env.render() == plain.render()  # workers run their tasks one after the other
    with_disturbances = bool(changes) or env_id == DISPATCH  # handed on where something changes
    assert set(backend.calls) == {6 if env_id == DISPATCH else 4 + with_disturbances}
    assert env_id == DISPATCH or env.backend is backend


FRESH = RoundState.start(1, 3, 1)


@pytest.mark.parametrize(
    ("env_id", "wrong", "message"),
    [
        (
            ALLOCATION,
            {"duration": np.array([[1.0, np.nan, 1.0]])},
            "duration must be finite and at least 0",
        ),
        (ALLOCATION, {"elapsed": np.array([[0.0, -1.0, 0.0]])}, "elapsed must be finite"),
        (RACE, {"round_time": np.array([np.inf])}, "round_time must be finite"),
        (RACE, {"worker": np.array([[0, 1]])}, r"worker must have shape \(1, 3\), not \(1, 2\)"),
        (RACE, {"worker": np.array([[0, 1, 3]])}, "worker must be from 0 to 2"),
        (DISPATCH, {"age": np.array([[0.0, -1.0, 0.0]])}, "age must be finite and at least 0"),
        (DISPATCH, {"worker": np.array([3])}, "worker must be from 0 to 2"),
        (
            DISPATCH,
            {"round_over": np.array([True])},
            r"one result of the \[2\] that are missing, so that \[1\] are",
        ),
        (DISPATCH, {"round_time": np.zeros(1)}, "must not become less within a round"),
        (DISPATCH, {"round_state": FRESH._replace(missing=np.array([1, 1]))}, "one result of the"),
        (
            DISPATCH,
            {"round_state": FRESH._replace(lost=np.zeros(2))},
            r"lost must have shape \(1,\)",
        ),
        (
            DISPATCH,
            {"round_state": FRESH._replace(tasks=np.array([[0, 4, 0]]))},
            "tasks must be from 0 to 3",
        ),
    ],
)
def test_what_a_backend_gives_is_checked(env_id: str, wrong: dict[str, Any], message: str) -> None:
    backend = Simulated()
    env = make_env(env_id, backend)
    env.reset(seed=0)
    env.step(np.array([1, 1, 1]))
    before = env.checkpoint()
    backend.wrong = wrong
    with pytest.raises(ValueError, match=f"the backend.*{message}"):
        env.step(np.array([1, 1, 1]))
    assert same(env.checkpoint(), before)


@pytest.mark.parametrize("env_id", IDS)
def test_a_backend_that_cannot_be_used_is_refused_when_the_env_is_made(env_id: str) -> None:
    with pytest.raises(ValueError, match="it has B = 3, not 4"):
        make_env(env_id, Simulated(), budget=4)
    if env_id == DISPATCH:
        wrong = "backend of TaskDispatch-v0 must have a method dispatch"
    else:
        wrong = "must be a function .* "
    with pytest.raises(ValueError, match=f"{wrong}.*3"):
        make_env(env_id, 3)
    with pytest.raises(
        ValueError,
        match=r"a backend runs the tasks of a single env: use gymnasium\.make",
    ):
        gym.make_vec(env_id, num_envs=2, pool=POOL, budget=3, backend=print)
