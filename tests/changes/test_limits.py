"""No kind of change takes a bad value, whichever of its classes checks the field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from ata_gym.changes import Change, Redraw
from ata_gym.pools import PoolDistribution
from tests.changes.test_changes import CHANGES

EVERY = {type(change): change for change in (*reversed(CHANGES), Redraw(PoolDistribution(5), price=(0.1, 1.0)))}


def kinds(kind: type[Change] = Change) -> set[type[Change]]:
    """The kinds of changes that a scenario can have."""
    below = {one for one in kind.__subclasses__() if one.__module__.startswith("ata_gym.")}
    return set().union(*map(kinds, below)) if below else {kind}


def bad_values() -> Iterator[tuple[Change, str, Any]]:
    """What no field of a change may be, and what is just outside the limits of each field that declares some."""
    for change in EVERY.values():
        for field in fields(change):
            limits = field.metadata
            yield from ((change, field.name, value) for value in (-1, "x", float("nan"), float("inf")))
            for end, excluded, beyond in (("low", "above", -1e-9), ("high", "below", 1e-9)):
                if end in limits:
                    yield change, field.name, limits[end] + (0.0 if limits.get(excluded) else beyond)


def test_every_kind_is_here() -> None:
    assert set(EVERY) == kinds()


@pytest.mark.parametrize(
    ("change", "name", "value"),
    [pytest.param(*bad, id=f"{type(bad[0]).__name__}-{bad[1]}-{bad[2]}") for bad in bad_values()],
)
def test_no_field_takes_a_bad_value(change: Change, name: str, value: Any) -> None:
    said = "PoolDistribution hold" if name == "pools" else rf"\b{name}\b.* must "
    with pytest.raises(ValueError, match=said):
        replace(change, **{name: value})
