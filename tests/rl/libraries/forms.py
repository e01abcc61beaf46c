"""Every id with every form of observations and actions, and comparisons of what two envs give."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

ACTIONS = {
    "ata_gym/TaskAllocation-v0": ("allocation", "shares", "assign"),
    "ata_gym/TaskRace-v0": ("allocation", "shares"),
    "ata_gym/TaskDispatch-v0": ("dispatch", "start"),
}
FORMS = [
    {"id": env_id, "observation": observation, "action": action}
    for env_id, actions in ACTIONS.items()
    for observation, action in product(("feedback", "workers", "flat"), actions)
]
LISTED = [form for form in FORMS if form["action"] != "allocation"]
"""Those whose actions have a space of a class that every library knows."""


def name(form: dict[str, str]) -> str:
    """For the names of tests."""
    return "-".join([form["id"][len("ata_gym/Task") : -len("-v0")], form["observation"], form["action"]])


def vector(form: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """The id, and the arguments of the env."""
    return form["id"], {key: value for key, value in form.items() if key != "id"}


def same(a: Any, b: Any) -> bool:
    """Whether two observations, infos or arrays hold the same bits under the same names."""
    if isinstance(a, dict) or isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype == object:
        return a.shape == b.shape and all(x is y or same(x, y) for x, y in zip(a.flat, b.flat, strict=True))
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def row(observation: Any, e: int) -> Any:
    """One row of a batch of observations."""
    return {key: field[e] for key, field in observation.items()} if isinstance(observation, dict) else observation[e]
