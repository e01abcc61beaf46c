"""Train a real model on the clock of the workers.

The package holds problems, the trainer, training methods, and the wrapper of an env. Its names are
loaded when they are first used, since importing torch takes a while. Without torch, the use of a
name raises an ``ImportError`` with the install command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ata_gym.utils.extras import require
from ata_gym.utils.imports.lazy import lazy_names

if TYPE_CHECKING:
    from ata_gym.training.devices.clock import DeviceClock
    from ata_gym.training.devices.workers import DeviceWorker
    from ata_gym.training.methods import METHODS, MethodRun
    from ata_gym.training.problem import Problem, make_problem, problem_names
    from ata_gym.training.problems.classification import Classification
    from ata_gym.training.problems.tasks import Tasks
    from ata_gym.training.trainer.settings import TrainingSettings
    from ata_gym.training.trainer.trainer import Trainer
    from ata_gym.training.wrapper import TrainingWrapper
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Classification": "problems.classification",
            "DeviceClock": "devices.clock",
            "Problem": "problem",
            "Tasks": "problems.tasks",
            "Trainer": "trainer.trainer",
            "TrainingSettings": "trainer.settings",
            "TrainingWrapper": "wrapper",
            "DeviceWorker": "devices.workers",
            "METHODS": "methods",
            "MethodRun": "methods",
            "make_problem": "problem",
            "problem_names": "problem",
        },
        lambda _name: require("torch", extra="train", purpose="Training"),
    )

__all__ = [
    "METHODS",
    "Classification",
    "DeviceClock",
    "DeviceWorker",
    "MethodRun",
    "Problem",
    "Tasks",
    "Trainer",
    "TrainingSettings",
    "TrainingWrapper",
    "make_problem",
    "problem_names",
]
