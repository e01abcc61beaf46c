"""Scenarios in which the envs are tested, every form of observations and actions, and samples of
actions.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import ata_gym  # noqa: F401 - registers the ids
from ata_gym.changes import (
    Change,
    ColdAfterIdle,
    Congestion,
    Correlated,
    Crash,
    Jump,
    Leak,
    Load,
    OnOff,
    Outliers,
    Periodic,
    Redraw,
    Spot,
    Switch,
    Throttling,
    Walk,
    Warming,
)
from ata_gym.pools import PoolDistribution, deterministic, exponential, gamma, trace
from ata_gym.scenarios import Scenario

ALLOCATION, RACE, DISPATCH = IDS = (
    "ata_gym/TaskAllocation-v0",
    "ata_gym/TaskRace-v0",
    "ata_gym/TaskDispatch-v0",
)
FORMS = [
    *((ALLOCATION, form) for form in ("allocation", "shares", "assign")),
    *((RACE, form) for form in ("allocation", "shares")),
    *((DISPATCH, form) for form in ("dispatch", "start")),
]
EVERY_FORM = [
    {"id": env_id, "observation": observation, "action": action}
    for observation in ("feedback", "workers", "flat")
    for env_id, action in FORMS
]
LISTED = [form for form in EVERY_FORM if form["action"] != "allocation"]
"""The forms whose actions have a space of a class that every library knows."""
MASKED = [form for form in EVERY_FORM if form["action"] in ("assign", "start")]
ENDING: dict[str, Any] = {"pool": trace([[1.0] * 9, [2.0] * 9], end="truncate"), "budget": 3}
"""Rows that use this trace unevenly end apart."""

CHANGES: list[Change] = [
    Switch(every=2),
    Jump(at=1, workers=(0, 3), factor=0.1),
    Periodic(7, 0.5),
    Walk(0.3, 0.5),
    OnOff(5, 0.2, 0.4),
    Correlated(0.6, 0.8),
    Outliers(0.05, 10, 30),
    Spot(0.2, 0.5, deadline=3),
    Crash(0.2, within=2, away=2, deadline=1),
    Load(0.5, 0.3, 0.2, 0.9),
    Congestion(4, 0.3, 0.3, rack=2),
    Throttling(2.0, 0.4, 0.2, 3.0),
    Leak(0.2, 5, away=1, deadline=2.0),
    ColdAfterIdle(1, 2.5),
    Warming(3, 4.0, smooth=True),
]
_TIMES = np.random.default_rng(0).exponential(size=(2, 7)) + 0.1
_ENDING = trace([*_TIMES], end="truncate") + exponential([1.0, 3.0]) + gamma(2.5, 0.7)
_DRAWN = Redraw(
    PoolDistribution(5, fewest=2),
    (0.1, 2.0),
    among=((), (Switch(every=2),), (Spot(0.2, 0.5),)),
)
_MIXED = (
    exponential([1.0, 2.0], [0.5, 0.0])
    + gamma(2.5, 0.7).with_latency(exponential([0.5]))
    + trace([[1.0, 5.0, 2.0]], latency=0.3)
    + deterministic([3.0])
)
SCENARIOS: dict[str, Scenario] = {
    "ending": Scenario(_ENDING, budget=4, horizon=6, price=0.3),
    "drawn": Scenario(_DRAWN.pools, 4, 3, (_DRAWN,)),  # type: ignore[arg-type]
    "changing": Scenario(_MIXED, 4, 3, tuple(CHANGES), 0.5),
}
"""In the first, episodes end apart with a record; in the second, workers, prices and changes are
drawn, and places are empty; in the third, everything changes, workers die, and two pay a latency.
"""


def name(form: dict[str, str]) -> str:
    return "-".join(
        [form["id"][len("ata_gym/Task") : -len("-v0")], form["observation"], form["action"]],
    )


def arguments(form: dict[str, str]) -> tuple[str, dict[str, Any]]:
    return form["id"], {key: value for key, value in form.items() if key != "id"}


def single(env_id: str, scenario: str | Scenario, **options: Any) -> Any:
    return gym.make(env_id, scenario=_scenario(scenario), **options).unwrapped


def vector(env_id: str, scenario: str | Scenario, rows: int, **options: Any) -> Any:
    return gym.make_vec(env_id, num_envs=rows, scenario=_scenario(scenario), **options).unwrapped


def _scenario(scenario: str | Scenario) -> Scenario:
    if isinstance(scenario, str):
        return SCENARIOS[scenario]
    return scenario


class ActionSampler:
    """Samples of a space, of which nine in ten obey the mask where there is one."""

    def __init__(self, space: Any, seed: int) -> None:
        self.space = space
        self.rng = np.random.default_rng(seed)
        space.seed(seed)

    def __call__(self, mask: NDArray[np.int8] | None = None) -> Any:
        if mask is not None and self.rng.random() < 0.9:
            return self.space.sample(mask)
        return self.space.sample()


def same(value: Any, other: Any) -> bool:
    if isinstance(value, dict) or isinstance(other, dict):
        return value.keys() == other.keys() and all(
            same(value[name], other[name]) for name in value
        )
    a = np.asarray(value)
    b = np.asarray(other)
    if a.dtype == object:
        return a.shape == b.shape and all(
            x is y or same(x, y) for x, y in zip(a.flat, b.flat, strict=True)
        )
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
