"""Files of other profilers, and files that run what is in them when they are loaded."""

from contextlib import suppress
from functools import partial
from pathlib import Path

from ata_gym.bench.logs import peek
from ata_gym.bench.logs.refused.kind import RECORD_ROWS, RECORD_TRACES, Refused
from ata_gym.utils.files.sqlite_files import columns_by_table, is_sqlite

_PICKLE_VERSIONS = (2, 3, 4, 5)


def _ends(endings: tuple[str, ...], path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(endings)


def _tables(path: Path) -> list[str]:
    if is_sqlite(path):
        with suppress(ValueError, OSError):
            return list(columns_by_table(path))
    return []


def _is_nsight(path: Path) -> bool:
    return _ends((".nsys-rep", ".qdrep", ".qdstrm", ".ncu-rep"), path) or any(
        table.startswith(("CUPTI_ACTIVITY", "TARGET_INFO", "NVTX_EVENTS"))
        for table in _tables(path)
    )


def _is_pickle(path: Path) -> bool:
    content = peek.beginning(path)
    marks = tuple(bytes((0x80, version)) for version in _PICKLE_VERSIONS)
    # a dump of the Flight Recorder is refused by its own reader, which knows how to write JSON
    if b"pg_config" in content:
        return False
    return content.startswith(marks) or _ends((".pickle", ".pkl"), path)


def _is_wandb(path: Path) -> bool:
    return _ends((".wandb",), path) or peek.beginning(path).startswith(b":W&B")


def _is_archive(path: Path) -> bool:
    content = peek.beginning(path)
    return content.startswith(b"PK\x03\x04") or content[257:262] == b"ustar"


REFUSED = (
    Refused(
        "a report of Nsight",
        "is read by NVIDIA's tools alone, and has no steps of ranks",
        f"{RECORD_TRACES} in the same job",
        _is_nsight,
    ),
    Refused(
        "a pickle of Python, such as a memory snapshot",
        "runs what a stranger put into it when it is loaded, and is never loaded here",
        f"{RECORD_TRACES}, or save a table as Parquet",
        _is_pickle,
    ),
    Refused(
        "a trace of Perfetto",
        "has no ranks and no steps of a training",
        f"{RECORD_TRACES}, which writes JSON",
        partial(_ends, (".pftrace", ".perfetto-trace", ".perfetto_trace")),
    ),
    Refused(
        "a profile of XLA (xplane.pb)",
        "has no steps of ranks that can be read without TensorFlow",
        RECORD_ROWS,
        partial(_ends, (".xplane.pb",)),
    ),
    Refused(
        "the record of a run of W&B (.wandb)",
        "is in a form of its own",
        "export the time of a step of each rank as CSV, from a chart of the project or by"
        " wandb.Api().run(...).history()",
        _is_wandb,
    ),
    Refused(
        "an archive",
        "holds other files",
        "unpack it, and name the folder, or save a workbook as CSV",
        _is_archive,
    ),
)
"""Kinds of binary files without times by rank and step."""


def database_tables(path: Path) -> list[str]:
    """Return the tables of a SQLite database; empty for all else."""
    return sorted(_tables(path))
