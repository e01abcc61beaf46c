"""Scenarios by name, and from the arguments of an env."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from ata_gym.changes import Change
from ata_gym.scenarios.changing import CHANGING, STRAGGLERS
from ata_gym.scenarios.for_agents import FOR_AGENTS, SMALL
from ata_gym.scenarios.published import COUNTEREXAMPLES, PUBLISHED
from ata_gym.scenarios.scenario import Maker, PoolData, Scenario
from ata_gym.utils.validation import short, unknown

SCENARIO_GROUPS: Mapping[str, Mapping[str, Maker]] = MappingProxyType(
    {
        "published": PUBLISHED,
        "against a published factor": COUNTEREXAMPLES,
        "changing": CHANGING,
        "stragglers": STRAGGLERS,
        "small or for agents": FOR_AGENTS,
    }
)
"""The scenarios that need no file, by what they are for, and by name how each is made."""
_BUILDERS = {name: build for group in SCENARIO_GROUPS.values() for name, build in group.items()}


def scenario_names() -> tuple[str, ...]:
    """The names of all scenarios but the recorded ones, which need a file.

    >>> "five-workers" in scenario_names()
    True
    """
    return tuple(_BUILDERS)


@cache
def scenario(name: str) -> Scenario:
    """The scenario of that name; ValueError, which names the nearest, if there is none.

    >>> found = scenario("icml2025-cifar100")
    >>> found.pool.n, found.budget, found.published.preprint
    (51, 23, AtaConstants(alpha=5916.0, eta=2.0))
    """
    if name not in _BUILDERS:
        raise unknown("scenario", name, _BUILDERS)
    return _BUILDERS[name](name)


def resolve(
    named: str | Scenario | Mapping[str, Any] | None = None, pool: PoolData | None = None, budget: int | None = None,
    horizon: int | None = None, price: float | None = None,
    changes: Iterable[Change | Mapping[str, Any]] | None = None, unit_costs: Iterable[float] | None = None,
) -> Scenario:  # fmt: skip
    """The scenario that the arguments of an env describe: a named one, one from its data, or a pool with a budget.

    The other arguments override what a named scenario has. Without a scenario and a pool it is ``SMALL``. ValueError if
    both are given, there is no such name, or a value is not legal.

    >>> resolve("icml2025-regret", budget=7).budget
    7
    """
    if named is not None and pool is not None:
        raise ValueError('give either scenario="..." or pool=... (with budget=...), and not both')
    overrides: dict[str, Any] = {"budget": budget, "horizon": horizon, "price": price, "changes": changes}
    overrides["unit_costs"] = unit_costs
    given = {name: value for name, value in overrides.items() if value is not None}
    if pool is not None:
        if budget is None:
            raise ValueError("a pool needs budget=..., the number of results that a round needs")
        return Scenario(pool, **given)  # type: ignore[arg-type]
    found = SMALL if named is None else named
    if isinstance(found, str):
        found = scenario(found)
    elif isinstance(found, Mapping):
        found = Scenario.from_data(found)
    if not isinstance(found, Scenario):
        raise ValueError(f"scenario must be a name or a Scenario, not {short(named)}")  # noqa: TRY004 - as all here
    return replace(found, **given) if given else found
