"""What may go wrong, each as a function that tries it once at random and raises if it is not handled well."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tests.cluster.torchrun import kills as ranks
from tests.fuzz import actors, damage, inputs, kills, policies, states

Hazard = Callable[[np.random.Generator, Path], None]
"""Takes a generator and an empty folder."""

HAZARDS: dict[str, Hazard] = {
    "policies: any legal observation, any batch": policies.attempt,
    "inputs: mutated traces and archives": inputs.attempt,
    "damage: mutated files of results": damage.attempt,
    "kills: SIGKILL, SIGTERM, Ctrl-C at any moment": kills.attempt,
    "ranks: SIGKILL of processes under torchrun": ranks.attempt,
    "actors: SIGKILL of Ray's actors in the midst of rounds": actors.attempt,
    "states: wrong numbers in a policy's state": states.attempt,
}
_NEEDS = {"ranks": "torch", "actors": "ray"}
for _name in [name for name in HAZARDS if find_spec(_NEEDS.get(name.partition(":")[0], "numpy")) is None]:
    del HAZARDS[_name]

SMALL = {"policies": 8, "inputs": 60, "damage": 6}
"""How often some are tried in the test run; the others have smaller tests of their own."""


def try_out(hazard: str, seed: int, folder: Path) -> None:
    """Try a hazard once; the same seed tries the same, but for the moments of kills."""
    HAZARDS[hazard](np.random.default_rng([list(HAZARDS).index(hazard), seed]), folder)
