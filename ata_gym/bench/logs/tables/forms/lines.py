"""Texts whose lines hold times: the named groups of a pattern are the columns."""

import re

import polars as pl

from ata_gym.bench.logs.tables.forms import NoTableError
from ata_gym.bench.logs.tables.forms.intervals import intervals_of
from ata_gym.bench.logs.tables.words import is_clock, is_time

_EXAMPLE = r"'rank (?P<rank>\d+) .* (?P<ms>[\d.]+) ms'"


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern that has a group for the time.

    Args:
        pattern: A regular expression. A group is named as a column would be: rank or worker, step
            or iter, ms, s, us, seconds or time.

    Raises:
        ValueError: If it is no regular expression, or names no time.
    """
    try:
        expression = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(
            f"the pattern {pattern!r} is no regular expression ({error}): give --pattern, such as"
            f" {_EXAMPLE}",
        ) from error
    groups = [*expression.groupindex]
    has_time = any(is_time(group) or is_clock(group) for group in groups)
    if not has_time and not intervals_of(groups):
        raise ValueError(
            f"the pattern {pattern!r} has no group for the time, such as (?P<ms>...),"
            f" (?P<seconds>...) or (?P<time>...): give --pattern, such as {_EXAMPLE}",
        )
    return expression


def read_lines(text: str, expression: re.Pattern[str]) -> tuple[pl.DataFrame, int]:
    """Return a row for each line that matches, and the number of lines that do not.

    Args:
        text: The content of a file.
        expression: A pattern, as ``compiled`` returns it.

    Raises:
        ValueError: If no line matches.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    rows = [match.groups() for line in lines if (match := expression.search(line))]
    if not rows:
        first = lines[0].strip()[:120] if lines else ""
        raise NoTableError(
            f"no line matches the pattern {expression.pattern!r}; the first is {first!r}: mend"
            " --pattern",
        )
    by_group = list(zip(*rows, strict=True))
    entries = {name: by_group[place - 1] for name, place in expression.groupindex.items()}
    if "time" in entries and not any(map(is_time, entries)):
        # in a table, "time" is as often the point of time
        entries["duration"] = entries.pop("time")
    frame = pl.DataFrame(entries, schema=dict.fromkeys(entries, pl.String))
    return frame, len(lines) - len(rows)
