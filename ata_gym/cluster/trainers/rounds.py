"""What a trainer sees in place of the loader of tasks: one batch for each round."""

from typing import Any

import torch
from torch.utils.data import DataLoader

from ata_gym.cluster.torchrun.task_sampler import sampler_of


def rounds_of(loader: DataLoader[Any], budget: int) -> DataLoader[Any]:
    """A loader with a batch for each whole round in an epoch of tasks, and at least one batch.

    A batch holds the numbers of the round's tasks, shape (B,), under "task". So trainers which
    count batches and their sizes count the tasks of all ranks.

    Args:
        loader: A loader with a ``TaskSampler``.
        budget: The number B of tasks of a round.

    Raises:
        ValueError: For a loader without a ``TaskSampler``.
    """
    sampler = sampler_of(loader)
    if sampler is None:
        raise ValueError("the training loader needs batch_sampler=TaskSampler(allocator, dataset)")
    batch = {"task": torch.arange(budget)}
    rounds: Any = range(max(sampler.rounds, 1))
    return DataLoader(rounds, batch_size=1, collate_fn=lambda _: batch)
