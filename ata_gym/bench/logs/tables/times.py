"""Entries of a table as numbers: durations in seconds where their unit is known, and steps."""

import math

import numpy as np
import polars as pl

from ata_gym.bench.logs.tables.names import UNITS, name_and_unit
from ata_gym.pools.traces import durations
from ata_gym.typing import Floats

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_DAY = 86_400.0
_PARTS: tuple[tuple[str, float], ...] = (
    ("d|days?", _DAY),
    ("h|hrs?|hours?", 3600.0),
    ("m|mins?|minutes?", 60.0),
    *(
        ("|".join(word for word, seconds in UNITS.items() if seconds == unit), unit)
        for unit in (1.0, 1e-3, 1e-6, 1e-9)
    ),
)
"""The words of each unit in an entry, and the seconds of the unit, from the longest."""

_FORMS: tuple[tuple[str, tuple[float, ...]], ...] = (
    # "100 ms", "1m 2s"
    (
        "(?i)^" + r"[\s,]*".join(rf"(?:({_NUMBER})\s*(?:{words}))?" for words, _ in _PARTS) + "$",
        tuple(seconds for _, seconds in _PARTS),
    ),
    # as Python and pandas write them: "0:00:01.25", "1 day, 0:00:00", "0 days 00:00:00.100000"
    (
        r"(?i)^(?:([+-]?\d+)\s*days?,?\s+)?\+?(\d+):([0-5]?\d):([0-5]?\d(?:\.\d*)?)$",
        (_DAY, 3600.0, 60.0, 1.0),
    ),
    # "00:01.25"; without a fraction it could be hours and minutes
    (r"^(\d+):([0-5]?\d\.\d+)$", (60.0, 1.0)),
    # "PT0.1S" of ISO 8601
    (
        r"^P(?:(\d+)D)?(?:T(?:([\d.]+)H)?(?:([\d.]+)M)?(?:([\d.]+)S)?)?$",
        (_DAY, 3600.0, 60.0, 1.0),
    ),
)
"""The forms of durations in text: a pattern, and the seconds of the unit of each group."""


def seconds_of(column: pl.Series) -> tuple[Floats, str]:
    """Return the durations of a column, (rows,), and their unit.

    The unit is "s" where the name of the column, its type or its entries say what it is, and then
    the durations are seconds; else it is empty, and they are as in the file.

    Args:
        column: The column, under its name in the file.

    Raises:
        ValueError: For an entry that is no duration, and for entries with and without units.

    Example:
        >>> seconds_of(pl.Series("step_time (ms)", ["100", "250"]))
        (array([0.1 , 0.25]), 's')
        >>> seconds_of(pl.Series("took", ["100 ms", "1m 2s", "PT0.5S", "0:00:01.25"]))
        (array([ 0.1 , 62.  ,  0.5 ,  1.25]), 's')
        >>> seconds_of(pl.Series("took", [3, 4]))
        (array([3., 4.]), '')
    """
    if isinstance(column.dtype, pl.Duration):
        return _checked(column, column.dt.total_nanoseconds() / 1e9), "s"
    if column.dtype == pl.String:
        entries = column.str.strip_chars()
        numbers = entries.cast(pl.Float64, strict=False)
        with_unit = _seconds_of_text(entries)
        if with_unit.count():
            mixed = (numbers.is_not_null() & with_unit.is_null()).arg_true()
            if len(mixed):
                unit_row = with_unit.is_not_null().arg_true()[0]
                raise ValueError(
                    f"the column {column.name!r} has entries with a unit, such as"
                    f" {column[unit_row]!r}, and without one: {column[mixed[0]]!r} in data row"
                    f" {mixed[0] + 1}; give all a unit, or none",
                )
            return _checked(column, with_unit), "s"
    values = np.asarray(durations(pl.DataFrame({"duration": column})))
    unit = name_and_unit(column.name)[1]
    if unit is None:
        return values, ""
    # division by a whole number gives the float that is nearest to the decimal fraction
    if unit < 1:
        return values / round(1 / unit), "s"
    return values * unit, "s"


def _seconds_of_text(entries: pl.Series) -> pl.Series:
    """The seconds of entries with a unit; null where an entry has none."""
    text = pl.col("text")
    forms = []
    for pattern, units in _FORMS:
        groups = [
            text.str.extract(pattern, place + 1).cast(pl.Float64, strict=False)
            for place in range(len(units))
        ]
        parts = [
            group / round(1 / unit) if unit < 1 else group * unit
            for group, unit in zip(groups, units, strict=True)
        ]
        # a match without any group is no duration
        some_group = pl.any_horizontal(group.is_not_null() for group in groups)
        forms.append(
            pl.when(text.str.contains(pattern) & some_group).then(pl.sum_horizontal(parts))
        )
    return pl.DataFrame({"text": entries}).select(seconds=pl.coalesce(forms))["seconds"]


def _checked(column: pl.Series, seconds: pl.Series) -> Floats:
    values = np.asarray(seconds.cast(pl.Float64).fill_null(math.nan).to_numpy())
    invalid = ~(np.isfinite(values) & (values >= 0))
    if invalid.any():
        row = int(np.argmax(invalid))
        raise ValueError(
            "each duration must be a finite number, not negative; data row"
            f" {row + 1} has {column[row]!r}",
        )
    return values


def whole_numbers(column: pl.Series) -> pl.Series:
    """Return a column of numbers as integers, as far as all are whole, such as 3.0; else itself.

    Floats that are not whole become text, so that what needs integers refuses them by their row.

    Example:
        >>> whole_numbers(pl.Series("step", ["1.0", "2.0"])).to_list()
        [1, 2]
        >>> whole_numbers(pl.Series("step", [1.0, float("nan")])).to_list()
        ['1', 'NaN']
    """
    if column.dtype == pl.String:
        # integers stay as they are, which is exact
        if column.str.contains(r"^[+-]?\d+$").all():
            return column
        numbers = column.cast(pl.Float64, strict=False)
        if numbers.null_count() > column.null_count():
            return column
    elif column.dtype.is_float():
        numbers = column.cast(pl.Float64)
    else:
        return column
    # up to 2**53 a float is an exact integer
    whole = numbers.is_finite() & (numbers.abs() <= 2**53) & (numbers == numbers.floor())
    if whole.fill_null(value=True).all():
        return numbers.cast(pl.Int64)
    text = numbers.zip_with(whole.fill_null(value=False), numbers.clear(len(numbers)))
    return text.cast(pl.Int64).cast(pl.String).fill_null(column.cast(pl.String))
