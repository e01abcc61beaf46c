"""The one rule for counts that a user gives."""

from __future__ import annotations

import operator
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
