"""Four scenarios of stragglers, named after those in which LB-BSP was evaluated.

Chen et al. call them Homo and Hetero-L1, L2 and L3 ("Semi-dynamic load balancing", SoCC 2020). We know only the names;
the definitions are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from ata_gym.changes import Change, Load
from ata_gym.pools import gamma
from ata_gym.scenarios.scenario import Scenario

_WORKERS, _BUDGET, _HORIZON = 16, 64, 20_000
_FASTEST = 10.0
"""Mean task time of the fastest workers."""
_SHAPE = 100.0
"""Gamma times of this shape have a coefficient of variation of .1."""

_SETTINGS: dict[str, tuple[tuple[int, ...], tuple[Change, ...], str]] = {
    "stragglers-homo": ((1,), (), "alike: stragglers occur only by chance"),
    "stragglers-hetero-l1": ((1, 2), (), "in two equal groups, mean times 1 : 2"),
    "stragglers-hetero-l2": ((1, 2, 3, 4), (), "in four equal groups, mean times 1 : 2 : 3 : 4"),
    "stragglers-hetero-l3": (
        (1, 2, 3, 4),
        (Load(0.6, 0.3, 0.05, 0.9),),
        "in four equal groups, mean times 1 : 2 : 3 : 4, and slowed by cpu and memory load, which are signalled",
    ),
}


def _setting(name: str, groups: Sequence[int], changes: Sequence[Change], summary: str) -> Scenario:
    means = _FASTEST * np.repeat(np.asarray(groups, np.float64), _WORKERS // len(groups))
    return Scenario(
        name=name,
        pool=gamma(_SHAPE, means / _SHAPE),
        budget=_BUDGET,
        horizon=_HORIZON,
        changes=tuple(changes),
        alpha=float(2 * means.max()),  # ours, as eta: the published rule, 2 x the largest mean
        eta=2.0,
        summary=f"{_WORKERS} workers, gamma times of CV .1, {summary} (our definition)",
        source="ours: the names are those of LB-BSP's evaluation (Chen et al., SoCC 2020), "
        "whose definitions we do not know",
    )


STRAGGLERS: Mapping[str, Callable[[], Scenario]] = MappingProxyType(
    {name: partial(_setting, name, *setting) for name, setting in _SETTINGS.items()}
)
"""How each scenario is made, by name."""
