"""SQLite databases of others: read only, with one error, and no file beside them is written."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ata_gym.utils.files.atomic import check_source

_FIRST_BYTES = b"SQLite format 3\x00"


def is_sqlite(path: Path) -> bool:
    """Whether a file begins as a SQLite database does; False for what is no file."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_FIRST_BYTES)) == _FIRST_BYTES
    except OSError:
        return False


def columns_by_table(path: Path) -> dict[str, list[str]]:
    """Return the names of the columns of each table, without views.

    Args:
        path: The database.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If it cannot be read.
    """
    with _connection(path) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        columns = {}
        for (name,) in tables.fetchall():
            rows = connection.execute(_columns_of(str(name)))
            columns[str(name)] = [str(column) for _, column, *_ in rows]
        return columns


def read_columns(path: Path, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the entries of some columns of a table, a tuple for each row, in their order.

    Args:
        path: The database.
        table: The name of the table.
        columns: The names of its columns.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If it cannot be read, or has no such table or column.
    """
    names = ", ".join(_quoted(column) for column in columns)
    with _connection(path) as connection:
        return connection.execute(f"SELECT {names} FROM {_quoted(table)} ORDER BY rowid").fetchall()


@contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    check_source(path)
    # a reader of a write-ahead log shares memory with its writer, in a file beside it; without
    # such a log nobody writes, and "immutable" says so: then no file is made
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        mode = "mode=ro"
    else:
        mode = "immutable=1"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True)) as connection:
            # views and defaults of a stranger's file run no function that has effects
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
        raise ValueError(
            f"it cannot be read as a SQLite database: {error}: copy it again, with the file beside"
            " it that ends in -wal if there is one",
        ) from error


def _columns_of(table: str) -> str:
    return f"PRAGMA table_info({_quoted(table)})"


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
