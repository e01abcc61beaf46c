"""From the files of a table to its rows, with the columns as the files name them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench.logs.formats import Options
from ata_gym.pools.traces import scan


class Rows(NamedTuple):
    """The rows of a log, of whatever form its files are."""

    name: str
    """The name of the file or folder."""
    frame: pl.DataFrame
    """A row for each row of the files, columns under the names of the files; entries are text where
    the file has text."""
    remarks: Sequence[str] = ()
    """What a reader should know of how the rows were read."""


def read_rows(path: Path, options: Options) -> Rows:
    """Return the rows of a file or a folder.

    Args:
        path: The file or folder.
        options: The pattern of a text.

    Raises:
        ValueError: If it cannot be read, or holds no rows.
    """
    del options
    return Rows(path.name, scan(path).collect())
