"""Real workers: policies allocate tasks to processes under torchrun, or to actors of Ray.

The names of the package are loaded when they are first used, since importing torch or Ray takes a
while. Where one is not installed, the use of a name raises an ``ImportError`` with the install
command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ata_gym.utils.extras import require
from ata_gym.utils.imports.lazy import lazy_names

if TYPE_CHECKING:
    from ata_gym.cluster.on_ray.connection import connect_ray
    from ata_gym.cluster.on_ray.rounds.actor import cancelled
    from ata_gym.cluster.on_ray.rounds.backend import ClusterBackend
    from ata_gym.cluster.on_ray.rounds.runner import RayRound, RayRunner
    from ata_gym.cluster.round_record import RoundRecord
    from ata_gym.cluster.shadow import Shadow
    from ata_gym.cluster.torchrun.loading.keyed_samples import KeyedSamples
    from ata_gym.cluster.torchrun.loading.task_sampler import TaskSampler
    from ata_gym.cluster.torchrun.loading.task_stream import TaskStream
    from ata_gym.cluster.torchrun.torch_allocator import TorchAllocator
    from ata_gym.cluster.trace_recorder import TraceRecorder
    from ata_gym.cluster.trainers.lightning import TaskStrategy
    from ata_gym.cluster.trainers.transformers import TaskTrainer
else:
    _MODULES = {
        "ClusterBackend": "on_ray.rounds.backend",
        "KeyedSamples": "torchrun.loading.keyed_samples",
        "RayRound": "on_ray.rounds.runner",
        "RayRunner": "on_ray.rounds.runner",
        "RoundRecord": "round_record",
        "Shadow": "shadow",
        "TaskSampler": "torchrun.loading.task_sampler",
        "TaskStrategy": "trainers.lightning",
        "TaskStream": "torchrun.loading.task_stream",
        "TaskTrainer": "trainers.transformers",
        "TorchAllocator": "torchrun.torch_allocator",
        "TraceRecorder": "trace_recorder",
        "cancelled": "on_ray.rounds.actor",
        "connect_ray": "on_ray.connection",
    }

    _PACKAGES = {"on_ray": "ray", "torchrun": "torch", "trainers": "torch"}

    def _check(name: str) -> None:
        package = _PACKAGES.get(_MODULES[name].partition(".")[0])
        # Task functions use ``cancelled``, whose module imports no Ray.
        if package is not None and name != "cancelled":
            require(package, extra="cluster", purpose=f"ata_gym.cluster.{name}")

    __getattr__, __dir__ = lazy_names(__name__, _MODULES, _check)

__all__ = [
    "ClusterBackend",
    "KeyedSamples",
    "RayRound",
    "RayRunner",
    "RoundRecord",
    "Shadow",
    "TaskSampler",
    "TaskStrategy",
    "TaskStream",
    "TaskTrainer",
    "TorchAllocator",
    "TraceRecorder",
    "cancelled",
    "connect_ray",
]
