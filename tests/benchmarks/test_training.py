"""What the wrapper costs: its step beside a plain PyTorch loop of the same model, batch and optimiser.

Printed as a ratio of best times, measured in turns in this run. ``make benchmark`` runs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import cross_entropy  # noqa: E402

import ata_gym  # noqa: E402
from ata_gym.training import TrainingWrapper, make_problem  # noqa: E402

pytestmark = pytest.mark.benchmark

WORLD = ata_gym.scenario("icml2025-cifar100")
IMAGES = 5000
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The network of CIFAR-100 on images of noise; what is in them does not change the time."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("images") / "noise.npz"
    parts = {f"{which}_x": rng.integers(0, 256, (IMAGES, 32, 32, 3), np.uint8) for which in ("train", "test")}
    labels = {f"{which}_y": rng.integers(0, 100, IMAGES) for which in ("train", "test")}
    np.savez(path, allow_pickle=False, **parts, **labels)
    return make_problem("cifar100", path)


def plain(problem: Any, device: str) -> Callable[[], float]:
    """A step as one writes it by hand, with torch's own draws."""
    model = problem.build().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-5)
    images, labels = (part.to(device) for part in problem._train)

    def step() -> float:
        chosen = torch.randint(IMAGES, (WORLD.budget,), device=device)
        optimizer.zero_grad()
        loss = cross_entropy(model(images[chosen].float() / 127.5 - 1), labels[chosen])
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def wrapped(problem: Any, device: str, **options: Any) -> Callable[[], float]:
    """A step of the wrapper, with the env's round."""
    env = TrainingWrapper(
        gym.make("ata_gym/TaskAllocation-v0", scenario=WORLD.name),
        problem, optimizer="adam", lr=8e-5, device=device, **options,
    )  # fmt: skip
    env.reset(seed=0)
    allocation = np.zeros(WORLD.pool.n, np.int64)
    allocation[: WORLD.budget] = 1
    return lambda: float(env.step(allocation)[-1]["loss"])


def best(*steps: Callable[[], float], times: int = 20, repeats: int = 25) -> list[float]:
    """Seconds of each step at its best, in turns, after a warm-up."""
    least = [float("inf")] * len(steps)
    for turn in range(repeats + 1):
        for which, step in enumerate(steps):
            start = time.perf_counter()
            for _ in range(times):
                step()
            if turn:
                least[which] = min(least[which], (time.perf_counter() - start) / times)
    return least


def test_overhead_on_a_cpu(problem: Any) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the waiting of more threads for each other would hide it
    try:
        by_hand, ours = best(plain(problem, "cpu"), wrapped(problem, "cpu"))
    finally:
        torch.set_num_threads(threads)
    print(f"\nCPU, B = {WORLD.budget}: plain {by_hand * 1e3:.2f} ms, wrapped {ours * 1e3:.2f} ms a step")
    print(f"ratio {ours / by_hand:.3f} (target: at most 1.10)")
    assert ours / by_hand < 1.10


@pytest.mark.gpu
@GPU
def test_speed_on_a_gpu(problem: Any) -> None:
    options: dict[str, dict[str, Any]] = {
        "eager": {},
        "graphs": {"graphs": True},
        "compile": {"compile": True},
        "compile and graphs": {"compile": True, "graphs": True},
    }
    steps = [wrapped(problem, "cuda", **option) for option in options.values()]
    by_hand, *ours = best(plain(problem, "cuda"), *steps, times=200)
    print(f"\n{torch.cuda.get_device_name()}, B = {WORLD.budget}: plain {by_hand * 1e3:.3f} ms a step")
    speeds = {name: by_hand / seconds for name, seconds in zip(options, ours, strict=True)}
    for name, speed in speeds.items():
        print(f"wrapped, {name}: {speed:.2f} times its speed")
    assert speeds["eager"] >= 1
    assert max(speeds.values()) >= 3
