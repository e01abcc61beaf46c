"""Train a real model on the clock of the workers: problems, and the wrapper that couples them to an env.

The names below are loaded when they are first used, since importing torch takes a while; without torch that
gives one sentence with the install command.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ata_gym.extras import require

if TYPE_CHECKING:
    from ata_gym.training.classification import Classification
    from ata_gym.training.methods import METHODS, run_method
    from ata_gym.training.problems import Problem, make_problem, problem_names
    from ata_gym.training.trainer import Trainer
    from ata_gym.training.workers import Worker
    from ata_gym.training.wrapper import TrainingWrapper

__all__ = [
    "METHODS",
    "Classification",
    "Problem",
    "Trainer",
    "TrainingWrapper",
    "Worker",
    "make_problem",
    "problem_names",
    "run_method",
]

_HOMES = {
    "Classification": "classification",
    "Problem": "problems",
    "Trainer": "trainer",
    "TrainingWrapper": "wrapper",
    "Worker": "workers",
    "METHODS": "methods",
    "make_problem": "problems",
    "problem_names": "problems",
    "run_method": "methods",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("torch", extra="train", purpose="Training")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
