"""What a GPU gives: figures beside the CPU, plain PyTorch and plain DDP, for the table of
tests/gpu/README.md.

``python -m docs.gpu tests/benchmarks`` runs them on a GPU. What is asserted is that the results
agree; the times are figures of the table. Each body takes its device, so that it runs on a CPU,
too.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from ata_gym.training import Trainer  # noqa: E402
from tests.benchmarks.test_cluster import steps  # noqa: E402
from tests.benchmarks.test_throughput import best  # noqa: E402
from tests.benchmarks.test_training import WORLD, cifar, plain, wrapped  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.gpu_table import warnings_of_inductor  # noqa: E402

pytestmark = [pytest.mark.benchmark, pytest.mark.gpu]

OPTIONS = {
    "eager": (),
    "graphs": ("graphs",),
    "compiled": ("compile",),
    "both": ("compile", "graphs"),
}
"""How a round of a Trainer runs on a GPU."""

Figures = dict[str, str]


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def training_of_cifar100(device: str, folder: Path, rounds: int = 20, timed: int = 100) -> Figures:
    """The losses of the first rounds equal those on the CPU; figures: the last of them, and
    milliseconds a round.
    """
    case = cifar(folder)
    told = {"optimizer": case.optimizer, "lr": case.rate}
    on_cpu = Trainer(case.problem, WORLD.budget, **told)
    losses = [on_cpu.step() for _ in range(rounds)]
    figures = {f"loss of round {rounds} on the CPU": f"{losses[-1]:.4f}"}
    for name, options in OPTIONS.items() if device == "cuda" else [("eager", ())]:
        trainer = Trainer(
            case.problem,
            WORLD.budget,
            device=device,
            **told,
            **dict.fromkeys(options, True),
        )
        ours = [trainer.step() for _ in range(rounds)]
        np.testing.assert_allclose(ours, losses, rtol=0.02)
        synchronize(device)
        start = time.perf_counter()
        for _ in range(timed):
            trainer.step()
        synchronize(device)
        figures[name] = (
            f"{ours[-1]:.4f}, {1e3 * (time.perf_counter() - start) / timed:.3f} ms a round"
        )
    return figures


def wrapper_beside_plain(device: str, folder: Path, length: int = 200) -> Figures:
    """Steps of the wrapper against a plain loop of the same network, batch and optimiser: ratios of
    times.
    """
    case = cifar(folder)
    if device == "cuda":
        options = OPTIONS
    else:
        options = {"eager": ()}
    ours = [wrapped(case, device, **dict.fromkeys(option, True)) for option in options.values()]

    def times(step: Callable[[], float]) -> Callable[[], list[float]]:
        # each reads its loss, and so waits for the device
        return lambda: [step() for _ in range(length)]

    by_hand, *seconds = best(*map(times, (plain(case, device), *ours)), clock=time.perf_counter)
    figures = {f"plain, {WORLD.budget} samples": f"{1e3 * by_hand / length:.3f} ms a step"}
    return figures | {
        name: f"{one / by_hand:.3f} of it" for name, one in zip(options, seconds, strict=True)
    }


def sum_of_ranks(device: str) -> float:
    """The sum of 1, 2, ... over the ranks of the group, computed on the device."""
    number = torch.full((1000,), dist.get_rank() + 1.0, device=device)
    dist.all_reduce(number)
    return float(number.mean())


def groups_of_two_ranks(device: str) -> Figures:
    """Two ranks on one device sum with gloo; whether they do with NCCL, which may refuse that, is a
    figure.
    """
    assert on_ranks(2, sum_of_ranks, device) == [3.0, 3.0]
    if device != "cuda":
        return {}
    try:
        sums = on_ranks(2, sum_of_ranks, device, backend="nccl")
    except RuntimeError as error:
        return {"NCCL": str(error).strip().splitlines()[-1][:120]}
    assert sums == [3.0, 3.0]
    return {"NCCL": "sums"}


def allocator_beside_ddp(device: str, turns: int = 8, length: int = 10) -> Figures:
    """A step of two ranks with TorchAllocator against one of plain DDP, all samples of a rank in
    one pass: ratios.
    """
    figures = {}
    for policy in ("uta", "default"):
        told = on_ranks(2, steps, policy, 64, 64, turns, length, device)
        assert all((one["tasks"].sum(axis=1) == 64).all() for one in told)
        ratio = np.mean([np.median(one["ours"][:, 0] / one["ddp"][:, 0]) for one in told])
        by_ddp = np.median(told[0]["ddp"][:, 0])
        figures[policy] = f"{ratio:.3f} of DDP's {1e3 * by_ddp:.2f} ms"
    return figures


def record(figures: Figures, record_property: Any) -> None:
    for name, value in figures.items():
        record_property(name, value)


@warnings_of_inductor
def test_the_network_of_cifar100_trains_as_on_the_cpu(record_property: Any, tmp_path: Path) -> None:
    record(training_of_cifar100("cuda", tmp_path), record_property)


@warnings_of_inductor
def test_the_wrapper_beside_plain_pytorch(record_property: Any, tmp_path: Path) -> None:
    record(wrapper_beside_plain("cuda", tmp_path), record_property)


def test_two_ranks_sum_on_one_device(record_property: Any) -> None:
    record(groups_of_two_ranks("cuda"), record_property)


def test_a_step_with_the_allocator_beside_ddp(record_property: Any) -> None:
    record(allocator_beside_ddp("cuda"), record_property)
