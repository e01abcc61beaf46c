"""A folder with a table for each rank, or with tables that name the ranks themselves."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import polars as pl

from ata_gym.bench.logs.formats import Options
from ata_gym.bench.logs.tables.forms import NoTableError
from ata_gym.bench.logs.tables.forms.one_file import (
    KINDS,
    TABLES,
    TEXTS,
    Table,
    ending_of,
    normal,
    read_table,
)
from ata_gym.bench.logs.tables.roles import SLOTS, is_named, is_place, is_round, is_worker
from ata_gym.bench.logs.tables.words import is_time
from ata_gym.bench.logs.tables.workers import (
    names_worker,
    tells_no_workers,
    worker_key,
    worker_names,
)
from ata_gym.utils.files.tables import reading
from ata_gym.utils.validation import first_of

_DATE = re.compile(
    r"(?<!\d)(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2])[-_.]?(?:0[1-9]|[12]\d|3[01])(?!\d)"
    r"(?:[T_ -]+\d\d[-_:.]?\d\d(?:[-_:.]?\d\d)?(?!\d))?",
)
"""A date in the name of a file, with the time of day."""

_NAMED_FILES = 5
"""The number of files that a sentence names."""


def read_folder(path: Path, options: Options) -> Table:
    """Return the rows of the tables in a folder; a column "rank" is added where they have none.

    Args:
        path: The folder.
        options: The names of columns, and the pattern of texts.

    Raises:
        ValueError: If it holds no tables, or tables that say the same rank and step.
    """
    tables, others = _tables_in(path, options)
    # Files often share a remark, which is said once.
    all_remarks = chain.from_iterable(table.remarks for table in tables.values())
    remarks = list(dict.fromkeys(all_remarks))
    others += _of_other_columns(tables, options)
    frames = {name: table.frame for name, table in tables.items()}
    worker_columns = _worker_columns(frames, options)
    if not worker_columns:
        frames, remark = _with_workers(frames, others, "rank")
        remarks += remark
        if all("rank" in frame for frame in frames.values()):
            worker_columns = ["rank"]
    frame = _joined(frames)
    repeated = _repeated(frame, frames, worker_columns, options)
    if repeated and all(is_named(name, SLOTS) for name in worker_columns):
        # the place of a worker in its machine, of which each has a file
        frames, remark = _with_workers(frames, others, "host")
        remarks += remark
        frame = _joined(frames)
        repeated = _repeated(frame, frames, ["host", *worker_columns], options)
    if repeated:
        raise ValueError(
            f"{repeated}: leave in the folder one file of each, or read them apart;"
            " files of several epochs need a column epoch",
        )
    if others:
        remarks.append(
            f"Other files of this folder were left out: {first_of(sorted(others), _NAMED_FILES)}."
        )
    unmatched = sum(table.unmatched for table in tables.values())
    return Table(frame, remarks, unmatched)


def _tables_in(path: Path, options: Options) -> tuple[dict[str, Table], list[str]]:
    """The tables in a folder, by their paths in it, and the paths of other files."""
    tables = {}
    others = []
    first_text = ""
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if file.is_dir() or any(part.startswith(".") for part in name.split("/")):
            continue
        ending = ending_of(file)
        if ending not in (*TABLES, *TEXTS) and options.pattern is None:
            others.append(name)
            continue
        try:
            tables[name] = read_table(file, options)
        except (ValueError, FileNotFoundError) as error:
            # a text may be anything; what has the ending of a table is to be one
            if not isinstance(error, NoTableError) and ending in TABLES:
                raise ValueError(f"{name}: {error}") from error
            others.append(name)
            first_text = first_text or f"; {name}: {error}"
    if tables:
        return tables, others
    if others:
        raise ValueError(
            f"the folder holds no table, but {first_of(others, _NAMED_FILES)}; tables are"
            f" {KINDS}{first_text}",
        )
    raise ValueError(f"the folder is empty; what is read are {KINDS}")


def _of_other_columns(tables: dict[str, Table], options: Options) -> list[str]:
    """Take out the tables that have other columns than most, and return their names."""
    named = (options.duration or "").split(",")
    with_times = {}
    for name, table in tables.items():
        columns = frozenset(table.frame.columns)
        if any(is_time(column) or column in named for column in columns):
            with_times[name] = columns
    if not with_times:
        return []
    ((usual_columns, _),) = Counter(with_times.values()).most_common(1)
    others = []
    for name in tables:
        usual_here = with_times.get(name, frozenset()) & usual_columns
        if len(usual_here) < len(usual_columns) / 2:
            others.append(name)
    for name in others:
        del tables[name]
    return others


def _worker_columns(frames: Mapping[str, pl.DataFrame], options: Options) -> list[str]:
    """The columns by which the tables name their workers; empty if their files must tell."""
    present = [set(frame.columns) for frame in frames.values()]
    named = (options.worker or "").split(",")
    if any(columns.issuperset(named) for columns in present):
        return named
    columns = []
    for name in next(iter(frames.values())).columns:
        if not is_worker(name) or not all(name in columns_there for columns_there in present):
            continue
        if not any(frame[name].dtype.is_nested() for frame in frames.values()):
            columns.append(name)
    if not columns:
        return []
    identities = [frame.select(columns).unique().rows() for frame in frames.values()]
    several_in_a_file = any(len(rows) > 1 for rows in identities)
    all_differ = len({rows[0] for rows in identities}) == len(frames)
    if several_in_a_file or all_differ or not all(map(is_place, columns)):
        return columns
    # files of several ranks of a machine, which name the machine alone
    return []


def _joined(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    with reading("the tables of this folder do not fit together"):
        return normal(pl.concat(frames.values(), how="diagonal_relaxed"))


def _with_workers(
    frames: dict[str, pl.DataFrame],
    others: list[str],
    role: str,
) -> tuple[dict[str, pl.DataFrame], list[str]]:
    """Tables with a column of workers, from one that tells them apart, or from their names.

    Args:
        frames: The tables, by the paths of their files.
        others: The paths of other files, to which those without a worker are added.
        role: The name of the column, "rank" or "host".

    Returns:
        The tables, and remarks on where the workers are from.
    """
    column = _telling_column(frames)
    if column is not None:
        ranked = {
            name: frame.with_columns(pl.col(column).alias(role)) for name, frame in frames.items()
        }
        return ranked, [f"The {role}s are taken from the column {column!r}, one in each file."]
    labels = {name: _without_endings(name) for name in frames}
    keys = {name: key for name, label in labels.items() if (key := worker_key(label))}
    # files of one rank go on where others end; in "gpu8/a.csv" it is not the worker that is said
    worker_words = [word for word, _ in chain.from_iterable(keys.values())]
    of_one_rank = any(word.endswith(("rank", "worker")) for word in worker_words)
    if len(frames) > 1 and len(set(keys.values())) < 2 and not of_one_rank:
        ranks: Sequence[int | str] = differing_parts([*labels.values()])
        keys = dict.fromkeys(labels, ())
    elif keys:
        ranks = worker_names([*keys.values()])
        others += [name for name in frames if name not in keys]
    else:
        return frames, []
    ranked = {
        name: frames[name].select(pl.lit(rank).alias(role), pl.exclude(role))
        for name, rank in zip(keys, ranks, strict=True)
    }
    first, last = next(iter(keys)), next(reversed(keys))
    return ranked, [f"The {role}s are those in the names of the files, from {first} to {last}."]


def _telling_column(frames: Mapping[str, pl.DataFrame]) -> str | None:
    """The column that names a worker, has one entry in each file, and differs between all."""
    if len(frames) < 2:
        return None
    common = set.intersection(*(set(frame.columns) for frame in frames.values()))
    for name in next(iter(frames.values())).columns:
        if name not in common or not names_worker(name):
            continue
        if any(frame[name].dtype.is_nested() for frame in frames.values()):
            continue
        entries = [frame[name].unique() for frame in frames.values()]
        one_each = all(len(of_file) == 1 for of_file in entries)
        if one_each and len({of_file[0] for of_file in entries}) == len(frames):
            return name
    return None


def _without_endings(name: str) -> str:
    """The path of a file without the endings that say its kind."""
    path = Path(name)
    ending = ending_of(path)
    if ending in (*TABLES, *TEXTS):
        return re.sub(rf"{re.escape(ending)}(\.gz)?$", "", name, flags=re.IGNORECASE)
    return name


def differing_parts(labels: Sequence[str]) -> list[int | str]:
    """Return the parts in which names differ, as numbers where all are.

    Args:
        labels: The names, of which no two are equal.

    Raises:
        ValueError: If the parts name other things than ranks, such as epochs.

    Example:
        >>> differing_parts(["metrics.3", "metrics.10"]), differing_parts(["log-alice", "log-bob"])
        ([3, 10], ['alice', 'bob'])
    """
    tokens = [re.findall(r"\d+|[^\W\d_]+|[\W_]", label) for label in labels]
    shortest = min(map(len, tokens))
    start = 0
    while start < shortest and len({one[start] for one in tokens}) == 1:
        start += 1
    end = 0
    while end < shortest - start and len({one[-1 - end] for one in tokens}) == 1:
        end += 1
    parts = ["".join(one[start : len(one) - end]).strip(" _-./") for one in tokens]
    # in "attempt_0/3" it is not the attempts that differ, but in "lr_0.3" it is the rate
    before = re.findall(r"([^\W\d_]+)[\W_]*(?:\d+\.)?$", "".join(tokens[0][:start]).lower())
    inside = {word for part in parts for word in re.findall(r"[^\W\d_]+", part.lower())}
    only_dates_differ = len({_DATE.sub("", label) for label in labels}) < len(labels)
    if tells_no_workers({*before, *inside}) or only_dates_differ:
        raise ValueError(
            f"the tables have no column of workers, and the names of their files, such as"
            f" {labels[0]!r}, tell no ranks: name the files rank0, rank1, ..., or add a column"
            " rank",
        )
    if not all(parts) or len(set(parts)) < len(parts):
        return [*labels]
    if all(part.isdecimal() for part in parts):
        return [int(part) for part in parts]
    return [*parts]


def _repeated(
    frame: pl.DataFrame,
    frames: Mapping[str, pl.DataFrame],
    worker_columns: Sequence[str],
    options: Options,
) -> str:
    """Which two files say the same worker and step, in words; empty if none do."""
    rounds = [name for name in frame.columns if is_round(name)]
    if options.round in frame.columns:
        rounds = [str(options.round)]
    keys = [
        *worker_columns,
        *rounds,
        *(name for name in options.where if name in frame.columns),
    ]
    keys = list(dict.fromkeys(keys))
    if not keys:
        return ""
    heights = [table.height for table in frames.values()]
    file = pl.Series(np.repeat(np.arange(len(frames)), heights))
    file_column = pl.col("file of the row")
    rows = frame.select(keys).with_columns(file.alias("file of the row"))
    by_key = rows.group_by(keys).agg(first=file_column.min(), last=file_column.max())
    repeated = by_key.filter(pl.col("first") != pl.col("last")).sort(keys)
    if not repeated.height:
        return ""
    row = repeated.row(0, named=True)
    names = [*frames]
    entries = ", ".join(f"{name} {row[name]}" for name in keys)
    return f"{names[row['first']]} and {names[row['last']]} both hold {entries}"
