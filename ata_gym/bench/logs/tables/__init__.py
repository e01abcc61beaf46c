"""Tables: from the files to rows, and from the rows to a log."""

from pathlib import Path

from ata_gym.bench.logs.formats import Format, Options
from ata_gym.bench.logs.log import Log
from ata_gym.bench.logs.tables.meaning import log_of
from ata_gym.bench.logs.tables.rows import read_rows


def _read(path: Path, options: Options) -> Log:
    return log_of(read_rows(path, options), options)


FORMAT = Format(
    "table",
    "The times of the column of durations; rows of the same worker and step are added up.",
    lambda _path: True,
    _read,
    "Whether a time ends before the wait, unless the data show that it does not.",
)
"""Tables in text, JSON, Parquet and Arrow, in a file or of each rank in a folder."""
