"""Traces of the PyTorch profiler: what each rank did before others waited for it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ata_gym.bench.logs.formats import Format, Options
from ata_gym.bench.logs.log import Log, checked
from ata_gym.bench.logs.traces.collectives import remarks_on_waits
from ata_gym.bench.logs.traces.events import ENDINGS, is_trace, read_trace
from ata_gym.bench.logs.traces.kinds import DEVICE_WORK
from ata_gym.bench.logs.traces.own_time import step_times
from ata_gym.bench.logs.traces.ranks import (
    RankSteps,
    check_one_job,
    joined_by_worker,
    rank_steps,
    remark_on_world,
    without_stub,
    worker_names,
)
from ata_gym.utils.validation import first_of

_HOW = (
    "The own time of a rank is the time of its step without that in which collectives blocked it."
)


def _recognises(path: Path) -> bool:
    if path.is_dir():
        return any(is_trace(file) for file in _files(path))
    return is_trace(path)


def _files(folder: Path) -> list[Path]:
    """The files that may be traces, in the folder and the folders inside, in the order of names."""
    files = []
    for file in folder.rglob("*"):
        is_hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.name.lower().endswith(ENDINGS) and not is_hidden and not file.is_dir():
            files.append(file)
    return sorted(files)


def _read(path: Path, options: Options) -> Log:
    """A log of the traces of each rank."""
    files, remarks = _read_files(path)
    check_one_job(files)
    by_worker, copies = joined_by_worker(files)
    remarks += [*copies, *remark_on_world(by_worker)]
    names = worker_names([*by_worker])
    log = _log(path.name, {name: by_worker[worker] for worker, name in names.items()}, remarks)
    return checked(log, options.warmup)


def _read_files(path: Path) -> tuple[list[RankSteps], list[str]]:
    """The steps of each file, of which one at a time is in memory, and remarks."""
    folder, paths = (path, _files(path)) if path.is_dir() else (path.parent, [path])
    files = []
    others = []
    stubs = []
    hosts = []
    for file in paths:
        name = file.relative_to(folder).as_posix()
        trace = read_trace(file, name)
        if trace is None:
            others.append(name)
            continue
        steps, is_stub = without_stub(rank_steps(trace, step_times(trace)))
        files.append(steps)
        if is_stub:
            stubs.append(name)
        if "nccl" in trace.distributed.backend and not trace.of(*DEVICE_WORK).any():
            hosts.append(name)
    remarks = []
    if others:
        remarks.append(f"Other JSON beside the traces was not read: {first_of(others)}.")
    if stubs:
        remarks.append(
            "The last step is left out, since the loop ended inside it and it lasts less than a"
            f" tenth of the others, in {first_of(stubs)}.",
        )
    if hosts:
        remarks.append(
            "The collectives of the job run on devices, and there are no kernels in"
            f" {first_of(hosts)}: record them with ProfilerActivity.CUDA, or the times hold waits.",
        )
    return files, remarks


def _log(name: str, by_worker: Mapping[str, Sequence[RankSteps]], remarks: Sequence[str]) -> Log:
    """The log of the steps of all files."""
    numbers = sorted(
        {step for files in by_worker.values() for file in files for step in file.steps}
    )
    row = {number: place for place, number in enumerate(numbers)}
    shape = (len(numbers), len(by_worker))
    lengths = np.zeros(shape)
    own = np.zeros(shape)
    tasks = np.zeros(shape)
    collectives: list[list[Any]] = [[None] * shape[1] for _ in numbers]
    for column, files in enumerate(by_worker.values()):
        for file in files:
            rows = [row[step] for step in file.steps]
            tasks[rows, column] = 1.0
            lengths[rows, column] = file.times.lengths
            own[rows, column] = file.times.lengths - file.times.blocked
            for place, step in enumerate(rows):
                collectives[step][column] = file.times.collectives[place]
    complete = tasks.all(axis=1)
    # a step takes as long for all of its ranks, if they meet in it
    whole = np.median(lengths, axis=1)
    rest = np.where(complete, (whole - own.max(axis=1)).clip(0.0), 0.0)
    on_waits = remarks_on_waits(
        [collectives[step] for step in np.flatnonzero(complete)],
        whole[complete],
    )
    return Log(
        name,
        [*by_worker],
        1e-6 * own,
        tasks,
        [_HOW, *remarks, *on_waits],
        rest=1e-6 * rest,
        steps=[str(number) for number in numbers],
        unit="s",
    )


FORMAT = Format(
    "PyTorch profiler traces",
    "The length of each step without the time in which collectives blocked the rank.",
    _recognises,
    _read,
    "Steps outside the schedule of the profiler; and steps, where prof.step() is not called.",
)
"""Chrome traces of ``torch.profiler``, one or some of each rank in a folder."""
