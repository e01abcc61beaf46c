"""The rules for numbers and names that users give."""

import difflib
import math
import numbers
import operator
from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np

LARGEST_COUNT = 2**50
"""The largest count.

The sum of two counts fits an int64, and neighbouring multiples of a float differ up to this count.
"""


def whole_number(name: str, value: object, least: int = 1, largest: int = LARGEST_COUNT) -> int:
    """Return a whole number as an int; floats, even whole ones, and bools are refused.

    Args:
        name: The name of the number, for the message.
        value: The number.
        least: The least number that is allowed.
        largest: The largest number that is allowed.

    Raises:
        ValueError: If it is not a whole number from ``least`` to ``largest``.

    Example:
        >>> whole_number("budget", 23.0)
        Traceback (most recent call last):
            ...
        ValueError: budget must be a whole number from 1 to 2**50, not 23.0
    """
    # The usual case comes first, since the protocol below is slow.
    if type(value) is int and least <= value <= largest:
        return value
    if not isinstance(value, bool | np.bool_) and isinstance(value, SupportsIndex):
        try:
            number = operator.index(value)
        # An array of several numbers has the protocol, but no index.
        except TypeError:
            number = least - 1
        if least <= number <= largest:
            return number
    limit = "2**50" if largest == LARGEST_COUNT else largest
    raise ValueError(f"{name} must be a whole number from {least} to {limit}, not {short(value)}")


def first_of(texts: Iterable[object], most: int = 8) -> str:
    """Return the first of some texts, and how many more there are, for a sentence.

    Args:
        texts: The texts, or what has one.
        most: How many are named.

    Example:
        >>> first_of(range(3)), first_of("abcd", most=2)
        ('0, 1, 2', 'a, b and 2 more')
    """
    all_texts = [str(text) for text in texts]
    named = ", ".join(all_texts[:most])
    if len(all_texts) > most:
        return f"{named} and {len(all_texts) - most} more"
    return named


def short(value: object) -> str:
    """The value as text for an error, cut to 80 characters.

    Args:
        value: Any object.

    Example:
        >>> short(10**9_999), short([1, 2])
        ('a whole number of 33216 bits', '[1, 2]')
    """
    try:
        text = repr(value)
    # Python writes no whole numbers of more than some thousand digits.
    except ValueError:
        if isinstance(value, int):
            text = f"a whole number of {value.bit_length()} bits"
        else:
            text = type(value).__name__
    except RecursionError:
        text = f"a {type(value).__name__} that is nested too deeply"
    if len(text) <= 80:
        return text
    return f"{text[:77]}..."


def unknown(kind: str, name: str, names: Iterable[str]) -> ValueError:
    """The error for an unknown name; it shows the known names that are most similar.

    Args:
        kind: The word for the named objects.
        name: The unknown name.
        names: The known names.

    Example:
        >>> raise unknown("policy", "atta", ["ata", "uta", "greedy"])
        Traceback (most recent call last):
            ...
        ValueError: there is no policy 'atta'; did you mean ata or uta?
    """
    known_names = list(names)
    similar = difflib.get_close_matches(name, known_names, n=3, cutoff=0.3) or known_names
    return ValueError(f"there is no {kind} {name!r}; did you mean {' or '.join(similar)}?")


def not_an_env(value: object) -> ValueError:
    """The error for an object in place of an env of ata-gym."""
    if isinstance(value, str):
        return ValueError(
            f"an env is needed here, not the text {short(value)}: make it first, by gymnasium.make",
        )
    return ValueError(f"{short(value)} is not an env of ata_gym: make one with gymnasium.make")


def non_negative(name: str, value: object) -> float:
    """Return a finite number of at least 0 as a float, with ValueError for others."""
    return in_range(name, value, "finite number", 0.0)


def real(name: str, value: object, above: float = 0.0, up_to: float = math.inf) -> float:
    """Return a finite number above a bound as a float.

    Args:
        name: The name of the number, for the message.
        value: The number.
        above: The bound that it must exceed.
        up_to: The largest number that is allowed.

    Raises:
        ValueError: If it is no finite number, or outside the bounds.
    """
    return in_range(name, value, "finite number", above, up_to, above=True)


def in_range(
    name: str,
    value: object,
    kind: str,
    low: float,
    high: float = math.inf,
    above: bool = False,
    below: bool = False,
) -> float:
    """Return a finite number in a range as a float.

    Args:
        name: The name of the number, for the message.
        value: The number.
        kind: The words for such a number, for the message.
        low: The least number.
        high: The largest number.
        above: Whether ``low`` itself is excluded.
        below: Whether ``high`` itself is excluded.

    Raises:
        ValueError: If it is no finite number, or outside the range.
    """
    number = as_float(value)
    excluded = (above and number == low) or (below and number == high) or number == math.inf
    if low <= number <= high and not excluded:
        return number
    if above:
        lower_text = f"above {low:g}"
    else:
        lower_text = f"of at least {low:g}"
    if high == math.inf:
        upper_text = ""
    elif below:
        upper_text = f" and below {high:g}"
    else:
        upper_text = f" and at most {high:g}"
    raise ValueError(f"{name} must be a {kind} {lower_text}{upper_text}, not {short(value)}")


def as_float(value: object) -> float:
    """The number as a float; NaN for other objects, and inf for a number too large for a float.

    Args:
        value: Any object.

    Example:
        >>> as_float(2), as_float("2"), as_float(10**400)
        (2.0, nan, inf)
    """
    # The usual case comes first, since the protocol below is slow.
    if type(value) is float:
        return value
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def flag(name: str, value: object) -> bool:
    """Return True or False as a bool, with ValueError for any other value."""
    if value is True or value is False or isinstance(value, np.bool_):
        return bool(value)
    raise ValueError(f"{name} must be True or False, not {short(value)}")
