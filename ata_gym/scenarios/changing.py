"""Scenarios that change: a published stationary scenario under one change each. The numbers of the changes are ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np

from ata_gym.changes import (
    Change,
    Correlated,
    Crash,
    Jump,
    Load,
    OnOff,
    Outliers,
    Periodic,
    Spot,
    Switch,
    Walk,
)
from ata_gym.pools import gamma
from ata_gym.scenarios.published import PUBLISHED
from ata_gym.scenarios.scenario import Scenario

_BASE = "icml2025-quadratic-linear-n51"
_HORIZON = 100_000
_FASTER = 1 / 102
"""Factor from the mean of the slowest worker, 51 times that of the fastest, to half of the fastest worker's."""

_CHANGES: dict[str, tuple[Change, str]] = {
    "changing-permuted-linear-n51": (Switch(every=20_000), "all speeds permuted every 20,000 rounds"),
    "changing-sleeper-linear-n51": (
        Jump(at=21_000, workers=(50,), factor=_FASTER),
        "the slowest worker, never used, becomes twice as fast as the fastest at round 21,000",
    ),
    "changing-periodic": (Periodic(2_000, 0.5), "load with a period of 2,000 rounds, between half and 1.5 times"),
    "changing-walk": (Walk(0.01, float(np.log(4))), "speeds walk at random between a quarter and 4 times"),
    "changing-straggler": (OnOff(10, 0.001, 0.01), "workers 10 times slower for spells of 100 rounds, 1 round in 11"),
    "changing-correlated": (Correlated(0.5, 0.9), "half of the noise is shared in a round and lasts for some 10"),
    "changing-outliers": (Outliers(0.003, 10, 30), "0.3 % of the tasks take 10 to 30 times the median"),
    "changing-spot": (
        Spot(leaves=0.001, returns=0.01, deadline=1_000),
        "workers away for spells of 100 rounds, 1 round in 11; tasks handed on from 1,000 on",
    ),
    "changing-crash": (
        Crash(probability=0.001, within=800, away=100, deadline=1_000),
        "workers die in mid-round, every 1,000 rounds or so, for 100 rounds; tasks handed on from 1,000 on",
    ),
    "changing-load": (Load(0.6, 0.3, 0.05, 0.9), "cpu and memory load, which are signalled, drive the speeds"),
    "changing-load-swap": (
        Load(0.3, 0, 0.05, 0.9, swap=0.9),
        "cpu load, and memory load above 0.9, from which on workers swap and are 10 times slower; both are signalled",
    ),
    "changing-load-hidden": (Load(0, 0, 0.5, 0.9), "load of the same size that the signals do not show"),
}


def _changed(name: str) -> Scenario:
    """Alpha and eta are those that were published for the stationary scenario."""
    base, (change, summary) = PUBLISHED[_BASE](), _CHANGES[name]
    return replace(
        base,
        name=name,
        changes=(change,),
        horizon=_HORIZON,
        summary=f"{base.summary}; {summary}",
        source=f"ours, on {_BASE} of {base.source}",
    )


def _steady() -> Scenario:
    """Outliers among times that hardly vary otherwise; alpha and eta stay those of the published scenario."""
    noisy = _changed("changing-outliers")
    means = PUBLISHED[_BASE]().pool.mean()
    return replace(
        noisy,
        name="changing-outliers-steady",
        pool=gamma(100.0, means / 100),
        summary="gamma times of CV .1, means 58 i, i = 1..51; 0.3 % of the tasks take 10 to 30 times the median",
        source="ours",
    )


CHANGING: Mapping[str, Callable[[], Scenario]] = MappingProxyType(
    {name: partial(_changed, name) for name in _CHANGES} | {"changing-outliers-steady": _steady}
)
"""How each scenario is made, by name."""
