"""The rules for counts and names that a user gives."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np

LARGEST_COUNT = 2**50
"""Up to here the sums of two counts fit an int64, and neighbouring multiples of a float differ."""


def whole_number(name: str, value: object, least: int = 1) -> int:
    """Return ``value`` as an int, or raise ValueError unless it is a whole number from ``least`` to 2**50.

    Floats are refused, even whole ones, and so are bools.

    >>> whole_number("budget", np.int32(23))
    23
    >>> whole_number("budget", 23.0)
    Traceback (most recent call last):
        ...
    ValueError: budget must be a whole number from 1 to 2**50, not 23.0
    """
    if not isinstance(value, bool | np.bool_) and isinstance(value, SupportsIndex):
        try:
            number = operator.index(value)
        except TypeError:  # an array of several numbers
            number = least - 1
        if least <= number <= LARGEST_COUNT:
            return number
    raise ValueError(f"{name} must be a whole number from {least} to 2**50, not {value!r}")


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that nothing of its kind has; it names the nearest.

    >>> raise unknown("policy", "atta", ["ata", "uta", "greedy"])
    Traceback (most recent call last):
        ...
    ValueError: there is no policy 'atta'; did you mean ata or uta?
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names
    return ValueError(f"there is no {kind} {name!r}; did you mean {' or '.join(near)}?")
