"""Tables in text: comma, semicolon, tab, bar or blanks between the entries of a line."""

import csv
import re
from collections import Counter
from io import BytesIO

import polars as pl

from ata_gym.bench.logs.tables.roles import is_round
from ata_gym.bench.logs.tables.words import is_time
from ata_gym.utils.files.tables import reading
from ata_gym.utils.validation import short

_SEPARATORS = (",", ";", "\t", "|")
_COMMENT_LINE = re.compile(r"^[ \t]*#.*(?:\r\n|\r|\n|\Z)", re.MULTILINE)
_BLANK_START = re.compile(r"\A(?:[ \t]*(?:\r\n|\r|\n))+|\Asep=.(?:\r\n|\r|\n)", re.IGNORECASE)
"""Blank lines at the start, or the line that tells a spreadsheet what separates the entries."""
_BAR_RULE = re.compile(r"^[ \t]*[|+][-+|: \t]*[|+][ \t]*(?:\r\n|\r|\n|\Z)", re.MULTILINE)
"""A line between the rows of a table that is drawn with bars."""
_BAR_ENDS = re.compile(r"^[ \t]*\||\|[ \t]*$", re.MULTILINE)
_SAMPLE_LINES = 200
"""The number of lines that tell whether a text is a table."""
_DECIMAL_COMMA = r"^[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+(?:[eE][+-]?\d+)?(?:\s*[^\W\d_]+)?$"
_THOUSANDS = r"^[+-]?[1-9]\d{0,2}(?:,\d{3})*(?:\s*[^\W\d_]+)?$"
_DECIMAL_POINT = r"^[+-]?\d*\.\d+(?:[eE][+-]?\d+)?(?:\s*[^\W\d_]+)?$"


def read_delimited(text: str) -> pl.DataFrame:
    r"""Return the table in a text, whose first line names the columns; all entries are text.

    Lines that are blank or begin with # do not count, but for names of columns after a #.

    Args:
        text: The content of a file.

    Raises:
        ValueError: If it is no such table.

    Example:
        >>> read_delimited("# a job\nrank;step; took\n0;1;0,25\n").rows()
        [('0', '1', '0.25')]
        >>> read_delimited("# rank step ms\n0 1 2.5\n").columns
        ['rank', 'step', 'ms']
    """
    text, separator = _uniform(text)
    header = re.split("[\r\n]", text, maxsplit=1)[0]
    try:
        names = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
    except csv.Error as error:
        raise ValueError(f"the file cannot be read: {error}") from error
    _check_names(names)
    with reading("the file cannot be read"):
        frame = pl.read_csv(BytesIO(text.encode()), separator=separator, infer_schema=False)
    if len(names) != frame.width:
        raise ValueError("the file cannot be read: a quote in its first line has no end")
    frame.columns = _completed(names)
    # a job that was started again writes the names once more
    frame = frame.filter(~_repeats_names(frame.columns, names))
    # an entry of blanks is none, and a line without entries is blank
    frame = frame.with_columns(pl.col(pl.String).str.strip_chars().replace("", None))
    frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    # the names may end in a separator, or a row may have a number of its own
    frame = frame.select(
        column for column in frame if names[frame.get_column_index(column.name)] or column.count()
    )
    if separator == ",":
        return frame
    return frame.with_columns(_with_points(column, separator) for column in frame)


def _repeats_names(columns: list[str], names: list[str]) -> pl.Expr:
    """Whether a row has the names of the columns as its entries."""
    return pl.all_horizontal(
        pl.col(column).str.strip_chars() == name
        for column, name in zip(columns, names, strict=True)
        if name
    )


def separator_of(line: str) -> str:
    """Return what separates the names in a line: ",", ";", tab, "|", or else " "."""
    unquoted = re.sub('"[^"]*"', "", line)
    counts = {separator: unquoted.count(separator) for separator in _SEPARATORS}
    best = max(counts, key=counts.__getitem__)
    if counts[best]:
        return best
    # one quoted name with blanks is one column
    if len(unquoted.split()) > 1:
        return " "
    return ","


def looks_like_table(text: str) -> bool:
    """Whether the first lines of a text have as many entries as its first, and that names them.

    Args:
        text: The content of a file.
    """
    uniform, separator = _uniform(text)
    lines = uniform.split("\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
    try:
        rows = [row for row in csv.reader(lines, delimiter=separator) if row]
    except csv.Error:
        return False
    if len(rows) < 2 or len({len(row) for row in rows}) > 1:
        return False
    if len(rows[0]) < 2 and not is_time(rows[0][0]):
        return False
    # a column for each rank may have a whole number as its name
    numbers = [name for name in rows[0] if _is_number(name)]
    names_come_first = not numbers or (
        is_round(rows[0][0]) and all(name.strip().isdecimal() for name in numbers)
    )
    return names_come_first and any(map(_is_number, rows[1]))


def _uniform(text: str) -> tuple[str, str]:
    """A text of rows alone, the first with the names, and what separates their entries."""
    text = _with_header(_BLANK_START.sub("", text))
    separator = separator_of(re.split("[\r\n]", text, maxsplit=1)[0])
    if separator == " ":
        text = "\n".join("\t".join(line.split()) for line in text.splitlines() if line.strip())
        separator = "\t"
    elif separator == "|":
        text = _BAR_ENDS.sub("", _BAR_RULE.sub("", text))
    if separator != "\t" and '"' in text:
        # a quote counts only at the beginning of an entry
        text = re.sub(rf'(?<=[{separator}]) +(?=")|(?<=") +(?=[{separator}])', "", text)
    return text, separator


def _with_header(text: str) -> str:
    """A text without comments; the last of those before the first row may name the columns."""
    first_row = re.search(r"^[ \t]*[^#\s].*$", text, re.MULTILINE)
    if "#" not in text or first_row is None:
        return text
    comments = text[: first_row.start()].splitlines()
    rows = _COMMENT_LINE.sub("", text[first_row.start() :])
    if not comments:
        return rows
    separator = separator_of(first_row[0])
    header = comments[-1].strip().lstrip("#").strip()
    names = _entries(header, separator_of(header))
    entries = _entries(first_row[0], separator)
    numbers = any(map(_is_number, entries)) and not any(map(_is_number, names))
    if numbers and len(names) == len(entries):
        return separator.join(names) + "\n" + rows
    return rows


def _entries(line: str, separator: str) -> list[str]:
    if separator == " ":
        return line.split()
    return [entry.strip() for entry in line.split(separator)]


def _check_names(names: list[str]) -> None:
    numbers = [float(name.replace(",", ".")) for name in names if _is_number(name)]
    # 0, 1, 2 are names of columns where there is one for each rank
    counted = ([*range(len(names))], [*range(1, len(names) + 1)])
    if len(numbers) == len(names) and numbers not in counted:
        raise ValueError(
            "the first line must name the columns, such as rank,step,seconds, and it is"
            f" {short(','.join(names))}",
        )
    repeated = [name for name, count in Counter(names).items() if name and count > 1]
    if repeated:
        raise ValueError(
            f"two columns are called {repeated[0]!r}: give each a name of its own",
        )


def _completed(names: list[str]) -> list[str]:
    """Names without empty ones: the first, where pandas numbers the rows, is "index"."""
    completed = [name or f"column {place}" for place, name in enumerate(names, 1)]
    if not names[0] and "index" not in names:
        completed[0] = "index"
    return completed


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\s*[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?\s*", text) is not None


def _with_points(column: pl.Series, separator: str) -> pl.Series:
    """A column with decimal points in place of decimal commas, where it has such."""
    # where entries are apart by tabs, "1,234" may as well be a thousand
    if separator != ";" and column.str.contains(_THOUSANDS).fill_null(value=True).all():
        return column
    commas = column.str.contains(_DECIMAL_COMMA)
    whole = column.str.contains(r"^[+-]?\d+(?:\s*[^\W\d_]+)?$|^$|^(?i:nan|inf|null|none)$")
    if not commas.any() or column.str.contains(_DECIMAL_POINT).any():
        return column
    if not (commas | whole).all():
        return column
    return column.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
