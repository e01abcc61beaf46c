"""What a trainer gets in place of single tasks: a loader of rounds, and a scaler that can step."""

from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.utils.data import DataLoader

from ata_gym.cluster.torchrun.task_sampler import sampler_of
from ata_gym.cluster.torchrun.torch_allocator import TorchAllocator


class RoundBatch(dict[str, Tensor]):
    """The batch of a trainer that stands for a round.

    It has the numbers of the round's tasks, shape (B,), under "task". So trainers which count
    batches and their sizes count the tasks of all ranks.
    """


def rounds_of(loader: DataLoader[Any], budget: int) -> DataLoader[Any]:
    """A loader with a ``RoundBatch`` for each whole round in an epoch of tasks, and at least one.

    Args:
        loader: A loader with a ``TaskSampler``.
        budget: The number B of tasks of a round.

    Raises:
        ValueError: For a loader without a ``TaskSampler``.
    """
    sampler = sampler_of(loader)
    if sampler is None:
        raise ValueError("the training loader needs batch_sampler=TaskSampler(allocator, dataset)")
    batch = RoundBatch(task=torch.arange(budget))
    rounds: Any = range(max(sampler.rounds, 1))
    return DataLoader(rounds, batch_size=1, collate_fn=lambda _: batch)


def begin_scaling(scaler: GradScaler | None, device: torch.device) -> None:
    """Give a scaler its first scale, without which it cannot step.

    Torch gives it when the scaler first scales a loss, which a rank without tasks never does.

    Args:
        scaler: The scaler; None if losses are not scaled.
        device: The device of the losses.
    """
    if scaler is not None:
        scaler.scale(torch.zeros((), device=device))


def with_group(allocator: TorchAllocator, trainer: str) -> TorchAllocator:
    """The allocator of a trainer, all of whose steps count.

    Args:
        allocator: The allocator.
        trainer: The name of the trainer's class.

    Raises:
        ValueError: For an allocator with a manager.
    """
    if allocator.elastic:
        raise ValueError(
            f"{trainer} steps after each round, and a round with a manager may not count: play the"
            " rounds in a loop of your own, which steps if share.committed",
        )
    return allocator
