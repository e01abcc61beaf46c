"""What may go wrong, each as a function that tries it once at random and raises if it is not handled well."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tests.cluster.torchrun import kills as ranks
from tests.fuzz import damage, inputs, kernels, kills, policies

Hazard = Callable[[np.random.Generator, Path], None]
"""Takes a generator and an empty folder."""

HAZARDS: dict[str, Hazard] = {
    "policies: any legal observation, any batch": policies.attempt,
    "inputs: mutated traces and archives": inputs.attempt,
    "damage: mutated files of results": damage.attempt,
    "kills: SIGKILL, SIGTERM, Ctrl-C at any moment": kills.attempt,
    "ranks: SIGKILL of processes under torchrun": ranks.attempt,
    "kernels: six processes fill an empty cache": kernels.attempt,
}
NEEDS = {"ranks: SIGKILL of processes under torchrun": "torch"}
for _name, _package in NEEDS.items():
    if find_spec(_package) is None:
        del HAZARDS[_name]

SMALL = {"policies": 8, "inputs": 60, "damage": 12, "kills": 1, "ranks": 1, "kernels": 0}
"""How often each is tried in the test run; the last has a test of its own, with smaller kernels."""


def try_out(hazard: str, seed: int, folder: Path) -> None:
    """Try a hazard once; the same seed tries the same, but for the moments of kills."""
    HAZARDS[hazard](np.random.default_rng([list(HAZARDS).index(hazard), seed]), folder)
