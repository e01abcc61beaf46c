"""What a trainer gets in place of single tasks: a loader of rounds, and a scaler that can step."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.utils.data import DataLoader, IterableDataset

from ata_gym.cluster.torchrun.loading.task_sampler import TaskSampler, sampler_of
from ata_gym.cluster.torchrun.loading.task_stream import TaskStream
from ata_gym.cluster.torchrun.torch_allocator import TorchAllocator


class RoundBatch(dict[str, Tensor]):
    """The batch of a trainer that stands for a round.

    It has the numbers of the round's tasks, shape (B,), under "task". So trainers which count
    batches and their sizes count the tasks of all ranks.
    """


class _EndlessRounds(IterableDataset[int]):
    """The numbers of the rounds of an epoch whose length is not known."""

    def __iter__(self) -> Iterator[int]:
        return count()


def rounds_of(loader: Any, budget: int) -> DataLoader[Any]:
    """A loader with a ``RoundBatch`` for each whole round in an epoch of tasks, and at least one.

    Where the length of a stream is not known, it has no end.

    Args:
        loader: A loader with a ``TaskSampler``, or a ``TaskStream``.
        budget: The number B of tasks of a round.

    Raises:
        ValueError: For another loader.
    """
    tasks = tasks_of(loader)
    if tasks is None:
        raise ValueError(
            "the training loader needs batch_sampler=TaskSampler(allocator, dataset), or is"
            " TaskStream(allocator, loader)",
        )
    batch = RoundBatch(task=torch.arange(budget))
    rounds: Any
    if tasks.rounds is None:
        rounds = _EndlessRounds()
    else:
        rounds = range(max(tasks.rounds, 1))
    return DataLoader(rounds, batch_size=1, collate_fn=lambda _: batch)


def tasks_of(loader: Any) -> TaskSampler | TaskStream | None:
    """What shares the tasks of a loader out; None if nothing does."""
    if isinstance(loader, TaskStream):
        return loader
    return sampler_of(loader)


def begin_scaling(scaler: GradScaler | None, device: torch.device) -> None:
    """Give a scaler its first scale, without which it cannot step.

    Torch gives it when the scaler first scales a loss, which a rank without tasks never does.

    Args:
        scaler: The scaler; None if losses are not scaled.
        device: The device of the losses.
    """
    if scaler is not None:
        scaler.scale(torch.zeros((), device=device))


def for_trainer(allocator: TorchAllocator, trainer: str) -> TorchAllocator:
    """The allocator of a trainer in which each rank has the whole model and each step counts.

    Args:
        allocator: The allocator.
        trainer: The name of the trainer's class.

    Raises:
        ValueError: For an allocator with a manager, and with replicas of several ranks.
    """
    if allocator.elastic:
        raise ValueError(
            f"{trainer} steps after each round, and a round with a manager may not count: play the"
            " rounds in a loop of your own, which steps if share.committed",
        )
    if allocator.replica_size > 1:
        raise ValueError(
            f"{trainer} gives each rank the whole model, and TorchAllocator(mesh=...) has replicas"
            f" of {allocator.replica_size} ranks: train in a loop of your own over"
            " allocator.round(model)",
        )
    return allocator
