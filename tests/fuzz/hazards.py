"""What may go wrong, each as a function that tries it once at random and raises if it is not handled well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.fuzz import actors, damage, inputs, kernels, kills, policies

Hazard = Callable[[np.random.Generator, Path], None]
"""Takes a generator and an empty folder."""

HAZARDS: dict[str, Hazard] = {
    "policies: any legal observation, any batch": policies.attempt,
    "inputs: mutated traces and archives": inputs.attempt,
    "damage: mutated files of results": damage.attempt,
    "kills: SIGKILL, SIGTERM, Ctrl-C at any moment": kills.attempt,
    "kernels: six processes fill an empty cache": kernels.attempt,
    "actors: SIGKILL of Ray's actors in the midst of rounds": actors.attempt,
}

SMALL = dict(zip(HAZARDS, (8, 60, 12, 1, 0, 0), strict=True))
"""How often each is tried in the test run; the last two have smaller tests of their own."""


def try_out(hazard: str, seed: int, folder: Path) -> None:
    """Try a hazard once; the same seed tries the same, but for the moments of kills."""
    HAZARDS[hazard](np.random.default_rng([list(HAZARDS).index(hazard), seed]), folder)
