"""Tables in JSON: records, columns, or a list or an object for each rank; and lines of records."""

import json
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any

import polars as pl

from ata_gym.bench.logs.tables.forms import NoTableError
from ata_gym.bench.logs.tables.forms.nested import flattened
from ata_gym.bench.logs.tables.workers import WorkerKey, worker_key, worker_names
from ata_gym.utils.files.json_files import parse_list, parse_object
from ata_gym.utils.files.tables import reading
from ata_gym.utils.validation import short

_FORMS = (
    "record a list of objects with rank, step and seconds, an object of columns, or an object with"
    " a list of times for each rank"
)


def read_json(content: bytes) -> pl.DataFrame:
    """Return the table in a JSON text.

    Args:
        content: A list of records, an object that holds one, an object of columns, or an object
            with the times of each rank; or, in place of one text, a record in each line.

    Raises:
        ValueError: If it is no JSON, or no such table.

    Example:
        >>> read_json(b'{"rank1": [0.5], "rank0": [0.25]}').rows()
        [(1, 0.5, 0), (0, 0.25, 0)]
        >>> read_json(b'{"job": 7, "data": [{"rank": 0, "timing": {"forward_ms": 5}}]}').columns
        ['job', 'rank', 'timing.forward_ms']
    """
    if content.lstrip()[:1] == b"[":
        return _frame(parse_list(content))
    first_line, _, others = content.strip().partition(b"\n")
    if others and _object(first_line) is not None:
        return read_json_lines(content)
    return _frame(_records(parse_object(content)))


def read_json_lines(content: bytes) -> pl.DataFrame:
    """Return the table in a text with a JSON object in each line.

    Args:
        content: The text.

    Raises:
        ValueError: If a line is no object, and as for ``read_json``.
    """
    with suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return flattened(pl.read_ndjson(BytesIO(content), infer_schema_length=None))
    # slowly, since it knows NaN, and which line is wrong
    lines = content.split(b"\n")
    records = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            records.append(parse_object(line))
        except ValueError as error:
            raise ValueError(f"line {number} is no record of JSON: {error}") from error
    return _frame(records)


def has_records(text: str) -> bool:
    r"""Whether at least two lines of a text are whole objects of JSON with the same names.

    Objects with names of their own, such as those of settings, are no rows of a table.

    Example:
        >>> has_records('starts\n{"rank": 0}\n{"rank": 1}'), has_records('{"lr": 1}\n{"best": 2}')
        (True, False)
    """
    seen = set()
    for line in text.splitlines():
        record = _object(line.encode()) if line.startswith('{"') else None
        if record is None:
            continue
        names = frozenset(record)
        if names in seen:
            return True
        seen.add(names)
    return False


def records_of(text: str) -> tuple[str, int]:
    r"""Return the lines of a text that are records, the others blank, and how many those are.

    What a program prints between its records is none, and neither is a last line that was cut off
    when the program ended. A text without any record is returned as it is.

    Example:
        >>> records_of('starts\n{"rank": 0}\n{"rank": 1}\n{"ran')
        ('\n{"rank": 0}\n{"rank": 1}\n', 2)
    """
    lines = text.split("\n")
    kept = [line if line.lstrip().startswith("{") else "" for line in lines]
    if kept[-1] and _object(kept[-1].encode()) is None:
        kept[-1] = ""
    if not any(kept):
        return text, 0
    written = [line for line in lines if line.strip()]
    others = len(written) - sum(map(bool, kept))
    return "\n".join(kept), others


def _object(line: bytes) -> dict[str, Any] | None:
    """The object of JSON in a line; None if it holds anything else."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(content, dict):
        return content
    return None


def _frame(records: Any) -> pl.DataFrame:
    """The table of a list of records, or of an object of columns."""
    if isinstance(records, list) and not all(isinstance(one, dict) for one in records):
        other = next(one for one in records if not isinstance(one, dict))
        raise NoTableError(f"its list holds {short(other)}, which names no columns: {_FORMS}")
    try:
        with reading("the file cannot be read"):
            return flattened(pl.DataFrame(records, infer_schema_length=None, strict=False))
    except UnicodeEncodeError as error:
        raise ValueError("the file cannot be read: it holds broken Unicode") from error
    except (TypeError, OverflowError) as error:
        raise ValueError(f"the file cannot be read: {error}") from error


def _records(data: dict[str, Any]) -> Any:
    """The records, or the columns, that an object holds."""
    if isinstance(data.get("columns"), list) and isinstance(data.get("data"), list):
        return _split(data["columns"], data["data"])
    if data and all(_is_series(value) for value in data.values()):
        # pandas writes columns as objects, with the number of the row as key
        return {name: [*column.values()] for name, column in data.items()}
    keys = _worker_keys(data)
    if not keys:
        # the workers may be one level deeper, beside what the job is called
        inner = [one for one in data.values() if isinstance(one, dict) and _worker_keys(one)]
        if len(inner) == 1 and not any(isinstance(one, list) for one in data.values()):
            return _records(inner[0])
        return [data]
    if all(isinstance(one, dict) and all(map(worker_key, one)) for one in data.values()):
        # of each step the times by rank: they become a column for each rank
        return [{"step": key, **value} for key, value in data.items()]
    if all(key.isdecimal() for key in data):
        workers: list[int | str] = [int(key) for key in data]
    else:
        workers = worker_names(keys)
    return [_of_worker(worker, value) for worker, value in zip(workers, data.values(), strict=True)]


def _worker_keys(data: Mapping[str, Any]) -> list[WorkerKey]:
    """The workers that the names in an object are; empty if not all are workers."""
    keys: list[WorkerKey] = []
    for name in data:
        if name.isdecimal():
            keys.append((("", name),))
        else:
            keys.append(worker_key(name))
    if len(keys) < 2 or not all(keys):
        return []
    return keys


def _of_worker(worker: int | str, value: Any) -> dict[str, Any]:
    """The record of a worker: its times, its steps, or an object of both."""
    if isinstance(value, list):
        if all(isinstance(item, dict) for item in value):
            return {"rank": worker, "rows": value}
        return {"rank": worker, "duration": value}
    if not isinstance(value, dict):
        raise NoTableError(f"{worker!r} holds {short(value)} and no list of times: {_FORMS}")
    if _is_series(value):
        return {"rank": worker, "step": [*value], "duration": [*value.values()]}
    return {"rank": worker, **value}


def _is_series(value: Any) -> bool:
    """Whether a value is an object whose keys count, with a number or a text for each."""
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(key.isdecimal() for key in value)
        and not any(isinstance(one, dict | list) for one in value.values())
    )


def _split(columns: list[Any], rows: list[Any]) -> list[dict[str, Any]]:
    """The records of an object that has the names of the columns apart from the rows."""
    if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        raise ValueError(f'its rows under "data" are not as long as "columns": {_FORMS}')
    return [dict(zip(map(str, columns), row, strict=True)) for row in rows]
