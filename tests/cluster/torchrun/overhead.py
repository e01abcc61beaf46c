"""Steps of plain DDP and of TorchAllocator in turn, in the same processes."""

from __future__ import annotations

from contextlib import nullcontext
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from ata_gym.cluster import TaskSampler, TorchAllocator
from ata_gym.training.problems.cifar100 import _cnn


def steps(policy: str, budget: int, together: int, turns: int, length: int) -> dict[str, Any]:
    """In ``turns`` times ``length`` steps of each, in turn: seconds per step, and seconds of processor time; shares.

    Both compute ``together`` tasks of one sample in each pass; DDP accumulates the gradients of its passes.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(5000, 3, 32, 32), torch.randint(100, (5000,)))
    parallel, plain = DistributedDataParallel(_cnn()), _cnn()
    optimizers = [torch.optim.Adam(model.parameters(), lr=8e-5) for model in (parallel, plain)]
    allocator = TorchAllocator(budget, policy, name=f"worker {rank}")
    ours = DataLoader(data, batch_sampler=TaskSampler(allocator, data, together=together))
    theirs = _endless(DataLoader(data, batch_size=min(together, budget // size), shuffle=True, drop_last=True))
    passes = budget // size // min(together, budget // size)
    tasks: list[list[int]] = []

    def step_of_ddp() -> None:
        for left in reversed(range(passes)):
            x, y = next(theirs)
            with parallel.no_sync() if left else nullcontext():
                (cross_entropy(parallel(x), y) / passes).backward()
        optimizers[0].step()
        optimizers[0].zero_grad()

    def step_of_ours() -> None:
        with allocator.round(plain) as share:
            for x, y in share.take(ours):
                share.backward(cross_entropy(plain(x), y))
            share.reduce()
        optimizers[1].step()
        optimizers[1].zero_grad()
        tasks.append(list(allocator.last.tasks.values()))

    seconds: dict[str, list[tuple[float, float]]] = {"ddp": [], "ours": []}
    for turn in range(turns + 1):
        for name, step in (("ddp", step_of_ddp), ("ours", step_of_ours)):
            dist.barrier()
            start, busy = perf_counter(), process_time()
            for _ in range(length):
                step()
            dist.barrier()
            if turn:  # the first warms up
                seconds[name].append(((perf_counter() - start) / length, (process_time() - busy) / length))
    return {**{name: np.array(each) for name, each in seconds.items()}, "tasks": np.array(tasks)}


def _endless(loader: DataLoader[Any]) -> Any:
    while True:
        yield from loader
