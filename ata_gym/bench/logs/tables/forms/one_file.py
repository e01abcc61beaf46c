"""One file of a table: its kind by its content and ending, and its columns."""

import gzip
import re
import zlib
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench.logs.formats import Options
from ata_gym.bench.logs.tables.forms import NoTableError
from ata_gym.bench.logs.tables.forms.delimited import looks_like_table, read_delimited
from ata_gym.bench.logs.tables.forms.intervals import with_durations
from ata_gym.bench.logs.tables.forms.json_rows import (
    has_records,
    read_json,
    read_json_lines,
    records_of,
)
from ata_gym.bench.logs.tables.forms.lines import compiled, read_lines
from ata_gym.bench.logs.tables.forms.nested import flattened
from ata_gym.bench.logs.tables.forms.wide import melted
from ata_gym.bench.logs.tables.roles import is_round, is_worker
from ata_gym.bench.logs.tables.times import whole_numbers
from ata_gym.pools.traces import JSON_LINES
from ata_gym.utils.files.atomic import check_source
from ata_gym.utils.files.tables import reading

_COLUMNAR = {b"PAR1": "Parquet", b"ARROW1": "Arrow"}
"""How files in columns begin, and what they are."""

COLUMNAR = (".parquet", ".pq", ".arrow", ".feather", ".ipc")
SEPARATED = (".csv", ".tsv", ".tab", ".psv")
TEXTS = (".txt", ".log", ".out", ".err", ".dat")
"""Endings of texts that may be tables, or lines for a pattern."""

TABLES = (*SEPARATED, *JSON_LINES, ".json", *COLUMNAR)
"""Endings of tables; the text ones may have .gz after them."""

KINDS = (
    ".csv, .tsv, .txt, .json, .jsonl, .ndjson (each also with .gz), .parquet, .arrow, or texts with"
    " --pattern"
)
"""What is read, for errors."""


class Table(NamedTuple):
    """What a file holds."""

    frame: pl.DataFrame
    remarks: list[str]
    unmatched: int = 0
    """The lines of a text that do not match the pattern."""


def ending_of(path: Path) -> str:
    """Return the ending of a file in lower case, without .gz.

    Example:
        >>> ending_of(Path("rank0.CSV.gz")), ending_of(Path("times"))
        ('.csv', '')
    """
    return Path(path.name.lower().removesuffix(".gz")).suffix


def read_table(path: Path, options: Options) -> Table:
    """Return the rows of a file, with a row for each worker and step where it has other forms.

    Args:
        path: The file.
        options: The names of columns, and the pattern of a text.

    Raises:
        ValueError: If it cannot be read; a ``NoTableError`` if it is something else.
    """
    check_source(path)
    content = _unpacked(path)
    if not content.strip():
        raise ValueError("the file cannot be read: it is empty")
    unmatched = 0
    about_lines: list[str] = []
    if options.pattern is not None:
        frame, unmatched = _lines(content, options.pattern)
    else:
        frame, about_lines = _frame(path, content)
    with reading("the file cannot be read"):
        frame, remarks = melted(normal(flattened(frame)), options)
        if not frame.height:
            raise ValueError("the file holds no rows")
        frame = normal(frame)
        if options.duration is None:
            frame = with_durations(frame)
    return Table(frame, [*about_lines, *remarks], unmatched)


def normal(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with text without blanks around it, and with whole numbers of steps and ranks.

    Args:
        frame: The table.
    """
    return pl.DataFrame([_normal_column(column) for column in frame])


def _normal_column(column: pl.Series) -> pl.Series:
    normal_column = column.alias(column.name.strip())
    dtype = column.dtype
    if isinstance(dtype, pl.Categorical | pl.Enum) or dtype in {pl.Int128, pl.Null}:
        normal_column = normal_column.cast(pl.String)
    elif isinstance(dtype, pl.Decimal):
        normal_column = normal_column.cast(pl.Float64)
    if normal_column.dtype == pl.String:
        normal_column = normal_column.str.strip_chars()
    if is_worker(normal_column.name) or is_round(normal_column.name):
        return whole_numbers(normal_column)
    return normal_column


def _unpacked(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"the file cannot be read: {error}") from error
    return content


def _lines(content: bytes, pattern: str) -> tuple[pl.DataFrame, int]:
    expression = compiled(pattern)
    for start, kind in _COLUMNAR.items():
        if content.startswith(start):
            raise NoTableError(
                f"--pattern is for the lines of a text, and this is {kind}: leave it out",
            )
    return read_lines(_decoded(content), expression)


def _decoded(content: bytes) -> str:
    """The text of a file: in UTF-8, or in UTF-16 with its mark, as spreadsheets write it."""
    encoding = "utf-8-sig"
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise NoTableError(
            f"the file cannot be read: it is no text in UTF-8 (byte {error.start}); save it as"
            " UTF-8",
        ) from error
    if "\0" in text:
        raise NoTableError("the file cannot be read: it holds bytes that are no text")
    if not text.strip():
        raise NoTableError("the file cannot be read: it is empty")
    return text


def _frame(path: Path, content: bytes) -> tuple[pl.DataFrame, list[str]]:
    """The table in a file, by how its content begins, then by its ending, and remarks."""
    ending = ending_of(path)
    if content.startswith(tuple(_COLUMNAR)) or ending in COLUMNAR:
        return _in_columns(content), []
    if ending not in (*TABLES, *TEXTS, "") and b"\0" in content[:10_000]:
        raise NoTableError(f"a file that ends in {ending} is not read; tables are {KINDS}")
    text = _decoded(content)
    if ending in JSON_LINES or (ending in TEXTS and has_records(text)):
        text, others = records_of(text)
        remarks = []
        if others == 1:
            remarks.append("1 line that is no whole record is left out.")
        elif others:
            remarks.append(f"{others} lines that are no whole records are left out.")
        return read_json_lines(text.encode()), remarks
    if ending == ".json" or text.lstrip().startswith('{"'):
        return read_json(text.encode()), []
    if ending in SEPARATED or looks_like_table(text):
        return read_delimited(text), []
    first = next(line for line in text.splitlines() if line.strip()).strip()[:120]
    if ending in (*TEXTS, ""):
        raise NoTableError(
            f"this text is no table, its first line is {first!r}: give --pattern, such as"
            r" 'rank (?P<rank>\d+) .* (?P<ms>[\d.]+) ms'",
        )
    raise NoTableError(f"this is no table, its first line is {first!r}; tables are {KINDS}")


def _in_columns(content: bytes) -> pl.DataFrame:
    try:
        with reading("the file cannot be read"):
            if content.startswith(b"ARROW1"):
                return pl.read_ipc(BytesIO(content))
            return pl.read_parquet(BytesIO(content))
    except (ValueError, pl.exceptions.PanicException) as error:
        raise ValueError(re.sub(r"\s*\n.*", "", str(error), flags=re.DOTALL)) from error
