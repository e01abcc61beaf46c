"""Scenarios by name, and from the arguments of an env."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from ata_gym.changes import Change
from ata_gym.scenarios.changing import CHANGING, STRAGGLERS
from ata_gym.scenarios.for_agents import FOR_AGENTS, SMALL
from ata_gym.scenarios.published import PUBLISHED
from ata_gym.scenarios.scenario import PoolData, Scenario
from ata_gym.utils.validation import short, unknown

_GROUPS = {"published": PUBLISHED, "changing": CHANGING, "stragglers": STRAGGLERS, "small or for agents": FOR_AGENTS}
_BUILDERS = {name: build for group in _GROUPS.values() for name, build in group.items()}


def scenario_names() -> tuple[str, ...]:
    """The names of all scenarios but the recorded ones, which need a file.

    >>> "five-workers" in scenario_names()
    True
    """
    return tuple(_BUILDERS)


def scenario_groups() -> dict[str, tuple[str, ...]]:
    """The names of all scenarios, by what they are for.

    >>> scenario_groups()["stragglers"][0]
    'stragglers-homo'
    """
    return {title: tuple(group) for title, group in _GROUPS.items()}


@cache
def scenario(name: str) -> Scenario:
    """The scenario of that name.

    ValueError is raised if there is none; the message names the nearest.

    >>> found = scenario("icml2025-cifar100")
    >>> found.pool.n, found.budget, found.published.preprint
    (51, 23, AtaConstants(alpha=5916.0, eta=2.0))
    """
    if name not in _BUILDERS:
        raise unknown("scenario", name, _BUILDERS)
    return _BUILDERS[name]()


def resolve(
    named: str | Scenario | None = None,
    pool: PoolData | None = None,
    budget: int | None = None,
    horizon: int | None = None,
    price: float | None = None,
    changes: Iterable[Change | Mapping[str, Any]] | None = None,
) -> Scenario:
    """The scenario that the arguments of an env describe: a named one, or a pool with a budget.

    The other arguments override what a named scenario has. Without a scenario and a pool it is ``SMALL``, with a
    horizon. ValueError is raised if both are given, there is no such name, or a value is not legal.

    >>> resolve("icml2025-regret", budget=7).budget
    7
    """
    if named is not None and pool is not None:
        raise ValueError('give either scenario="..." or pool=... (with budget=...), and not both')
    if named is None and pool is None:
        named = SMALL
    given: dict[str, Any] = {"budget": budget, "horizon": horizon, "price": price, "changes": changes}
    given = {name: value for name, value in given.items() if value is not None}
    if named is not None:
        found = scenario(named) if isinstance(named, str) else named
        if not isinstance(found, Scenario):
            raise ValueError(f"scenario must be a name or a Scenario, not {short(named)}")
        return replace(found, **given) if given else found
    if "budget" not in given:
        raise ValueError("a pool needs budget=..., the number of results that a round needs")
    return Scenario(pool, **given)  # type: ignore[arg-type]
