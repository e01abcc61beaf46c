"""Changes: how the workers of a pool change from round to round.

``pool.changing(Switch(every=20_000), Walk(0.01, 0.7))`` is the pool with these changes, applied in this order. They are
random by the row's key, the episode and the round alone, so all policies meet the same world.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ata_gym.changes.change import Change
from ata_gym.changes.conditions import Conditions, Hazards
from ata_gym.changes.faults import Mortal, Spot
from ata_gym.changes.load import Load
from ata_gym.changes.noise import Correlated, Outliers
from ata_gym.changes.speeds import OnOff, Periodic, Walk
from ata_gym.changes.switches import Jump, Switch

__all__ = [
    "Change",
    "Conditions",
    "Correlated",
    "Hazards",
    "Jump",
    "Load",
    "Mortal",
    "OnOff",
    "Outliers",
    "Periodic",
    "Spot",
    "Switch",
    "Walk",
    "change_from_data",
]

_KINDS: dict[str, type[Change]] = {
    kind.__name__.lower(): kind
    for kind in (Switch, Jump, Periodic, Walk, OnOff, Correlated, Outliers, Spot, Mortal, Load)
}


def change_from_data(data: Change | Mapping[str, Any]) -> Change:
    """Make a change from what its ``to_data`` gives, also by way of JSON.

    Raises
    ------
    ValueError
        For an unknown name or field, and for values that make no sense.

    >>> change_from_data({"change": "periodic", "period": 100, "amplitude": 0.5})
    Periodic(period=100.0, amplitude=0.5, apart=1.0)
    """
    if isinstance(data, Change):
        return data
    kind = _KINDS.get(data.get("change", "")) if isinstance(data, Mapping) else None
    if kind is None:
        raise ValueError(f'a change is a mapping whose "change" is one of {", ".join(_KINDS)}, not {data!r}')
    known = [field.name for field in fields(kind)]
    given = {name: value for name, value in data.items() if name != "change"}
    try:
        return kind(**given)
    except TypeError:
        raise ValueError(f"the data of {kind.__name__} hold {', '.join(known)}, not {', '.join(given)}") from None
