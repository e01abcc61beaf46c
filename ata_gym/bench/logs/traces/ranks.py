"""Which rank a trace is of, and whether the traces of a folder are of one job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from ata_gym.bench.logs.traces.events import Trace
from ata_gym.bench.logs.traces.own_time import StepTimes
from ata_gym.utils.validation import first_of

_RANK = re.compile(r"(?<![a-z])rank[ _.=-]{0,2}(\d{1,9})(?!\d)", re.IGNORECASE)
_WORKER = re.compile(r"(?<![a-z])worker[_=-]?(\d{1,9})(?=\.\d+\.pt\.trace\.)", re.IGNORECASE)
_CYCLE = re.compile(r"(\.\d+)?(\.pt)?(\.trace)?\.json(\.gz)?$", re.IGNORECASE)
"""The end of a name: when ``tensorboard_trace_handler`` wrote the file, and its kind."""
_DATE = 1e15
"""Microseconds since 1970 from which on a time is a date."""
_APART = 600e6
"""Microseconds by which clocks of hosts differ at most."""
_STUB = 0.1
"""A last step shorter than this part of the median step is none: the loop ended inside it."""


class RankSteps(NamedTuple):
    """What is kept of a trace: its steps."""

    file: str
    """The path inside the folder."""
    worker: str
    """The rank, or the name of the process."""
    host: str
    """The name of the host; empty where the file does not say."""
    process: float | str | None
    """The process of the steps; None where the file does not say."""
    world_size: int | None
    """The number of ranks of the job, where the file says so."""
    backend: str
    """The library of its collectives; empty where the file does not say."""
    steps: Sequence[int]
    """(S,): the numbers of the steps."""
    starts: Sequence[float]
    """(S,): when they started, in microseconds of a clock of the host."""
    times: StepTimes
    """(S,): how long they took, and how long the rank was blocked in them."""

    def part(self, places: Sequence[int]) -> RankSteps:
        """Return some of the steps, by their places."""
        return self._replace(
            steps=[self.steps[place] for place in places],
            starts=[self.starts[place] for place in places],
            times=self.times.part(places),
        )


def rank_steps(trace: Trace, times: StepTimes) -> RankSteps:
    """Return the steps of a trace with its rank.

    Raises:
        ValueError: If the rank is none of the job's.
    """
    rank = trace.rank
    world_size = trace.distributed.world_size
    if rank is None:
        rank = _rank_of_name(trace.file)
    elif rank < 0 or (world_size is not None and rank >= world_size):
        raise ValueError(
            f"{trace.file}: distributedInfo.rank is {rank} of distributedInfo.world_size"
            f" {world_size}: name a folder with the traces of one job",
        )
    starts = trace.origin + trace.step_spans.starts
    if rank is None:
        name = _process_of_name(trace.file)
    else:
        name = str(rank)
    return RankSteps(
        trace.file,
        name,
        trace.host,
        trace.process,
        world_size,
        trace.distributed.backend,
        trace.steps.tolist(),
        starts.tolist(),
        times,
    )


def _rank_of_name(file: str) -> int | None:
    """The rank in the name of a file, else in the name of the nearest folder around it."""
    for part in reversed(PurePosixPath(file).parts):
        numbers = {int(number) for number in _RANK.findall(part) or _WORKER.findall(part)}
        if len(numbers) == 1:
            return numbers.pop()
    return None


def _process_of_name(file: str) -> str:
    """The name of a file without when it was written."""
    return _CYCLE.sub("", file)


def without_stub(file: RankSteps) -> tuple[RankSteps, bool]:
    """Return the steps without a last one that the loop ended inside of, and whether there is."""
    lengths = file.times.lengths
    if len(lengths) < 2 or lengths[-1] >= _STUB * np.median(lengths):
        return file, False
    return file.part(range(len(lengths) - 1)), True


def check_one_job(files: Sequence[RankSteps]) -> None:
    """Check that files are of ranks of one job.

    Raises:
        ValueError: If two files are of two jobs; the message names both.
    """
    cure = "name a folder with the traces of one run of one job"
    first = files[0]
    for file in files[1:]:
        for what, one, other in (
            ("world_size", first.world_size, file.world_size),
            ("backend", first.backend or None, file.backend or None),
        ):
            if one is not None and other is not None and one != other:
                raise ValueError(
                    f"{first.file} and {file.file} are of two jobs, since distributedInfo.{what} is"
                    f" {one!r} in one and {other!r} in the other: {cure}",
                )
    named = [file for file in files if not file.worker.isdigit()]
    if named and len(named) < len(files):
        raise ValueError(
            f"{named[0].file} does not say its rank, and others do: put rank and a number into"
            " its name, such as rank3.json",
        )
    _check_dates(files, cure)
    _check_clocks(files, cure)


def _check_dates(files: Sequence[RankSteps], cure: str) -> None:
    """Refuse files that hold the same step at times that no clocks of one job have."""
    known = dict[int, tuple[RankSteps, float]]()
    for file in files:
        for step, start in zip(file.steps, file.starts, strict=True):
            if start < _DATE:
                continue
            other, other_start = known.setdefault(step, (file, start))
            apart = abs(start - other_start)
            if apart > _APART:
                raise ValueError(
                    f"{other.file} and {file.file} are of two jobs, since step {step} is"
                    f" {apart / 60e6:.0f} minutes later in one than in the other: {cure}",
                )


def _check_clocks(files: Sequence[RankSteps], cure: str) -> None:
    """Refuse files of one host and job that hold the same steps at other times of its clock."""
    known = dict[tuple[str, int], tuple[RankSteps, float, float]]()
    for file in files:
        if not file.host or file.world_size is None:
            continue
        ends = np.add(file.starts, file.times.lengths).tolist()
        others = [
            (known.setdefault((file.host, step), (file, start, end)), start, end)
            for step, start, end in zip(file.steps, file.starts, ends, strict=True)
        ]
        common = [one for one in others if one[0][0] is not file]
        if not common:
            continue
        begin = max(common[0][1], common[0][0][1])
        end = min(common[-1][2], common[-1][0][2])
        if begin > end:
            raise ValueError(
                f"{common[0][0][0].file} and {file.file} hold the same steps, at other times:"
                f" {cure}",
            )


def joined_by_worker(files: Iterable[RankSteps]) -> tuple[dict[str, list[RankSteps]], list[str]]:
    """Return the files of each worker, and remarks; a copy of a file counts once.

    Raises:
        ValueError: If a worker has a step twice, with different times; the message names the files.
    """
    by_worker = dict[str, list[RankSteps]]()
    places = dict[tuple[str, int], tuple[RankSteps, float]]()
    copies = []
    for file in files:
        twice = [step for step in file.steps if (file.worker, step) in places]
        for step, start in zip(file.steps, file.starts, strict=True):
            other, other_start = places.setdefault((file.worker, step), (file, start))
            if other_start != start:
                raise ValueError(
                    f"{other.file} and {file.file} are both of rank {file.worker}, and hold step"
                    f" {step} with different times: name a folder with the traces of one run of"
                    " one job",
                )
        if len(twice) == len(file.steps):
            copies.append(file.file)
            continue
        rest = file
        if twice:
            rest = file.part([k for k, step in enumerate(file.steps) if step not in twice])
        by_worker.setdefault(file.worker, []).append(rest)
    remarks = []
    if copies:
        remarks.append(f"Copies of other traces are left out: {first_of(copies)}.")
    return by_worker, [*remarks, *_remark_on_processes(by_worker)]


def _remark_on_processes(by_worker: Mapping[str, Sequence[RankSteps]]) -> list[str]:
    """A remark if traces of the same rank are of several processes."""
    for worker, (first, *others) in by_worker.items():
        for other in others:
            if None not in (first.process, other.process) and first.process != other.process:
                return [
                    f"{first.file} and {other.file} are of rank {worker} in two processes, and"
                    " count as one job that was started again; if they are of two jobs, name a"
                    " folder with the traces of one."
                ]
    return []


def worker_names(workers: Sequence[str]) -> dict[str, str]:
    """Return a short name for each worker: its rank, or what names of processes do not share.

    Example:
        >>> worker_names(["run/node_12", "run/node_7"])
        {'run/node_12': '12', 'run/node_7': '7'}
    """
    if all(worker.isdigit() for worker in workers):
        return {worker: worker for worker in sorted(workers, key=int)}
    tokens = {worker: re.split(r"(?<=[/._-])", worker) for worker in sorted(workers)}
    start = _shared(list(tokens.values()))
    end = _shared([parts[start:][::-1] for parts in tokens.values()])
    return {
        worker: "".join(parts[start : len(parts) - end]).rstrip("/._-") or worker
        for worker, parts in tokens.items()
    }


def _shared(lists: Sequence[Sequence[str]]) -> int:
    """The number of first entries that all lists share, of which each keeps at least one."""
    count = 0
    shortest = min(len(one) for one in lists)
    while count < shortest - 1 and len({one[count] for one in lists}) == 1:
        count += 1
    return count


def remark_on_world(by_worker: Mapping[str, Sequence[RankSteps]]) -> list[str]:
    """Return a remark if the traces of other ranks of the job are missing."""
    sizes = [file.world_size for files in by_worker.values() for file in files]
    size = next((size for size in sizes if size is not None), None)
    if size is None or len(by_worker) >= size:
        return []
    ranks = sorted(by_worker, key=int) if all(one.isdigit() for one in by_worker) else [*by_worker]
    return [
        f"{len(ranks)} of {size} ranks are here: {first_of(ranks)}; whoever was slowest may be"
        " among the others.",
    ]
