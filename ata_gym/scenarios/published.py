"""The published scenarios.

They are those of Maranjyan, Saad, Richtárik and Orabona, "ATA: Adaptive Task Allocation for Efficient Resource
Management in Distributed Machine Learning" (ICML 2025). Every published figure used the constants of the preprint, and
none are published for the ICML version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from ata_gym.pools import concatenate, exponential, gamma, half_normal, log_normal, shifted_exponential, uniform
from ata_gym.scenarios.scenario import AtaConstants, Published, Scenario
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


def _by_the_preprint(alpha: float, eta: float) -> Published:
    return Published(preprint=AtaConstants(float(alpha), eta))


def _shifted(name: str, growth: str, n: int, horizon: int) -> Scenario:
    formula, speed = GROWTH[growth]
    c = speed(np.arange(1.0, n + 1))
    return Scenario(
        name=name,
        pool=shifted_exponential(c, c),
        budget=23,
        horizon=horizon,
        published=_by_the_preprint(4 * c.max(), 2.0),
        summary=f"c + Exp(c), c = {formula}, i = 1..{n}",
        source=PAPER,
    )


def _regret() -> Scenario:
    means = 2 * np.arange(1.0, 21)
    return Scenario(
        name="icml2025-regret",
        pool=exponential(means),
        budget=5,
        horizon=4_000_000,
        published=_by_the_preprint(means.max(), 1.0),  # eta is not published: what alpha = max mean implies
        summary="Exp(2 i), i = 1..20",
        source=PAPER,
    )


def _mixed(n: int) -> Scenario:
    groups = [29.0 * (5 * g + 1) for g in range(n // 5)]
    workers = []
    for c in groups:
        workers += [shifted_exponential(c, c), uniform(1.5 * c, 2.5 * c), half_normal(mean=c, shift=c)]
        workers += [log_normal(np.log(c) / 2, np.sqrt(np.log(c)), shift=c), gamma(c**2, 1 / c, shift=c)]
    return Scenario(
        name=f"icml2025-mixed-n{n}",
        pool=concatenate(workers),
        budget=23,
        horizon=3_000_000,
        published=_by_the_preprint(4 * groups[-1], 2.0),
        summary=f"{n // 5} groups of five families (shifted exponential, uniform, half-normal, log-normal, gamma), "
        "all of mean 2 c in a group, c = 29 (5 g + 1)",
        source=PAPER,
    )


PUBLISHED: Mapping[str, Callable[[], Scenario]] = MappingProxyType(
    {
        "icml2025-cifar100": partial(_shifted, "icml2025-cifar100", "linear", 51, 750_000),
        "icml2025-regret": _regret,
        **{f"icml2025-mixed-n{n}": partial(_mixed, n) for n in (15, 45, 150)},
        **{
            name: partial(_shifted, name, growth, n, 3_000_000)
            for growth in GROWTH
            for n in SIZES
            for name in [f"icml2025-quadratic-{growth}-n{n}"]
        },
    }
)
