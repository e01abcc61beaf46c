"""The entries of columns as whole numbers, and the numbers of their rows."""

import numpy as np
import polars as pl

from ata_gym.bench.logs.tables.times import whole_numbers
from ata_gym.typing import Ints


def integers(column: pl.Series) -> pl.Series | None:
    """Return the entries of a column as integers; None unless all are whole numbers.

    Example:
        >>> integers(pl.Series(["1.0", "2"])).to_list(), integers(pl.Series([1.5]))
        ([1, 2], None)
    """
    if column.dtype == pl.String:
        column = column.str.strip_chars()
    elif column.dtype.is_decimal():
        column = column.cast(pl.Float64)
    elif not column.dtype.is_numeric():
        return None
    whole = whole_numbers(column).cast(pl.Int64, strict=False)
    return None if whole.has_nulls() else whole


def texts_of(column: pl.Series) -> pl.Series | None:
    """Return the entries of a column as text, null as ""; None for entries that have no text.

    Example:
        >>> texts_of(pl.Series([1, None])).to_list(), texts_of(pl.Series([[1], [2, 3]]))
        (['1', ''], None)
    """
    if column.dtype.is_nested() or column.dtype in (pl.Object, pl.Binary):
        return None
    if column.dtype == pl.Duration:
        column = column.to_physical()
    return column.cast(pl.String).str.strip_chars().fill_null("")


def codes_of(texts: pl.Series, entries: pl.Series) -> Ints:
    """Return the place of each text among the entries.

    Example:
        >>> codes_of(pl.Series(["b", "a", "b"]), pl.Series(["a", "b"])).tolist()
        [1, 0, 1]
    """
    codes = texts.cast(pl.Enum(entries)).to_physical()
    return codes.to_numpy().astype(np.int64)


def distinct(code: Ints) -> Ints:
    """Return the distinct numbers, in order; ``np.unique`` is slow on many.

    Example:
        >>> distinct(np.array([3, 1, 3])).tolist()
        [1, 3]
    """
    ordered = np.sort(code)
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    different: Ints = ordered[first]
    return different


def varies(cell: Ints, code: Ints) -> bool:
    """Whether rows of one cell have different codes.

    Example:
        >>> varies(np.array([0, 1, 0]), np.array([5, 6, 5]))
        False
    """
    last = np.empty(cell.max() + 1, np.int64)
    last[cell] = code
    return bool((last[cell] != code).any())
