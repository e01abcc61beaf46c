"""Changes from plain data, and the check that changes fit a pool."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ata_gym.changes.change import Change
from ata_gym.changes.faults import Crash, Spot
from ata_gym.changes.load import ColdAfterIdle, Leak, ShareTime, Throttling, Warming
from ata_gym.changes.speeds import Congestion, Correlated, Load, OnOff, Outliers, Periodic, Walk
from ata_gym.changes.switches import Jump, Redraw, Switch
from ata_gym.utils.validation import short

_KINDS: dict[str, type[Change]] = {
    kind.__name__.lower(): kind
    for kind in (
        Switch,
        Jump,
        Periodic,
        Walk,
        OnOff,
        Congestion,
        Correlated,
        Outliers,
        Spot,
        Crash,
        Load,
        Redraw,
        Throttling,
        Leak,
        ColdAfterIdle,
        Warming,
        ShareTime,
    )
}


def change_from_data(data: Change | Mapping[str, Any]) -> Change:
    """Make a change from the data that its ``to_data`` gives, also after JSON.

    Args:
        data: The data; a change is returned as it is.

    Raises:
        ValueError: For an unknown name or field, and for values out of range.

    Example:
        >>> change_from_data({"change": "periodic", "period": 100, "amplitude": 0.5})
        Periodic(period=100.0, amplitude=0.5, apart=1.0)
    """
    if isinstance(data, Change):
        return data
    if isinstance(data, Mapping):
        kind = _KINDS.get(str(data.get("change")))
    else:
        kind = None
    if kind is None:
        raise ValueError(
            f'a change is a mapping whose "change" is one of {", ".join(_KINDS)}, not'
            f" {short(data)}",
        )
    arguments = {name: value for name, value in data.items() if name != "change"}
    try:
        if kind is Redraw:
            arguments["among"] = tuple(
                tuple(map(change_from_data, changes)) for changes in arguments.get("among", ())
            )
        return kind(**arguments)
    except TypeError:
        field_names = ", ".join(field.name for field in fields(kind))
        raise ValueError(
            f"the data of {kind.__name__} hold {field_names}, not {', '.join(arguments)}",
        ) from None


def checked_changes(changes: Iterable[Change | Mapping[str, Any]], n: int) -> tuple[Change, ...]:
    """The changes of a pool of n workers, from changes or plain data.

    They are applied in order: factors multiply, and a ``Switch`` permutes the distributions that
    the changes before it give, with the means that were drawn with them.

    Args:
        changes: A list of changes or of their data.
        n: The number of workers.

    Raises:
        ValueError: For anything but changes, and for a change that does not fit n workers. For a
            ``Redraw`` that is not the first, and a second change of a kind of which there can be
            one only. For an iterator, which would be empty for the next env made with it.
    """
    if isinstance(changes, Mapping | str | bytes | Iterator) or not np.iterable(changes):
        raise ValueError(
            f"changes must be a list of changes of ata_gym.changes, not {short(changes)}",
        )
    checked = tuple(change_from_data(change) for change in changes)
    for place, change in enumerate(checked):
        change.check_fit(n)
        if isinstance(change, Redraw) and place > 0:
            raise ValueError(
                "Redraw must come first in the list of changes: it sets what the other ones change",
            )
        if change.single and sum(type(other) is type(change) for other in checked) > 1:
            raise ValueError(f"there can be one {type(change).__name__} only")
    return checked


def changes_latencies(changes: Iterable[Change]) -> bool:
    """Whether one of these changes, or of the lists of a ``Redraw``, changes latencies."""
    for change in changes:
        if isinstance(change, Congestion):
            return True
        if isinstance(change, Redraw) and any(map(changes_latencies, change.among)):
            return True
    return False
