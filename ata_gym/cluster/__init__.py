"""Real workers: policies that allocate tasks to processes under torchrun, and to actors on a Ray cluster.

The names below are loaded when they are first used, since importing torch or Ray takes a while; where one is not
installed, that raises an ``ImportError`` with the install command.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ata_gym.utils.extras import require

if TYPE_CHECKING:
    from ata_gym.cluster.on_ray.connection import connect_ray
    from ata_gym.cluster.on_ray.rounds.actor import cancelled
    from ata_gym.cluster.on_ray.rounds.backend import ClusterBackend
    from ata_gym.cluster.on_ray.rounds.runner import RayRound, RayRunner
    from ata_gym.cluster.round_record import RoundRecord
    from ata_gym.cluster.shadow import Shadow
    from ata_gym.cluster.torchrun.keyed_samples import KeyedSamples
    from ata_gym.cluster.torchrun.task_sampler import TaskSampler
    from ata_gym.cluster.torchrun.torch_allocator import TorchAllocator
    from ata_gym.cluster.trace_recorder import TraceRecorder
    from ata_gym.cluster.trainers.lightning import TaskStrategy
    from ata_gym.cluster.trainers.transformers import TaskTrainer

__all__ = [
    "ClusterBackend", "KeyedSamples", "RayRound", "RayRunner", "RoundRecord", "Shadow", "TaskSampler", "TaskStrategy",
    "TaskTrainer", "TorchAllocator", "TraceRecorder", "cancelled", "connect_ray",
]  # fmt: skip

_HOMES = {
    "ClusterBackend": ("ray", "on_ray.rounds.backend"), "KeyedSamples": ("torch", "torchrun.keyed_samples"),
    "RayRound": ("ray", "on_ray.rounds.runner"), "RayRunner": ("ray", "on_ray.rounds.runner"),
    "RoundRecord": (None, "round_record"), "Shadow": (None, "shadow"),
    "TaskSampler": ("torch", "torchrun.task_sampler"), "TaskStrategy": ("torch", "trainers.lightning"),
    "TaskTrainer": ("torch", "trainers.transformers"), "TorchAllocator": ("torch", "torchrun.torch_allocator"),
    "TraceRecorder": (None, "trace_recorder"), "cancelled": (None, "on_ray.rounds.actor"),
    "connect_ray": ("ray", "on_ray.connection"),
}  # fmt: skip
"""The package that each name needs, and its module."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    package, home = _HOMES[name]
    if package is not None:
        require(package, extra="cluster", purpose=f"ata_gym.cluster.{name}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
