"""What a format of logs is: how it is recognised, where its times come from, and its reader."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ata_gym.bench.logs.log import Log


class Options(NamedTuple):
    """What the caller knows of a log that the log does not say."""

    worker: str | None = None
    """The name of the column of workers, or of several with commas between."""
    duration: str | None = None
    """The name of the column of times, or of several with commas between, to be added up."""
    round: str | None = None
    """The name of the column of steps."""
    where: Mapping[str, Sequence[str]] = {}
    """The entries of the rows that count, by the name of the column; a row has one of them."""
    pattern: str | None = None
    """A regular expression for the lines of a text."""
    warmup: int | None = None
    """The number of first steps that are left out; None for those that the data show."""


class Format(NamedTuple):
    """A format of logs."""

    name: str
    """What people call it."""
    times_from: str
    """Where the times of a worker come from, in a sentence."""
    recognises: Callable[[Path], bool]
    """Whether a file or folder is of this format; it reads little, and raises nothing."""
    read: Callable[[Path, Options], Log]
    """Reads it, with ``log.checked`` at the end; ValueError, without the path, if it cannot."""
    lacks: str
    """What is not in such a log, in a sentence."""
