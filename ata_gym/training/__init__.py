"""Train a real model on the clock of the workers: problems, trainer, methods, and the wrapper of an env.

The names below are loaded when they are first used, since importing torch takes a while; without torch that raises an
``ImportError`` with the install command.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ata_gym.utils.extras import require

if TYPE_CHECKING:
    from ata_gym.training.devices.clock import DeviceClock
    from ata_gym.training.devices.workers import Worker
    from ata_gym.training.methods import METHODS, MethodRun
    from ata_gym.training.problem import Problem, make_problem, problem_names
    from ata_gym.training.problems.classification import Classification
    from ata_gym.training.problems.tasks import Tasks
    from ata_gym.training.trainer.settings import TrainingSettings
    from ata_gym.training.trainer.trainer import Trainer
    from ata_gym.training.wrapper import TrainingWrapper

__all__ = [
    "METHODS", "Classification", "DeviceClock", "MethodRun", "Problem", "Tasks", "Trainer", "TrainingSettings",
    "TrainingWrapper", "Worker", "make_problem", "problem_names",
]  # fmt: skip

_HOMES = {
    "Classification": "problems.classification", "DeviceClock": "devices.clock", "Problem": "problem",
    "Tasks": "problems.tasks", "Trainer": "trainer.trainer", "TrainingSettings": "trainer.settings",
    "TrainingWrapper": "wrapper", "Worker": "devices.workers", "METHODS": "methods", "MethodRun": "methods",
    "make_problem": "problem", "problem_names": "problem",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("torch", extra="train", purpose="Training")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
