"""A step with TorchAllocator against one of plain DDP, on equal workers: processes of this machine, in turn."""

from __future__ import annotations

import os
from time import process_time

import numpy as np
import pytest

pytest.importorskip("torch", reason="extra cluster is not installed")
pytestmark = pytest.mark.benchmark

from ata_policies import Allocator  # noqa: E402
from tests.cluster.torchrun.overhead import steps  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402


@pytest.mark.parametrize("policy", ["uta", "restarting-beta", "default"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_allocation_costs_little_beside_ddp(ranks: int, policy: str) -> None:
    for together, what in ((1, "a sample in a pass"), (64, "all in one pass")):
        told = on_ranks(ranks, steps, policy, 64, together, 16, 10)
        clock, processor = (
            np.mean([np.median(one["ours"][:, which] / one["ddp"][:, which]) for one in told]) for which in (0, 1)
        )
        shares = told[0]["tasks"][-50:].mean(axis=0)
        print(
            f"CIFAR-100 CNN, B = 64, {ranks} ranks on {os.cpu_count()} cores, {policy}, {what}: {clock:.3f} times the "
            f"time of DDP ({1000 * np.median(told[0]['ddp'][:, 0]):.0f} ms), {processor:.3f} times its processor time; "
            f"shares {shares.min():.0f} to {shares.max():.0f}"
        )
        assert processor < 1.5


@pytest.mark.parametrize("policy", ["uta", "lb-bsp-ema", "restarting-beta", "default"])
@pytest.mark.parametrize("ranks", [1_000, 10_000])
def test_what_a_rank_spends_on_decisions_where_there_are_thousands(ranks: int, policy: str) -> None:
    rng, spent = np.random.default_rng(0), []
    mean = rng.uniform(1.0, 4.0, ranks)
    allocator = Allocator(ranks, 4 * ranks, policy)
    for _ in range(30):
        start = process_time()
        tasks = allocator.allocate()
        decided = process_time()
        times = {worker: mean[worker] * rng.normal(1.0, 0.05, count) for worker, count in tasks.items() if count}
        told = process_time()
        allocator.observe(times)
        spent.append((decided - start, process_time() - told))
    decision, learning = 1000 * np.median(spent, axis=0)
    print(
        f"{ranks:,} ranks, B = {4 * ranks:,}, {policy}: {decision:.1f} ms to decide, {learning:.1f} ms to take in times"
    )
    assert sum(tasks.values()) == 4 * ranks
