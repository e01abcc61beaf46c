"""Scenarios of ours: a published one under one change each, stragglers, generators, and load.

The numbers of the changes are ours. The scenarios of stragglers have the names of the settings in
which LB-BSP was evaluated: Chen et al. call them Homo and Hetero-L1, L2 and L3 ("Semi-dynamic load
balancing", SoCC 2020). We know only the names.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ata_gym.changes import (
    Change,
    ColdAfterIdle,
    Correlated,
    Crash,
    Jump,
    Leak,
    Load,
    OnOff,
    Outliers,
    Periodic,
    ShareTime,
    Spot,
    Switch,
    Throttling,
    Walk,
    Warming,
)
from ata_gym.pools import gamma, log_normal
from ata_gym.scenarios.published import PUBLISHED
from ata_gym.scenarios.scenario import Maker, Scenario

_BASE = "icml2025-quadratic-linear-n51"
_FASTER = 1 / 102
"""The factor that makes the slowest worker twice as fast as the fastest.

The mean time of the slowest worker is 51 times the mean time of the fastest.
"""

_CHANGES: dict[str, tuple[Change, str]] = {
    "changing-permuted-linear-n51": (
        Switch(every=20_000),
        "all speeds permuted every 20,000 rounds",
    ),
    "changing-sleeper-linear-n51": (
        Jump(at=21_000, workers=(50,), factor=_FASTER),
        "the slowest worker, never used, becomes twice as fast as the fastest at round 21,000",
    ),
    "changing-periodic": (
        Periodic(2_000, 0.5),
        "load with a period of 2,000 rounds, between half and 1.5 times",
    ),
    "changing-walk": (
        Walk(0.01, float(np.log(4))),
        "speeds walk at random between a quarter and 4 times",
    ),
    "changing-straggler": (
        OnOff(10, 0.001, 0.01),
        "workers 10 times slower for spells of 100 rounds, 1 round in 11",
    ),
    "changing-correlated": (
        Correlated(0.5, 0.9),
        "half of the noise is shared in a round and lasts for some 10",
    ),
    "changing-outliers": (
        Outliers(0.003, 10, 30),
        "0.3 % of the tasks take 10 to 30 times the median",
    ),
    "changing-spot": (
        Spot(leaves=0.001, returns=0.01, deadline=1_000),
        "workers away for spells of 100 rounds, 1 round in 11; tasks handed on from 1,000 on",
    ),
    "changing-crash": (
        Crash(probability=0.001, within=800, away=100, deadline=1_000),
        "workers die in mid-round, every 1,000 rounds or so, for 100 rounds; tasks handed on"
        " from 1,000 on",
    ),
    "changing-load": (
        Load(0.6, 0.3, 0.05, 0.9),
        "cpu and memory load, which are signalled, drive the speeds",
    ),
    "changing-load-swap": (
        Load(0.3, 0, 0.05, 0.9, swap=0.9),
        "cpu load, and memory load above 0.9, from which on workers swap and are 10 times"
        " slower; both are signalled",
    ),
    "changing-load-hidden": (
        Load(0, 0, 0.5, 0.9),
        "load of the same size that the signals do not show",
    ),
}
_STRAGGLERS: dict[str, tuple[tuple[int, ...], tuple[Change, ...], str]] = {
    "stragglers-homo": ((1,), (), "alike: stragglers occur only by chance"),
    "stragglers-hetero-l1": ((1, 2), (), "in two equal groups, mean times 1 : 2"),
    "stragglers-hetero-l2": ((1, 2, 3, 4), (), "in four equal groups, mean times 1 : 2 : 3 : 4"),
    "stragglers-hetero-l3": (
        (1, 2, 3, 4),
        (Load(0.6, 0.3, 0.05, 0.9),),
        "in four equal groups, mean times 1 : 2 : 3 : 4, and slowed by cpu and memory load,"
        " which are signalled",
    ),
}
"""For each scenario the mean times of equal groups of workers, the changes, and a summary.

The mean times are in units of the mean time of the fastest group.
"""

_ROLLOUTS = {
    "rollouts-alike": (1.0, 1.0),
    "rollouts-unequal": (3.0, 1.0),
    "rollouts-heavy": (3.0, 2.0),
}
"""How much longer the slowest generator takes, and the coefficient of variation of lengths."""

_FOLLOWING: dict[str, tuple[Change, str]] = {
    "load-throttling": (
        Throttling(time_constant=300, hot=0.7, cool=0.4, factor=2),
        "twice as slow from 70 % of the full heat on, until 40 %; heat follows the busy time of"
        " some 300 units",
    ),
    "load-leak": (
        Leak(growth=0.05, restart=40, away=2, deadline=150),
        "each task makes the next ones 5 % of their time slower; after 40 tasks a worker restarts"
        " for 2 rounds, and tasks are handed on from 150 on",
    ),
    "load-cold-after-idle": (
        ColdAfterIdle(idle=10, factor=5),
        "5 times slower in the first round after 10 rounds without a task",
    ),
    "load-warming": (
        Warming(tasks=10, factor=20),
        "20 times slower until a worker has run 10 tasks",
    ),
    "load-warming-smooth": (
        Warming(tasks=20, factor=50, smooth=True),
        "50 times slower at first, and less so with each of 20 tasks",
    ),
    "load-link": (
        ShareTime(slope=0.1),
        "each task of a share makes the others 10 % slower; for TaskAllocation-v0 alone",
    ),
    "load-batching": (
        ShareTime(saturation=4),
        "a share of fewer than 4 tasks takes as long as 4; for TaskAllocation-v0 alone",
    ),
}


def _changed(name: str) -> Scenario:
    base = PUBLISHED[_BASE](_BASE)
    change, summary = _CHANGES[name]
    summary = f"{base.summary}; {summary}"
    source = f"ours, on {_BASE} of {base.source}"
    return Scenario(
        base.pool,
        base.budget,
        100_000,
        (change,),
        name=name,
        summary=summary,
        source=source,
    )


def _steady(name: str) -> Scenario:
    """A scenario of outliers in task times that hardly vary otherwise."""
    noisy = _changed("changing-outliers")
    pool = gamma(100.0, noisy.pool.mean() / 100)
    summary = (
        "gamma times of CV .1, means 58 i, i = 1..51; 0.3 % of the tasks take 10 to 30 times the"
        " median"
    )
    return replace(noisy, name=name, pool=pool, summary=summary, source="ours")


def _straggling(name: str) -> Scenario:
    groups, changes, description = _STRAGGLERS[name]
    means = 10.0 * np.repeat(np.asarray(groups, np.float64), 16 // len(groups))
    summary = f"16 workers, gamma times of CV .1, {description} (our definition)"
    source = (
        "ours: the names come from LB-BSP's evaluation (Chen et al., SoCC 2020), whose"
        " definitions we do not know"
    )
    return Scenario(
        gamma(100.0, means / 100.0),
        64,
        20_000,
        changes,
        name=name,
        summary=summary,
        source=source,
    )


def _generating(name: str) -> Scenario:
    ratio, cv = _ROLLOUTS[name]
    # log-normal times have mean exp(mu + sigma^2 / 2) and CV sqrt(exp(sigma^2) - 1)
    sigma = np.sqrt(np.log1p(cv**2))
    mu = np.log(10.0 * np.geomspace(1.0, ratio, 32)) - sigma**2 / 2
    summary = (
        f"32 generators of text, log-normal lengths of CV {cv:g}, the slowest takes {ratio:g} times"
        " as long"
    )
    return Scenario(log_normal(mu, sigma), 64, 5_000, name=name, summary=summary, source="ours")


def _following(name: str) -> Scenario:
    change, description = _FOLLOWING[name]
    return Scenario(
        gamma(25.0, np.geomspace(10.0, 40.0, 8) / 25.0),
        24,
        500,
        (change,),
        name=name,
        summary=f"8 workers, gamma times of CV .2, means 10 to 40; {description}",
        source="ours",
    )


CHANGING: Mapping[str, Maker] = MappingProxyType(
    {**dict.fromkeys(_CHANGES, _changed), "changing-outliers-steady": _steady},
)
_ALL: dict[str, Maker] = {
    **dict.fromkeys(_STRAGGLERS, _straggling),
    **dict.fromkeys(_ROLLOUTS, _generating),
}
STRAGGLERS: Mapping[str, Maker] = MappingProxyType(_ALL)
FOLLOWING: Mapping[str, Maker] = MappingProxyType(dict.fromkeys(_FOLLOWING, _following))
