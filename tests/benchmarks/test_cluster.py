"""A step with TorchAllocator against one of plain DDP, on equal workers: processes of this machine, in turn."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("torch", reason="extra cluster is not installed")
pytestmark = pytest.mark.benchmark

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
