"""Steps of plain DDP and of TorchAllocator in turn, in the same processes."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from ata_gym.cluster import TaskSampler, TorchAllocator
from ata_gym.training.problems.cifar100 import _cnn


def steps(policy: str, budget: int, turns: int, length: int) -> dict[str, Any]:
    """Seconds of ``turns`` times ``length`` steps of each, in turn; and what is told of the last round."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    images, labels = torch.randn(5000, 3, 32, 32), torch.randint(100, (5000,))
    data = TensorDataset(images, labels)
    models: list[nn.Module] = [DistributedDataParallel(_cnn()), _cnn()]
    optimizers = [torch.optim.Adam(model.parameters(), lr=8e-5) for model in models]
    allocator = TorchAllocator(budget, policy, name=f"worker {rank}")
    loader = DataLoader(data, batch_sampler=TaskSampler(allocator, data, together=budget))
    plain = iter(DataLoader(data, batch_size=budget // size, shuffle=True))

    def ddp() -> None:
        nonlocal plain
        batch = next(plain, None)
        if batch is None or len(batch[0]) < budget // size:
            plain = iter(DataLoader(data, batch_size=budget // size, shuffle=True))
            batch = next(plain)
        cross_entropy(models[0](batch[0]), batch[1]).backward()
        optimizers[0].step()
        optimizers[0].zero_grad()

    def ours() -> None:
        with allocator.round() as share:
            for x, y in share.take(loader):
                share.backward(cross_entropy(models[1](x), y))
            share.reduce(models[1])
        optimizers[1].step()
        optimizers[1].zero_grad()

    seconds: dict[str, list[float]] = {"ddp": [], "ours": []}
    for turn in range(turns + 1):
        for name, step in (("ddp", ddp), ("ours", ours)):
            dist.barrier()
            start = perf_counter()
            for _ in range(length):
                step()
            dist.barrier()
            if turn:  # the first warms up
                seconds[name].append((perf_counter() - start) / length)
    return {"seconds": {name: np.array(each) for name, each in seconds.items()}, "record": str(allocator.last)}
