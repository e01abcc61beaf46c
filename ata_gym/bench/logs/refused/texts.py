"""Texts and small tables of one process, or of a job as a whole."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ata_gym.bench.logs import megatron, peek
from ata_gym.bench.logs.refused.kind import RECORD_ROWS, RECORD_TRACES, Refused

_WORKER = re.compile(
    r"(?:\w+_)?(?:rank|worker|worker_id|node|host|hostname|machine|gpu|device)(?:[ _./-]?\d+.*)?"
)
_TIME = re.compile(r".*(?:time|duration|elapsed|seconds|_ms|_s)|ms|s")


def _has_line(pattern: str, path: Path) -> bool:
    """Whether a line among the first matches a regular expression from its beginning."""
    return any(re.match(pattern, line) for line in peek.lines(path))


def _header(path: Path) -> list[str]:
    """The names in the first line of a table, in small letters."""
    first = next(iter(peek.lines(path)), "")
    return [name.strip(" \"'\ufeff").lower() for name in re.split(r"[,;\t|]", first)]


def _names_worker(names: Sequence[str]) -> bool:
    """Whether a table has a column of workers, and is no longer the tool's alone."""
    return any(_WORKER.fullmatch(name) for name in names)


def _is_lightning(path: Path) -> bool:
    names = _header(path)
    has_times = any(_TIME.fullmatch(name) for name in names)
    # a long table of figures may hold times in any row
    is_long = "value" in names
    usual = {"epoch", "step"} <= {*names} and not has_times
    return usual and not is_long and not _names_worker(names)


def _is_sacct(path: Path) -> bool:
    first = next(iter(peek.lines(path)), "").lower()
    words = {word for word in re.split(r"[|,\s]+", first) if word}
    has_accounts = bool(words & {"jobname", "elapsed", "state", "exitcode"})
    return "jobid" in words and has_accounts and not _names_worker([*words])


def _is_utilisation(path: Path) -> bool:
    names = _header(path)
    has_utilisation = any(name.startswith(("utilization.gpu", "power.draw")) for name in names)
    return has_utilisation and not _names_worker(names)


def _is_megatron(path: Path) -> bool:
    iteration = r".*\biteration +\d+/ *\d+ *\|.*elapsed time per iteration"
    return _has_line(iteration, path) and not megatron.FORMAT.recognises(path)


REFUSED = (
    Refused(
        "Lightning's metrics.csv",
        "holds the metrics of one process, and no times of ranks",
        f"{RECORD_TRACES} (Lightning's PyTorchProfiler), or {RECORD_ROWS}",
        _is_lightning,
    ),
    Refused(
        "the text of Megatron-LM",
        "holds one time for each iteration, which all ranks share",
        "run with --timing-log-level 2 --timing-log-option all, which prints the times of each"
        " rank, or name a pattern of its lines with --pattern",
        _is_megatron,
    ),
    Refused(
        "the text of DeepSpeed",
        "holds the times of rank 0 alone",
        f"{RECORD_TRACES}, or name a pattern of its lines with --pattern",
        partial(_has_line, r".*\[Rank \d+\] (?:step=\d+,|time \(ms\) \|)"),
    ),
    Refused(
        "an MLPerf log",
        "holds events of the job as a whole",
        RECORD_ROWS,
        partial(_has_line, r".{0,40}:::MLLOG "),
    ),
    Refused(
        "the accounting of Slurm (sacct)",
        "holds the time of a job as a whole",
        f"{RECORD_TRACES}, or {RECORD_ROWS}",
        _is_sacct,
    ),
    Refused(
        "a table of nvidia-smi",
        "holds how busy devices were, which is high while they wait, too",
        RECORD_TRACES,
        _is_utilisation,
    ),
)
"""Kinds of texts without times by rank and step."""
