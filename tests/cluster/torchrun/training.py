"""A small training that runs on each rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from ata_gym.cluster import TaskSampler, TorchAllocator

SAMPLES = 50


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(SAMPLES, 5, generator=generator), torch.arange(SAMPLES) % 3)


def compute(share: Any, loader: Any) -> list[Any]:
    """Compute the tasks of a share without a model, and return its batches."""
    batches = []
    for batch in share.take(loader):
        batches.append(batch)
        share.backward(torch.ones((), requires_grad=True))
    return batches


def refused(work: Any) -> str:
    """The type and sentence of the error that a call ends with."""
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


class Net(nn.Module):
    """A network, one of whose layers is never used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.unused = nn.Linear(5, 7), nn.Linear(7, 3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu())


def build(kind: str, device: torch.device | None = None) -> nn.Module:
    model: nn.Module = Net().to(device)
    if kind == "ddp":
        return DistributedDataParallel(model)
    if kind == "fsdp":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (model.first, model.last):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def whole(tensor: Any) -> np.ndarray:
    tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return tensor.detach().cpu().clone().numpy()


def train(
    kind: str, policy: str, budget: int, rounds: int, *, together: int = 1, samples: int = 1, accumulate: int = 1
) -> dict[str, Any]:
    """Losses, allocations, weights and gradients of a training, on the rank's own GPU with NCCL."""
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    model, pairs = build(kind, device), data()
    allocator = TorchAllocator(budget, policy, warm_up=0, check_every=1)
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs, together=together, samples=samples))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)  # decays what has a gradient
    losses, allocations = [], []
    for number in range(1, rounds + 1):
        with allocator.round(model) as share:
            for x, y in share.take(loader):
                share.backward(cross_entropy(model(x.to(device)), y.to(device)))
            share.reduce()
        assert allocator.last is not None
        losses.append(allocator.last.loss)
        allocations.append(tuple(allocator.last.tasks.values()))
        if number % accumulate == 0:
            gradients = [None if p.grad is None else whole(p.grad) for p in model.parameters()]
            optimizer.step()
            optimizer.zero_grad()
    return {
        "losses": losses,
        "allocations": allocations,
        "weights": [whole(p) for p in model.parameters()],
        "gradients": gradients,
        "device": device.index,
    }
