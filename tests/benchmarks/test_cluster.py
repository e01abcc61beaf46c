"""A step with TorchAllocator against one of plain DDP, on equal workers: processes of this machine,
in turn.
"""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="extra cluster is not installed")
pytestmark = pytest.mark.benchmark

import torch.distributed as dist  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from ata_gym.cluster import TaskSampler, TorchAllocator  # noqa: E402
from ata_gym.training.problems.cifar100 import _cnn  # noqa: E402
from ata_policies import Allocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402


def steps(
    policy: str,
    budget: int,
    tasks_per_pass: int,
    turns: int,
    length: int,
    device: str = "cpu",
) -> dict[str, Any]:
    """In ``turns`` times ``length`` steps of each, in turn: seconds per step, and seconds of
    processor time; shares.

    Both compute ``tasks_per_pass`` tasks of one sample in each pass; DDP accumulates the gradients
    of its passes.
    """
    rank = dist.get_rank()
    size = dist.get_world_size()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(5000, 3, 32, 32), torch.randint(100, (5000,)))
    parallel = DistributedDataParallel(_cnn().to(device))
    plain = _cnn().to(device)
    optimizers = [torch.optim.Adam(model.parameters(), lr=8e-5) for model in (parallel, plain)]
    allocator = TorchAllocator(budget, policy, name=f"worker {rank}")
    ours = DataLoader(
        data, batch_sampler=TaskSampler(allocator, data, tasks_per_pass=tasks_per_pass)
    )
    theirs = _endless(
        DataLoader(
            data, batch_size=min(tasks_per_pass, budget // size), shuffle=True, drop_last=True
        ),
    )
    passes = budget // size // min(tasks_per_pass, budget // size)
    tasks: list[list[int]] = []

    def step_of_ddp() -> None:
        for left in reversed(range(passes)):
            x, y = next(theirs)
            with parallel.no_sync() if left else nullcontext():
                (cross_entropy(parallel(x.to(device)), y.to(device)) / passes).backward()
        optimizers[0].step()
        optimizers[0].zero_grad()

    def step_of_ours() -> None:
        with allocator.round(plain) as share:
            for x, y in share.take(ours):
                share.backward(cross_entropy(plain(x.to(device)), y.to(device)))
            share.reduce()
        optimizers[1].step()
        optimizers[1].zero_grad()
        tasks.append(list(allocator.last.tasks.values()))

    seconds: dict[str, list[tuple[float, float]]] = {"ddp": [], "ours": []}
    for turn in range(turns + 1):
        for name, step in (("ddp", step_of_ddp), ("ours", step_of_ours)):
            dist.barrier()
            start = perf_counter()
            busy = process_time()
            for _ in range(length):
                step()
            dist.barrier()
            if turn:  # the first warms up
                seconds[name].append(
                    ((perf_counter() - start) / length, (process_time() - busy) / length),
                )
    return {**{name: np.array(each) for name, each in seconds.items()}, "tasks": np.array(tasks)}


def _endless(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


@pytest.mark.parametrize("policy", ["uta", "restarting-beta", "default"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_allocation_costs_little_beside_ddp(ranks: int, policy: str) -> None:
    for tasks_per_pass, what in ((1, "a sample in a pass"), (64, "all in one pass")):
        told = on_ranks(ranks, steps, policy, 64, tasks_per_pass, 16, 10)
        clock, processor = (
            np.mean([np.median(one["ours"][:, which] / one["ddp"][:, which]) for one in told])
            for which in (0, 1)
        )
        shares = told[0]["tasks"][-50:].mean(axis=0)
        print(
            f"CIFAR-100 CNN, B = 64, {ranks} ranks on {os.cpu_count()} cores, {policy}, {what}:"
            f" {clock:.3f} times the time of DDP ({1000 * np.median(told[0]['ddp'][:, 0]):.0f} ms),"
            f" {processor:.3f} times its processor time; shares {shares.min():.0f} to"
            f" {shares.max():.0f}",
        )
        assert processor < 1.5


@pytest.mark.parametrize("policy", ["uta", "lb-bsp-ema", "restarting-beta", "default"])
@pytest.mark.parametrize("ranks", [1_000, 10_000])
def test_what_a_rank_spends_on_decisions_where_there_are_thousands(ranks: int, policy: str) -> None:
    rng = np.random.default_rng(0)
    spent = []
    mean = rng.uniform(1.0, 4.0, ranks)
    allocator = Allocator(ranks, 4 * ranks, policy)
    for _ in range(30):
        start = process_time()
        tasks = allocator.allocate()
        decided = process_time()
        times = {
            worker: mean[worker] * rng.normal(1.0, 0.05, count)
            for worker, count in tasks.items()
            if count
        }
        told = process_time()
        allocator.observe(times)
        spent.append((decided - start, process_time() - told))
    decision, learning = 1000 * np.median(spent, axis=0)
    print(
        f"{ranks:,} ranks, B = {4 * ranks:,}, {policy}: {decision:.1f} ms to decide, {learning:.1f}"
        " ms to learn",
    )
    assert sum(tasks.values()) == 4 * ranks
