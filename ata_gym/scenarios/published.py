"""The published scenarios, and one for which a published factor does not hold.

The source is Maranjyan, Saad, Richtárik and Orabona, "ATA: Adaptive Task Allocation for Efficient
Resource Management in Distributed Machine Learning" (ICML 2025). Every published figure used the
constants of the preprint, and none are published for the ICML version.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np

from ata_gym.pools import (
    Pool,
    concatenate,
    deterministic,
    exponential,
    gamma,
    half_normal,
    log_normal,
    shifted_exponential,
    uniform,
)
from ata_gym.scenarios.scenario import AtaConstants, Maker, Published, Scenario
from ata_gym.typing import Floats
from ata_gym.utils.validation import whole_number

PAPER = "Maranjyan et al., ATA, ICML 2025 (arXiv 2502.00775)"

GROWTH: dict[str, tuple[str, Callable[[Floats], Floats]]] = {
    "sqrt": ("29 sqrt(i)", lambda i: 29 * np.sqrt(i)),
    "linear": ("29 i", lambda i: 29 * i),
    "log": ("29 ln(i + 1)", lambda i: 29 * np.log(i + 1)),
    "square": ("29 i^2", lambda i: 29 * i**2),
}
"""How mean task times grow with the worker in the scenarios of the quadratic."""

SIZES = (17, 51, 153, 459)
"""The numbers of workers in the scenarios of the quadratic."""


def _published(
    name: str,
    pool: Pool,
    horizon: int,
    alpha: float,
    summary: str,
    *,
    budget: int = 23,
    eta: float = 2.0,
) -> Scenario:
    published = Published(preprint=AtaConstants(float(alpha), eta))
    return Scenario(
        pool,
        budget,
        horizon,
        name=name,
        published=published,
        summary=summary,
        source=PAPER,
    )


def _shifted(growth: str, horizon: int) -> Callable[..., Scenario]:
    formula, speed = GROWTH[growth]

    def build(name: str, n: int) -> Scenario:
        c = speed(np.arange(1.0, n + 1))
        summary = f"c + Exp(c), c = {formula}, i = 1..{n}"
        return _published(name, shifted_exponential(c, c), horizon, 4 * c.max(), summary)

    return build


def _regret(name: str, n: int) -> Scenario:
    means = 2 * np.arange(1.0, n + 1)
    # eta is not published: alpha is the largest mean, and eta = 1 follows from it
    return _published(
        name,
        exponential(means),
        4_000_000,
        means.max(),
        f"Exp(2 i), i = 1..{n}",
        budget=5,
        eta=1.0,
    )


def _mixed(name: str, n: int) -> Scenario:
    if n % 5:
        raise ValueError(
            f"{name} has groups of five workers: their number must be a multiple of 5, not {n}",
        )
    groups = [29.0 * (5 * g + 1) for g in range(n // 5)]
    workers = []
    for c in groups:
        # five families, all of mean 2 c
        workers += [
            shifted_exponential(c, c),
            uniform(1.5 * c, 2.5 * c),
            half_normal(mean=c, shift=c),
            log_normal(np.log(c) / 2, np.sqrt(np.log(c)), shift=c),
            gamma(c**2, 1 / c, shift=c),
        ]
    summary = (
        f"{len(groups)} groups of five families (shifted exponential, uniform, half-normal,"
        " log-normal, gamma), all of mean 2 c in a group, c = 29 (5 g + 1)"
    )
    return _published(name, concatenate(workers), 3_000_000, 4 * groups[-1], summary)


_FORMULAS: dict[str, tuple[Callable[..., Scenario], tuple[int, ...]]] = {
    "icml2025-cifar100": (_shifted("linear", 750_000), (51,)),
    "icml2025-regret": (_regret, (20,)),
    "icml2025-mixed": (_mixed, (15, 45, 150)),
    **{f"icml2025-quadratic-{growth}": (_shifted(growth, 3_000_000), SIZES) for growth in GROWTH},
}
"""How the workers follow from their number, and the published numbers."""

PUBLISHED: Mapping[str, Maker] = MappingProxyType(
    {
        stem if len(numbers) == 1 else f"{stem}-n{n}": partial(formula, n=n)
        for stem, (formula, numbers) in _FORMULAS.items()
        for n in numbers
    },
)


def _counterexample(name: str) -> Scenario:
    pool = exponential(np.full(23, 0.8)) + deterministic(np.ones(23))
    summary = (
        "23 workers Exp(0.8) beside 23 that take 1: the factor of the preprint's theorem does not"
        " hold"
    )
    return Scenario(pool, 23, 20_000, name=name, summary=summary, source="ours")


COUNTEREXAMPLES: Mapping[str, Maker] = MappingProxyType(
    {"counterexample-preprint": _counterexample},
)


def with_workers(scenario: Scenario, n: int) -> Scenario:
    """A published scenario with ``n`` workers, which follow from their number by its formula.

    ATA's constants follow by the paper's rule.

    Raises:
        ValueError: If the workers of the scenario follow none of the formulas, or a formula that
            does not allow the number.
    """
    stem = re.sub(r"-n\d+$", "", scenario.name)
    n = whole_number("workers", n)
    formula, _ = _FORMULAS.get(stem, (None, ()))
    # a scenario may have the name of a published one, and other workers
    if formula is None or formula(scenario.name, scenario.pool.n).pool != scenario.pool:
        raise ValueError(
            f"the workers of {scenario.name or 'this scenario'} follow no formula of their number:"
            f" take one of {', '.join(_FORMULAS)}, or give several scenarios",
        )
    if n == scenario.pool.n:
        name = scenario.name
    else:
        name = f"{stem}-n{n}"
    new_scenario = formula(name, n)
    return replace(
        new_scenario, budget=scenario.budget, price=scenario.price, horizon=scenario.horizon
    )
