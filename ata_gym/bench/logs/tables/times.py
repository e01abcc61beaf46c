"""Entries of a table as numbers: durations in seconds where their unit is known, and steps."""

import math
from collections.abc import Mapping

import numpy as np
import polars as pl

from ata_gym.bench.logs.tables.words import UNITS, name_and_unit
from ata_gym.pools.traces import durations
from ata_gym.typing import Floats
from ata_gym.utils.validation import short

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBER_AND_UNIT = rf"^(?<number>{_NUMBER})\s*(?<unit>[^\W\d_]+)$"
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

_ENTRY_UNITS: Mapping[str, float] = {
    **UNITS,
    **{"m": 60.0, "h": 3600.0, "d": _DAY, "day": _DAY, "days": _DAY},
}
"""The seconds of a unit in an entry, by each of its words."""

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
        without_unit = numbers.is_not_null()
        seconds = _seconds_of_text(entries.set(without_unit, None))
        if seconds.count():
            if without_unit.any():
                row = without_unit.arg_true()[0]
                unit_row = seconds.is_not_null().arg_true()[0]
                raise ValueError(
                    f"the column {column.name!r} has entries with a unit, such as"
                    f" {short(column[unit_row])}, and without one: {short(column[row])} in data row"
                    f" {row + 1}; give all a unit, or none",
                )
            return _checked(column, seconds), "s"
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
    groups = entries.str.extract_groups(_NUMBER_AND_UNIT).struct
    numbers = groups.field("number").cast(pl.Float64, strict=False)
    words = groups.field("unit").str.to_lowercase()
    seconds = numbers * _factors(words)
    # the forms of several parts take longer, and are rarer
    others = (seconds.is_null() & entries.is_not_null()).arg_true()
    if len(others):
        seconds = seconds.scatter(others, _seconds_of_parts(entries.gather(others)))
    return seconds


def _factors(words: pl.Series) -> pl.Series:
    """The seconds of units; null for other words."""
    return words.replace_strict(
        [*_ENTRY_UNITS],
        [*_ENTRY_UNITS.values()],
        default=None,
        return_dtype=pl.Float64,
    )


def _seconds_of_parts(entries: pl.Series) -> pl.Series:
    """The seconds of entries of several parts, such as "1m 2s"; null for others."""
    seconds = pl.Series("seconds", [None], dtype=pl.Float64).new_from_index(0, len(entries))
    for pattern, units in _FORMS:
        rows = entries.str.contains(pattern).fill_null(value=False).arg_true()
        if not len(rows):
            continue
        groups = entries.gather(rows).str.extract_groups(pattern).struct.unnest()
        parts = groups.with_columns(pl.all().cast(pl.Float64, strict=False))
        in_seconds = [pl.col(name) * unit for name, unit in zip(parts.columns, units, strict=True)]
        # The sum of no parts would be 0, not null.
        has_parts = pl.any_horizontal(pl.all().is_not_null())
        total = parts.select(pl.when(has_parts).then(pl.sum_horizontal(in_seconds)))
        seconds = seconds.scatter(rows, total.to_series())
    return seconds


def _checked(column: pl.Series, seconds: pl.Series) -> Floats:
    values = np.asarray(seconds.cast(pl.Float64).fill_null(math.nan).to_numpy())
    invalid = ~(np.isfinite(values) & (values >= 0))
    if invalid.any():
        row = int(np.argmax(invalid))
        raise ValueError(
            "each duration must be a finite number, not negative; data row"
            f" {row + 1} has {short(column[row])}",
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
