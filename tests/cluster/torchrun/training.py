"""A small training that runs on each rank."""

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
    return TensorDataset(torch.randn(SAMPLES, 12, generator=generator), torch.arange(SAMPLES) % 3)


def backward(share: Any) -> None:
    share.backward(torch.ones((), requires_grad=True))


def compute(share: Any, loader: Any, limit: int = SAMPLES) -> list[Any]:
    """Compute the tasks of a share without a model, or the first of them, and return its
    batches.
    """
    batches = []
    for batch in share.take(loader):
        if len(batches) == limit:
            break
        batches.append(batch)
        backward(share)
    return batches


def refused(work: Any) -> str:
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def fixed_shares(shares: tuple[int, ...], **options: Any) -> TorchAllocator:
    """An allocator with which each rank, "a", "b" and so on, has the same share in every round."""
    names = "abcdefgh"[: len(shares)]
    return TorchAllocator(
        sum(shares),
        "uta",
        name=names[dist.get_rank()],
        limits={name: (share, share) for name, share in zip(names, shares, strict=True)},
        warm_up=0,
        **options,
    )


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(12, 7)
        self.last = nn.Linear(7, 3)
        self.unused = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu())


def build(kind: str, device: torch.device | None = None) -> nn.Module:
    """A Net that is wrapped, or one in which the memory of the first layer has another order."""
    model: nn.Module = Net().to(device)
    if kind == "transposed":
        model.first.weight = nn.Parameter(model.first.weight.detach().T.contiguous().T)
    if kind == "channels last":
        images = nn.Conv2d(3, 7, 2).to(memory_format=torch.channels_last)
        images.load_state_dict(
            {"weight": model.first.weight.reshape(7, 3, 2, 2), "bias": model.first.bias},
        )
        model.first = nn.Sequential(nn.Unflatten(1, (3, 2, 2)), images, nn.Flatten())
    if kind in ("ddp", "transposed"):
        return DistributedDataParallel(model)
    if kind == "compiled":
        return torch.compile(DistributedDataParallel(model), backend="aot_eager")
    if kind == "fsdp":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (model.first, model.last):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def whole(tensor: Any) -> np.ndarray:
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    return tensor.detach().cpu().clone().numpy()


def train(
    kind: str,
    policy: str,
    budget: int,
    rounds: int,
    *,
    tasks_per_pass: int = 1,
    samples: int = 1,
    accumulate: int = 1,
) -> dict[str, Any]:
    """Losses, allocations, weights and gradients of a training, on the rank's own GPU with NCCL."""
    if dist.get_backend() == "nccl":
        device = torch.device("cuda", torch.cuda.current_device())
    else:
        device = torch.device("cpu")
    model = build(kind, device)
    pairs = data()
    allocator = TorchAllocator(budget, policy, warm_up=0, check_every=1)
    loader = DataLoader(
        pairs,
        batch_sampler=TaskSampler(allocator, pairs, tasks_per_pass=tasks_per_pass, samples=samples),
    )
    # Fused, it reads gradients and parameters in the order of their memory; it decays what has a
    # gradient.
    options: dict[str, Any] = {"lr": 0.01, "fused": kind != "fsdp"}
    optimizer: torch.optim.Optimizer
    if kind == "zero redundancy":
        # The import warns of what torch itself deprecates.
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **options)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), **options)
    losses = []
    allocations = []
    for number in range(1, rounds + 1):
        with allocator.round(model) as share:
            for x, y in share.take(loader):
                share.backward(cross_entropy(model(x.to(device)), y.to(device)))
            share.reduce()
        assert all(
            parameter.grad is None or parameter.grad.stride() == parameter.stride()
            for parameter in model.parameters()
        )
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
