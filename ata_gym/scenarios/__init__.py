"""The named worlds: a pool, a budget, a horizon and the published hyperparameters, as frozen data."""

from __future__ import annotations

from functools import cache

from ata_gym.checks import unknown
from ata_gym.scenarios.changing import CHANGING
from ata_gym.scenarios.published import PAPER, PUBLISHED
from ata_gym.scenarios.scenario import Scenario
from ata_gym.scenarios.stragglers import STRAGGLERS

__all__ = ["PAPER", "Scenario", "scenario", "scenario_names"]

_BUILDERS = {**PUBLISHED, **CHANGING, **STRAGGLERS}


def scenario_names() -> tuple[str, ...]:
    """The names of all scenarios."""
    return tuple(_BUILDERS)


@cache
def scenario(name: str) -> Scenario:
    """The scenario of that name.

    Raises
    ------
    ValueError
        If there is none; the message names the nearest.

    Examples
    --------
    >>> world = scenario("icml2025-cifar100")
    >>> world.pool.n, world.budget, world.alpha, world.eta
    (51, 23, 5916.0, 2.0)
    """
    if name not in _BUILDERS:
        raise unknown("scenario", name, _BUILDERS)
    return _BUILDERS[name]()
