"""The rules for numbers and names that users give."""

import difflib
import math
import numbers
import operator
from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np

LARGEST_COUNT = 2**50
"""The sum of two numbers up to this one fits an int64, and neighbouring multiples of a float differ up to it."""


def whole_number(name: str, value: object, least: int = 1, most: int = LARGEST_COUNT) -> int:
    """Return ``value`` as an int, or raise ValueError unless it is a whole number from ``least`` to ``most``.

    Floats are refused, even whole ones, and so are bools.

    >>> whole_number("budget", 23.0)
    Traceback (most recent call last):
        ...
    ValueError: budget must be a whole number from 1 to 2**50, not 23.0
    """
    if type(value) is int and least <= value <= most:  # the usual case, since the protocol below is slow
        return value
    if not isinstance(value, bool | np.bool_) and isinstance(value, SupportsIndex):
        try:
            number = operator.index(value)
        except TypeError:  # an array of several numbers
            number = least - 1
        if least <= number <= most:
            return number
    limit = "2**50" if most == LARGEST_COUNT else most
    raise ValueError(f"{name} must be a whole number from {least} to {limit}, not {short(value)}")


def short(value: object) -> str:
    """The value as text for an error, cut if it is long.

    >>> short(10**9_999), short([1, 2])
    ('a whole number of 33216 bits', '[1, 2]')
    """
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole numbers of more than some thousand digits
        text = f"a whole number of {value.bit_length()} bits" if isinstance(value, int) else type(value).__name__
    except RecursionError:
        text = f"a {type(value).__name__} that is nested too deeply"
    return text if len(text) <= 80 else f"{text[:77]}..."


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for an unknown name; it names the most similar known ones.

    >>> raise unknown("policy", "atta", ["ata", "uta", "greedy"])
    Traceback (most recent call last):
        ...
    ValueError: there is no policy 'atta'; did you mean ata or uta?
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names
    return ValueError(f"there is no {kind} {name!r}; did you mean {' or '.join(near)}?")


def not_an_env(given: object) -> ValueError:
    """The error for an object in place of an env of ata-gym."""
    if isinstance(given, str):
        return ValueError(f"an env is needed here, not the text {short(given)}: make it first, by gymnasium.make")
    return ValueError(f"{short(given)} is not an env of ata_gym: make one with gymnasium.make")


def non_negative(name: str, value: object) -> float:
    """Return ``value`` as a float, or raise ValueError unless it is a finite number of at least 0."""
    return in_range(name, value, "finite number", 0.0)


def real(name: str, value: object, above: float = 0.0, up_to: float = math.inf) -> float:
    """Return ``value`` as a float, or raise ValueError unless it is finite, above ``above`` and at most ``up_to``."""
    return in_range(name, value, "finite number", above, up_to, above=True)


def in_range(
    name: str, value: object, kind: str, low: float, high: float = math.inf, above: bool = False, below: bool = False
) -> float:
    """Return ``value`` as a float, or raise ValueError unless it is a finite number from ``low`` to ``high``.

    ``above`` and ``below`` exclude the ends; ``kind`` is what the error calls the number.
    """
    number = as_float(value)
    excluded = (above and number == low) or (below and number == high) or number == math.inf
    if low <= number <= high and not excluded:
        return number
    least = f"{'above' if above else 'of at least'} {low:g}"
    most = "" if high == math.inf else f" and {'below' if below else 'at most'} {high:g}"
    raise ValueError(f"{name} must be a {kind} {least}{most}, not {short(value)}")


def as_float(value: object) -> float:
    """The number as a float; NaN for anything else, and inf for one that is too large for a float.

    >>> as_float(2), as_float("2"), as_float(10**400)
    (2.0, nan, inf)
    """
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def flag(name: str, value: object) -> bool:
    """Return ``value`` as a bool, or raise ValueError unless it is True or False."""
    if value is True or value is False or isinstance(value, np.bool_):
        return bool(value)
    raise ValueError(f"{name} must be True or False, not {short(value)}")
