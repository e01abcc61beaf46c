"""The text of Megatron-LM, where it prints the times of all ranks (--timing-log-option all)."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench.logs import peek
from ata_gym.bench.logs.formats import Format, Options
from ata_gym.bench.logs.log import Log
from ata_gym.bench.logs.tables.meaning import log_of
from ata_gym.bench.logs.tables.rows import Rows

_TABLE = "times across ranks (ms):"
_ITERATION = re.compile(r".*\biteration +(\d{1,18})/ *\d+ *\|")
_TIMER = re.compile(r" {1,4}([a-z][\w-]*):\s*")
_RANK = re.compile(r" +rank +(\d{1,9}): +(\d{1,15}(?:\.\d{1,9})?)\s*")
_COMPUTE = ("forward-compute", "backward-compute")
"""Timers of level 2 that run while a rank computes; loading data is within the first."""


class _Time(NamedTuple):
    """The time of a timer of a rank, as the mean of the iterations since the last print."""

    table: int
    timer: str
    rank: int
    milliseconds: float


class _Text(NamedTuple):
    """The tables of a text."""

    times: Sequence[_Time]
    iterations: Sequence[int | None]
    """By table: the iteration of the line before it; None where there is no such line."""


def _recognises(path: Path) -> bool:
    return any(_TABLE in line for line in peek.lines(path))


def _read(path: Path, options: Options) -> Log:
    content = peek.content_of(path).decode("utf-8", errors="replace")
    text = _parsed(content.splitlines(keepends=True))
    timers = sorted({time.timer for time in text.times})
    if not set(_COMPUTE) <= set(timers):
        raise ValueError(
            f"it has the times of {', '.join(timers) or 'nothing'}, in which ranks wait, and not of"
            f" {' and '.join(_COMPUTE)}: run with --timing-log-level 2 --timing-log-option all",
        )
    chosen = [time for time in text.times if time.timer in _COMPUTE]
    steps: Sequence[int | None] = text.iterations
    # the lines of iterations may go to another file, or come late: then tables are counted
    if None in steps:
        steps = range(1, len(steps) + 1)
    times = pl.DataFrame(
        {
            "rank": [time.rank for time in chosen],
            "step": [steps[time.table] for time in chosen],
            "timer": [time.timer for time in chosen],
            "seconds": [time.milliseconds * 1e-3 for time in chosen],
        },
    )
    # a timer that is printed twice is of an iteration that was computed again
    times = times.unique(["rank", "step", "timer"], keep="last", maintain_order=True)
    by_step = times.group_by("rank", "step", maintain_order=True)
    frame = by_step.agg(pl.col("seconds").sum(), pl.len().alias("timers"))
    # without one of the two, what a rank did is not known
    frame = frame.filter(timers=len(_COMPUTE)).drop("timers")
    remark = (
        f"A rank's time is the time of {' and '.join(_COMPUTE)}, the mean of the iterations that"
        " were printed together; tensor-parallel ranks wait for each other within it."
    )
    return log_of(Rows(path.name, frame, [remark]), options)


def _parsed(lines: Iterable[str]) -> _Text:
    times = []
    iterations: list[int | None] = []
    iteration = None
    timer = ""
    # torchrun, srun and collectors of logs put a process or a time before each line
    before = 0
    for line in lines:
        if match := _ITERATION.match(line):
            iteration = int(match[1])
        elif _TABLE in line:
            iterations.append(iteration)
            iteration = None
            timer = ""
            before = line.index(_TABLE)
        elif match := _TIMER.fullmatch(line) or _TIMER.fullmatch(line, before):
            timer = match[1]
        elif (match := _RANK.fullmatch(line) or _RANK.fullmatch(line, before)) and timer:
            times.append(_Time(len(iterations) - 1, timer, int(match[1]), float(match[2])))
    return _Text(times, iterations)


FORMAT = Format(
    "Megatron-LM's text with --timing-log-option all",
    "The timers forward-compute and backward-compute of each rank (--timing-log-level 2).",
    _recognises,
    _read,
    "Single iterations, if --log-interval is above 1; and that tensor-parallel ranks wait for each"
    " other within these timers.",
)
"""Texts of a run, as the last rank prints them."""
