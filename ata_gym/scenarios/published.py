"""The published scenarios.

They are those of Maranjyan, Saad, Richtárik and Orabona, "ATA: Adaptive Task Allocation for Efficient Resource
Management in Distributed Machine Learning" (ICML 2025). Every published figure used the constants of the preprint, and
none are published for the ICML version.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from ata_gym.pools import Pool, concatenate, exponential, gamma, half_normal, log_normal, shifted_exponential, uniform
from ata_gym.scenarios.scenario import AtaConstants, Maker, Published, Scenario
from ata_gym.typing import Floats

PAPER = "Maranjyan et al., ATA, ICML 2025 (arXiv 2502.00775)"

GROWTH: dict[str, tuple[str, Callable[[Floats], Floats]]] = {
    "sqrt": ("29 sqrt(i)", lambda i: 29 * np.sqrt(i)),
    "linear": ("29 i", lambda i: 29 * i),
    "log": ("29 ln(i + 1)", lambda i: 29 * np.log(i + 1)),
    "square": ("29 i^2", lambda i: 29 * i**2),
}
"""How mean task times grow with the worker in the scenarios of the quadratic."""

SIZES = (17, 51, 153, 459)  # the numbers of workers in the scenarios of the quadratic


def _published(
    name: str, pool: Pool, horizon: int, alpha: float, summary: str, *, budget: int = 23, eta: float = 2.0
) -> Scenario:
    published = Published(preprint=AtaConstants(float(alpha), eta))
    return Scenario(pool, budget, horizon, name=name, published=published, summary=summary, source=PAPER)


def _shifted(growth: str, n: int, horizon: int) -> Maker:
    formula, speed = GROWTH[growth]

    def build(name: str) -> Scenario:
        c = speed(np.arange(1.0, n + 1))
        summary = f"c + Exp(c), c = {formula}, i = 1..{n}"
        return _published(name, shifted_exponential(c, c), horizon, 4 * c.max(), summary)

    return build


def _regret(name: str) -> Scenario:
    means = 2 * np.arange(1.0, 21)
    # eta is not published: what alpha = max mean implies
    return _published(name, exponential(means), 4_000_000, means.max(), "Exp(2 i), i = 1..20", budget=5, eta=1.0)


def _mixed(name: str) -> Scenario:
    groups = [29.0 * (5 * g + 1) for g in range(int(name.rpartition("-n")[2]) // 5)]
    workers = []
    for c in groups:
        workers += [shifted_exponential(c, c), uniform(1.5 * c, 2.5 * c), half_normal(mean=c, shift=c)]
        workers += [log_normal(np.log(c) / 2, np.sqrt(np.log(c)), shift=c), gamma(c**2, 1 / c, shift=c)]
    summary = (
        f"{len(groups)} groups of five families (shifted exponential, uniform, half-normal, log-normal, gamma), "
        "all of mean 2 c in a group, c = 29 (5 g + 1)"
    )
    return _published(name, concatenate(workers), 3_000_000, 4 * groups[-1], summary)


PUBLISHED: Mapping[str, Maker] = MappingProxyType(
    {
        "icml2025-cifar100": _shifted("linear", 51, 750_000),
        "icml2025-regret": _regret,
        **{f"icml2025-mixed-n{n}": _mixed for n in (15, 45, 150)},
        **{f"icml2025-quadratic-{growth}-n{n}": _shifted(growth, n, 3_000_000) for growth in GROWTH for n in SIZES},
    }
)
