"""Scenarios by name, and from the arguments of an env."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from ata_gym.changes import Change
from ata_gym.pools.pool import LatencyData, Pool
from ata_gym.scenarios.changing import CHANGING, FOLLOWING, STRAGGLERS
from ata_gym.scenarios.for_agents import FOR_AGENTS, SMALL
from ata_gym.scenarios.published import COUNTEREXAMPLES, PUBLISHED
from ata_gym.scenarios.scenario import Maker, PoolData, Scenario, as_distribution
from ata_gym.utils.validation import short, unknown

SCENARIO_GROUPS: Mapping[str, Mapping[str, Maker]] = MappingProxyType(
    {
        "published": PUBLISHED,
        "against a published factor": COUNTEREXAMPLES,
        "changing": CHANGING,
        "stragglers": STRAGGLERS,
        "following the load": FOLLOWING,
        "small or for agents": FOR_AGENTS,
    },
)
"""The scenarios that need no file: by what they are for, the maker of each by its name."""
_BUILDERS = {name: build for group in SCENARIO_GROUPS.values() for name, build in group.items()}


def scenario_names() -> tuple[str, ...]:
    """The names of all scenarios but the recorded ones, which need a file.

    Example:
        >>> "five-workers" in scenario_names()
        True
    """
    return tuple(_BUILDERS)


@cache
def scenario(name: str) -> Scenario:
    """The scenario of that name.

    Raises:
        ValueError: If there is none; the error names the nearest name.

    Example:
        >>> cifar100 = scenario("icml2025-cifar100")
        >>> cifar100.pool.n, cifar100.budget, cifar100.published.preprint
        (51, 23, AtaConstants(alpha=5916.0, eta=2.0))
    """
    if name not in _BUILDERS:
        raise unknown("scenario", name, _BUILDERS)
    return _BUILDERS[name](name)


def resolve(
    scenario_or_name: str | Scenario | Mapping[str, Any] | None = None,
    pool: PoolData | None = None,
    budget: int | None = None,
    horizon: int | None = None,
    price: float | None = None,
    changes: Iterable[Change | Mapping[str, Any]] | None = None,
    unit_costs: Iterable[float] | None = None,
    latency: LatencyData | None = None,
) -> Scenario:
    """The scenario that the arguments of an env describe.

    It is a named scenario, one from its data, or a pool with a budget. The other arguments are
    fields of ``Scenario``; they override what a named scenario has.

    Args:
        scenario_or_name: The name of a scenario, a scenario, or its data; by default ``SMALL``.
        pool: The workers of a scenario without a name; it needs a budget.
        latency: What the workers pay before their first task of a round, see ``Pool.with_latency``.

    Raises:
        ValueError: If there are both ``scenario_or_name`` and ``pool``, for a name that no scenario
            has, and for a value that is not legal.

    Example:
        >>> resolve("icml2025-regret", budget=7).budget
        7
    """
    if scenario_or_name is not None and pool is not None:
        raise ValueError('give either scenario="..." or pool=... (with budget=...), and not both')
    arguments: dict[str, Any] = {
        "budget": budget,
        "horizon": horizon,
        "price": price,
        "changes": changes,
        "unit_costs": unit_costs,
    }
    overrides = {name: value for name, value in arguments.items() if value is not None}
    if pool is not None:
        if budget is None:
            raise ValueError("a pool needs budget=..., the number of results that a round needs")
        if latency is not None:
            pool = _with_latency(pool, latency)
        return Scenario(pool, **overrides)  # type: ignore[arg-type]
    if scenario_or_name is None:
        resolved: object = SMALL
    else:
        resolved = scenario_or_name
    if isinstance(resolved, str):
        resolved = scenario(resolved)
    elif isinstance(resolved, Mapping):
        resolved = Scenario.from_data(resolved)
    if not isinstance(resolved, Scenario):
        # a ValueError, as for all other values that are not legal
        raise ValueError(  # noqa: TRY004
            f"scenario must be a name or a Scenario, not {short(scenario_or_name)}",
        )
    if latency is not None:
        overrides["pool"] = _with_latency(resolved.pool_distribution or resolved.pool, latency)
    if overrides:
        return replace(resolved, **overrides)
    return resolved


def _with_latency(pool: PoolData, latency: LatencyData) -> Pool:
    """The pool, whose workers pay this latency."""
    if as_distribution(pool) is not None:
        raise ValueError(
            "workers that are drawn anew pay no latency: give latency=... with a fixed pool",
        )
    return Pool.from_data(pool).with_latency(latency)  # type: ignore[arg-type]
