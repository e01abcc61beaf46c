"""From the files of a table to its rows, with the columns as the files name them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench.logs.formats import Options
from ata_gym.bench.logs.tables.forms.folder import read_folder
from ata_gym.bench.logs.tables.forms.lines import compiled
from ata_gym.bench.logs.tables.forms.one_file import read_table


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
    r"""Return the rows of a file or a folder: a row for each worker and step, or for each task.

    A table with a column for each rank, a folder with a table for each, nested records, and a text
    of which ``options.pattern`` finds the entries, become such rows. A column "duration" is added
    where a table has starts and ends alone.

    Args:
        path: The file or folder.
        options: The names of columns, and the pattern of a text.

    Raises:
        ValueError: If it cannot be read, or holds no rows.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> for rank in range(2):
        ...     path = Path(folder.name, f"rank{rank}.txt")
        ...     _ = path.write_text(f"# of a job\nstep;took\n1;0,{rank}\n2;3\n")
        >>> read_rows(path.parent, Options()).frame.rows()
        [(0, '1', '0.0'), (0, '2', '3'), (1, '1', '0.1'), (1, '2', '3')]
        >>> folder.cleanup()
    """
    if options.pattern is not None:
        compiled(options.pattern)
    read = read_folder if path.is_dir() else read_table
    table = read(path, options)
    remarks = [*table.remarks]
    if table.unmatched:
        remarks.append(
            f"{table.unmatched} lines of the text do not match the pattern, and were left out.",
        )
    return Rows(path.name, table.frame, remarks)
