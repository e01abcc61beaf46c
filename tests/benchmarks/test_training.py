"""What the wrapper costs: its step beside a plain PyTorch loop of the same model, batch and
optimiser.

Printed as a ratio of times, measured in turns in this run. ``make benchmark`` runs it.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import cross_entropy  # noqa: E402

import ata_gym  # noqa: E402
from ata_gym.training import Classification, TrainingWrapper, make_problem  # noqa: E402
from tests.benchmarks.test_throughput import best  # noqa: E402

pytestmark = pytest.mark.benchmark

WORLD = ata_gym.scenario("icml2025-cifar100")


class Case(NamedTuple):
    problem: Any
    optimizer: str
    rate: float
    inputs: Callable[[Any], Any]
    times: int
    target: float
    limit: float
    """Above the target, since a shared processor slows the small arrays of the env more than long
    products.
    """


def cifar(folder: Path) -> Case:
    """The network of CIFAR-100 on images of noise; what is in them does not change the time."""
    rng = np.random.default_rng(0)
    path = folder / "noise.npz"
    parts = {
        f"{which}_x": rng.integers(0, 256, (5000, 32, 32, 3), np.uint8)
        for which in ("train", "test")
    }
    labels = {f"{which}_y": rng.integers(0, 100, 5000) for which in ("train", "test")}
    np.savez(path, allow_pickle=False, **parts, **labels)
    return Case(
        make_problem("cifar100", path),
        "adam",
        8e-5,
        lambda x: x.float() / 127.5 - 1,
        100,
        1.03,
        1.15,
    )


def digits(_: Path) -> Case:
    return Case(make_problem("digits"), "sgd", 0.05, lambda x: x, 500, 1.10, 1.35)


def linear(_: Path) -> Case:
    """Sixteen weights: nearly all time is Python's."""
    data = torch.randn(1000, 8), torch.arange(1000) % 2
    problem = Classification(lambda: torch.nn.Linear(8, 2, bias=False), data, data)
    return Case(problem, "sgd", 0.05, lambda x: x, 3000, 1.5, 3.0)


def plain(case: Case, device: str = "cpu") -> Callable[[], float]:
    model = case.problem.build().to(device)
    make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[case.optimizer]
    optimizer = make(model.parameters(), lr=case.rate)
    images, labels = (part.to(device) for part in case.problem._train)

    def step() -> float:
        chosen = torch.randint(len(labels), (WORLD.budget,), device=device)
        optimizer.zero_grad()
        loss = cross_entropy(model(case.inputs(images[chosen])), labels[chosen])
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def wrapped(case: Case, device: str = "cpu", **options: Any) -> Callable[[], float]:
    env = TrainingWrapper(
        gym.make("ata_gym/TaskAllocation-v0", scenario=WORLD.name),
        case.problem,
        optimizer=case.optimizer,
        lr=case.rate,
        device=device,
        **options,
    )
    env.reset(seed=0)
    allocation = np.zeros(WORLD.pool.n, np.int64)
    allocation[: WORLD.budget] = 1
    return lambda: float(env.step(allocation)[-1]["loss"])


@pytest.mark.parametrize("problem", [cifar, digits, linear])
def test_overhead_on_a_cpu(
    problem: Callable[[Path], Case],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    case = problem(tmp_path)
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(1)  # the waiting of more threads for each other would hide it
    by_hand, ours = best(plain(case), wrapped(case), repeats=case.times)
    print(
        f"\n{problem.__name__}, B = {WORLD.budget}: plain {by_hand * 1e6:.0f} us, wrapped"
        f" {ours * 1e6:.0f} us a step",
    )
    print(f"ratio {ours / by_hand:.3f} (target: at most {case.target})")
    assert ours / by_hand < case.limit
