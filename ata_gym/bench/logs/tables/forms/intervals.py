"""Start and end in place of a duration."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from ata_gym.bench.logs.tables.words import UNITS, is_share_time, name_and_unit, words
from ata_gym.utils.validation import short

_PAIRS = (
    *(("start", end) for end in ("end", "stop", "finish", "finished", "done")),
    *(("begin", end) for end in ("end", "stop", "finish")),
    *(("started", end) for end in ("ended", "finished", "stopped", "completed")),
    *(("began", "ended"), ("t0", "t1"), ("tic", "toc"), ("from", "to"), ("enter", "exit")),
)
"""Words that begin and end an interval."""

_EPOCH_SCALES = ((1e9, 1.0), (1e12, 1e-3), (1e15, 1e-6), (1e18, 1e-9))
"""The size of a time counted from 1970, and the seconds of its unit."""

_EPOCH_FROM = 1.2
_EPOCH_TO = 2.6
"""Times from 2008 to 2052, in units of the size above."""

_MOMENT = (
    r"^(?:(?<year>\d{4})[-/](?<month>\d\d)[-/](?<day>\d\d)(?:T|\s+))?(?<hour>\d{1,2}):"
    r"(?<minute>\d\d)(?::(?<second>\d\d)(?:[.,](?<fraction>\d{1,9})\d*)?)?"
    r"\s*(?<zone>Z|UTC|GMT|[+-]\d\d:?(?:\d\d)?)?$"
)
"""A point of time as text, of ISO 8601 or alike."""

_LARGEST = 9.2e18
"""The largest number that a whole number of 64 bits holds."""


def intervals_of(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the pairs of columns that begin and end an interval, by the name of the interval.

    Args:
        names: The names of the columns.

    Example:
        >>> intervals_of(["rank", "start_ns", "end_ns", "Forward Begin", "Forward End"])
        {'duration': ('start_ns', 'end_ns'), 'forward_duration': ('Forward Begin', 'Forward End')}
    """
    pairs: dict[str, tuple[str, str]] = {}
    by_words = {tuple(words(name)): name for name in names}
    for name_words, start in by_words.items():
        for first, last in _PAIRS:
            if first not in name_words:
                continue
            place = name_words.index(first)
            end = by_words.get((*name_words[:place], last, *name_words[place + 1 :]))
            if end is None:
                continue
            rest = [
                word
                for word in (*name_words[:place], *name_words[place + 1 :])
                if word not in {"t", "time", "timestamp", "ts", "at", "step", *UNITS}
            ]
            pairs.setdefault("_".join([*rest, "duration"]), (start, end))
    return pairs


def with_durations(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with the lengths of its intervals, where no column is a usual duration.

    They are of polars' type for durations where their unit is known, and else numbers.

    Args:
        frame: The table.

    Raises:
        ValueError: For an interval that ends before it starts, and entries that are no times.

    Example:
        >>> text = {"start": ["2026-01-05 10:00:00"], "end": ["2026-01-05T10:00:00.250"]}
        >>> with_durations(pl.DataFrame(text))["duration"].to_list()
        [datetime.timedelta(microseconds=250000)]
    """
    if any(map(is_share_time, frame.columns)):
        return frame
    pairs = intervals_of(frame.columns)
    return frame.with_columns(
        _length(frame[start], frame[end]).alias(name) for name, (start, end) in pairs.items()
    )


def _length(start: pl.Series, end: pl.Series) -> pl.Series:
    """The lengths of intervals."""
    first = _moments(start)
    last = _moments(end)
    if first.kind != last.kind:
        raise ValueError(
            f"the columns {start.name!r} and {end.name!r} are not of one kind, as their first"
            f" entries {start.first()!r} and {end.first()!r} show: write both in one unit, and"
            " both with a time zone or both without",
        )
    # a row without both has no interval
    halves = (first.values.is_null() != last.values.is_null()).arg_true()
    if len(halves):
        name = start.name if start[halves[0]] is None else end.name
        raise ValueError(f"data row {halves[0] + 1} has None as {name!r}: leave it out")
    lengths = last.values - first.values
    backward = (lengths < 0).fill_null(value=False).arg_true()
    if len(backward):
        row = backward[0]
        raise ValueError(
            f"data row {row + 1} ends, at {short(end[row])}, before it starts, at"
            f" {short(start[row])}: leave"
            " it out",
        )
    unit = first.kind[0]
    if unit is None:
        return lengths
    nanoseconds = lengths * round(unit / 1e-9)
    if lengths.dtype.is_float():
        nanoseconds = nanoseconds.round()
    # what does not fit is null, which is no duration
    fitting = (lengths < _LARGEST / round(unit / 1e-9)).fill_null(value=False)
    nanoseconds = nanoseconds.zip_with(fitting, nanoseconds.clear(len(nanoseconds)))
    return nanoseconds.cast(pl.Int64, strict=False).cast(pl.Duration("ns"))


class _Moments(NamedTuple):
    """Points of time."""

    values: pl.Series
    """Numbers, null where an entry is missing."""
    kind: tuple[float | None, bool]
    """The seconds of their unit, None if it is not known; and whether they have a time zone."""


def _moments(column: pl.Series) -> _Moments:
    """Return the points of time in a column.

    Raises:
        ValueError: For an entry that is no point of time.
    """
    dtype = column.dtype
    if isinstance(dtype, pl.Datetime):
        nanoseconds = column.dt.cast_time_unit("ns").to_physical()
        return _Moments(nanoseconds, (1e-9, dtype.time_zone is not None))
    if isinstance(dtype, pl.Duration):
        return _Moments(column.dt.total_nanoseconds(), (1e-9, False))
    if dtype == pl.Time:
        return _Moments(column.to_physical(), (1e-9, False))
    if dtype == pl.String:
        # A text that is no number becomes null. Integers go first: floats round nanoseconds.
        numbers = column.cast(pl.Int64, strict=False)
        if numbers.null_count() > column.null_count():
            numbers = column.cast(pl.Float64, strict=False)
        if numbers.null_count() > column.null_count():
            return _moments_of_text(column)
    elif dtype.is_integer():
        numbers = column.cast(pl.Int64, strict=False)
    elif dtype.is_float():
        numbers = column.cast(pl.Float64)
    else:
        raise ValueError(f"the column {column.name!r} holds no times, but {dtype}")
    too_large = (numbers.abs() > _LARGEST / 2).fill_null(value=False).arg_true()
    if len(too_large):
        row = too_large[0]
        raise ValueError(
            f"data row {row + 1} has {short(column[row])} as {column.name!r}, which is no time",
        )
    return _Moments(numbers, (_unit(column.name, numbers), False))


def _unit(name: str, numbers: pl.Series) -> float | None:
    """The unit of points of time, by their name, or by their size if they are counted from 1970."""
    unit = name_and_unit(name)[1]
    middle = numbers.median()
    if unit is not None or not isinstance(middle, float):
        return unit
    for size, seconds in _EPOCH_SCALES:
        if _EPOCH_FROM * size < middle < _EPOCH_TO * size:
            return seconds
    return None


def _moments_of_text(column: pl.Series) -> _Moments:
    """Return the points of time in texts such as 2026-01-05T10:00:00.25Z, in nanoseconds."""
    groups = column.str.extract_groups(_MOMENT).struct.unnest()
    part = pl.col
    date = pl.concat_str(part("year"), part("month"), part("day"), separator="-")
    day = date.str.to_date("%Y-%m-%d", strict=False)
    # a time without a date is of any day
    date_fits = part("year").is_null() | day.is_not_null()
    hours, minutes, seconds = (
        part(name).cast(pl.Int64).fill_null(0) for name in ("hour", "minute", "second")
    )
    whole = ((day.cast(pl.Int64).fill_null(0) * 24 + hours) * 60 + minutes) * 60 + seconds
    fraction = part("fraction").str.pad_end(9, "0").cast(pl.Int64).fill_null(0)
    zone = part("zone").str.replace(":", "", literal=True).str.pad_end(5, "0")
    zone_hours, zone_minutes = (
        zone.str.slice(start, 2).cast(pl.Int64, strict=False).fill_null(0) for start in (1, 3)
    )
    ahead = 3600 * zone_hours + 60 * zone_minutes
    whole -= pl.when(zone.str.starts_with("-")).then(-ahead).otherwise(ahead)
    frame = groups.select(
        nanoseconds=pl.when(part("hour").is_not_null() & date_fits).then(
            whole * 1_000_000_000 + fraction
        ),
        zoned=part("zone").is_not_null(),
    )
    wrong = (frame["nanoseconds"].is_null() & column.is_not_null()).arg_true()
    if len(wrong):
        raise ValueError(
            f"data row {wrong[0] + 1} has {short(column[wrong[0]])} as {column.name!r}, which is no"
            " time: write such as 2026-01-05T10:00:00.25, or seconds",
        )
    zoned = frame["zoned"].filter(column.is_not_null())
    if zoned.any() and not zoned.all():
        raise ValueError(
            f"some entries of the column {column.name!r} have a time zone, and some have none:"
            " write all alike",
        )
    return _Moments(frame["nanoseconds"], (1e-9, bool(zoned.any())))
