"""What a trainer sees in place of the loader of tasks: one batch for each round."""

from typing import Any

import torch
from torch.utils.data import DataLoader

from ata_gym.cluster.torchrun.task_sampler import sampler_of


def rounds_of(loader: DataLoader[Any], budget: int) -> DataLoader[Any]:
    """A loader with a batch for each whole round of B tasks in an epoch of a loader with a ``TaskSampler``, at least 1.

    A batch holds the numbers of the round's tasks, (B,), so that trainers which count batches and their sizes count
    those of all ranks, under "task". ValueError for a loader without a ``TaskSampler``.
    """
    sampler = sampler_of(loader)
    if sampler is None:
        raise ValueError("the training loader needs batch_sampler=TaskSampler(allocator, dataset)")
    batch = {"task": torch.arange(budget)}
    return DataLoader(range(max(sampler.rounds, 1)), batch_size=1, collate_fn=lambda _: batch)  # type: ignore[arg-type]
