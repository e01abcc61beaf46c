"""What an update of the methods of 2026 costs beside Ringmaster's, with as many gradients.

Printed as ratios of times, measured in turns in this run. ``make benchmark`` runs it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ata_gym  # noqa: E402
from ata_gym.training import MethodRun  # noqa: E402
from tests.benchmarks.test_throughput import best  # noqa: E402

pytestmark = pytest.mark.benchmark

WORLD = ata_gym.scenario("five-workers")
GRADIENTS = 64
TARGET = 1.1
CASES: list[tuple[str, dict[str, Any]]] = [
    ("rescaled-asgd", {}),
    ("rescaled-asgd", {"discount": 0.9}),
    ("rennala-mvr", {}),
    ("ringmaster-lmo", {"norm": "euclidean"}),
    ("ringmaster-lmo", {"norm": "sign"}),
    ("ringmaster-lmo", {"norm": "spectral"}),
    ("local-sgd", {}),
    ("loscar-sgd", {}),
]
LIMIT = 1.35
"""Above the target, since a shared processor slows small tensors more than long products."""
LIMIT_OF_MUON = 6.0
"""Five Newton-Schulz steps for each matrix cost more than the gradient of one small sample."""


def played(name: str, problem: str, **arguments: Any) -> Callable[[], None]:
    """A call that goes on until about 64 more gradients are used."""
    run = MethodRun(name, WORLD.pool, problem, budget=8, lr=1e-4, **arguments)
    used = 0

    def play() -> None:
        nonlocal used
        used += GRADIENTS
        while next(run).used < used:
            pass

    return play


@pytest.mark.parametrize("problem", ["quadratic", "digits"])
def test_an_update_beside_that_of_ringmaster(problem: str, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(1)
    runs = [played("ringmaster", problem, max_delay=100)]
    runs += [played(name, problem, **arguments) for name, arguments in CASES]
    ringmaster, *others = best(*runs, repeats=10)
    print(f"\n{problem}: ringmaster {ringmaster / GRADIENTS * 1e6:.0f} us a gradient")
    for (name, arguments), time in zip(CASES, others, strict=True):
        ratio = time / ringmaster
        print(f"{name} {arguments}: {ratio:.3f} times ringmaster's (target: at most {TARGET})")
        limit = LIMIT_OF_MUON if arguments.get("norm") == "spectral" else LIMIT
        assert ratio < limit
