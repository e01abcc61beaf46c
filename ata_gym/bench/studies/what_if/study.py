"""What stragglers cost in a job: its steps are played again in other ways, as ``what-if`` does."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from ata_gym.bench.logs import Log, read_log
from ata_gym.bench.report.report import Report
from ata_gym.bench.runner.jobs import USUAL, Effort, write_traceback
from ata_gym.bench.runner.policies import Policies, by_name
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.bench.runner.results import Failure, Results
from ata_gym.bench.runner.study import Study, keep_source, play
from ata_gym.bench.store.folder import (
    Folder,
    finished,
    open_folder,
    origin,
    read_frame,
    withdrawn_on_failure,
    write_frame,
    write_json,
)
from ata_gym.bench.store.note import Note, nothing_finished, read_note, write_note
from ata_gym.bench.store.provenance import merged, provenance, provenance_of
from ata_gym.bench.studies.what_if.page import NOTE, STATE, report_on
from ata_gym.bench.studies.what_if.ways import (
    OTHER_ENVS,
    Way,
    played,
    played_steps,
    remarks_on_parts,
    simple_ways,
    task_times,
)
from ata_gym.utils.errors import RoundError, named_failure
from ata_gym.utils.files.manifest import read_checked, remove_listed
from ata_gym.utils.validation import short, whole_number
from ata_policies import Allocator
from ata_policies.registry import full_name

POLICIES = ("default", "restarting-beta", "lb-bsp-ema")
"""The policies that share the tasks out, by default."""


def what_if(
    log: str | os.PathLike[str] | Log,
    *,
    tasks: int = 8,
    policies: Policies = POLICIES,
    worker_column: str | None = None,
    duration_column: str | None = None,
    round_column: str | None = None,
    where: Mapping[str, Sequence[str]] | None = None,
    pattern: str | None = None,
    warmup: int | None = None,
    out: str | os.PathLike[str] | None = None,
    command: Sequence[str] = (),
) -> Results:
    """Say what stragglers cost in a job, and what other ways to do its steps would save.

    The steps are played again on the very times of the log: with the best fixed split, without the
    worst worker, by policies that learn, as a race, and by dispatch.

    Args:
        log: The times of the job: a file, or a folder of profiler traces, as ``read_log`` reads
            them, or what that has read.
        tasks: The number of equal tasks into which the share of a worker is cut, on average, so
            that B is ``tasks`` for each worker. A task of a worker takes the same time in all of a
            step, its logged one; so what workers share, such as a slow disk, stays shared.
        policies: Policies of ``ata_gym/TaskAllocation-v0``, as for ``run``. A race and dispatch
            are played by their defaults besides.
        worker_column: The name of the column of workers in a file; by default a usual name.
        duration_column: The name of the column of times; by default a usual name.
        round_column: The name of the column of steps; by default a usual name.
        where: The entries of the rows that count, by the name of the column: a row has one of them.
        pattern: A regular expression that finds worker, step and time in the lines of a text.
        warmup: The number of first steps that are left out; by default those that the data show.
        out: A folder for the page, the figures and ``state.json``, which holds what the default
            policy has learned, for ``Allocator(prior=...)``; without it nothing is left.
        command: The words by which the page says how to repeat this; by default this call.

    Returns:
        Results whose table has the columns policy, kind, quantity, mean, low and high, where a
        policy is a way: the part of the runtime that it saves, its runtime and its worker time.
        Comparisons are over ten parts of the log. Of large jobs, policies play the first steps; a
        remark says of which, and their figures are of these steps.

    Raises:
        ValueError: For a log that cannot be read or answers nothing, ``tasks`` below 2, a policy
            that cannot play, or a folder that holds something else.
        FileNotFoundError: If there is no such log.

    Example:
        >>> import numpy as np
        >>> from ata_gym import bench
        >>> from ata_gym.bench.logs import Log
        >>> times = np.tile([1.0, 1.0, 3.0], (40, 1))
        >>> log = Log("job", ["a", "b", "c"], times, np.ones_like(times))
        >>> results = bench.what_if(log, policies="restarting-beta")
        >>> saved = results.table().filter(policy="restarting-beta", quantity="saved")
        >>> round(saved["mean"].item(), 3)
        0.528
        >>> print(results.content.findings.partition(" (")[0])
        Worth it: restarting-beta would save 52.8 %
    """
    if isinstance(log, Log):
        job_log = log
        source = log.name
    elif not isinstance(log, str | os.PathLike):
        raise ValueError(  # noqa: TRY004 - as for all arguments
            f"log must be a file, a folder, or a Log, not {short(log)}",
        )
    else:
        job_log = read_log(
            log,
            worker=worker_column,
            duration=duration_column,
            round=round_column,
            where=where,
            pattern=pattern,
            warmup=warmup,
        )
        source = str(log)
    policies_by_name = by_name(policies)
    call = (
        f"bench.what_if({source!r}, tasks={tasks}, policies={[*policies_by_name]},"
        " out='results/what-if')"
    )
    page_command = command or ["python", "-c", f"from ata_gym import bench; {call}"]
    return play(WhatIf(policies_by_name, job_log, tasks), out, USUAL, page_command)


@dataclass(frozen=True)
class WhatIf(Study):
    """The steps of a log, played again in other ways."""

    name: ClassVar[str] = "what-if"

    log: Log = field(compare=False)
    tasks: int
    """The number of tasks into which the share of a worker is cut, on average."""

    @property
    def budget(self) -> int:
        """The number B of tasks into which a step is cut."""
        return self.tasks * len(self.log.workers)

    def check(self) -> None:
        whole_number("tasks", self.tasks, 2)
        if not self.log.seconds.sum() > 0:
            raise ValueError(f"{self.log.name}: all times are 0, so that nothing was waited for")
        for policy in self.policies:
            with named_failure(f"the policy {policy}"):
                Allocator(len(self.log.workers), self.budget, policy).allocate()

    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        open_folder(folder, self._config())
        note = about_log(self.log, self.budget)
        steps, n = self.log.seconds.shape
        note["remarks"] += remarks_on_parts(self._counts, steps, n, self.budget)
        write_note(folder, self.name, command, note)
        return []

    @property
    def _counts(self) -> dict[str, int]:
        """The number of steps that each policy plays."""
        steps, n = self.log.seconds.shape
        names = [*self.policies, *OTHER_ENVS]
        return {name: played_steps(name, steps, n, self.budget) for name in names}

    def _config(self) -> dict[str, Any]:
        """All that the outcome of a way depends on, as plain data; the log is there as a hash."""
        content = hashlib.sha256(json.dumps(list(self.log.workers)).encode())
        for array in (self.log.seconds, self.log.tasks):
            content.update(np.ascontiguousarray(array).tobytes())
        return {"log": content.hexdigest(), "tasks": self.tasks}

    def run(self, folder: Path, jobs: Sequence[Job], effort: Effort) -> dict[str, Failure]:
        """Play all steps in all ways, which takes seconds, so that nothing is kept halfway."""
        del jobs, effort
        store = Folder(folder)
        with withdrawn_on_failure(store):
            times = task_times(self.log, self.budget)
            ways = simple_ways(self.log, times, self.budget)
            failures = {}
            counts = {name: count for name, count in self._counts.items() if count > 0}
            default_name = full_name("default")
            learned = None
            with progress_bars(counts) as update:
                for name, count in counts.items():
                    try:
                        way, clock = played(name, times[:count], self.budget, partial(update, name))
                    except RoundError as error:
                        write_traceback(store.failure(name), error)
                        failures[name] = Failure(error, store.failure(name))
                        continue
                    ways.append(way)
                    remove_listed(store.failure(name))
                    keep_source(store, name)
                    # an object of the user's may have the same name
                    if name == default_name and self.policies[name] is None:
                        learned = clock
            if learned is None:
                count = played_steps("default", len(times), len(self.log.workers), self.budget)
                _, learned = played("default", times[:count], self.budget)
            state = learned.allocator(self.log.workers).state_dict()
            write_json(folder / STATE, {"allocator": state})
            # the frame comes last, since it says that all is there
            made_by = merged(provenance_of(__name__), *map(provenance, counts))
            write_frame(_ways_file(store), frame_of(ways), made_by)
        return failures

    @staticmethod
    def report(folder: Path) -> Report:
        note = read_note(folder, NOTE)
        path = _ways_file(Folder(folder))
        if not finished(path):
            raise nothing_finished("the steps of the log were not played to the end", folder, note)
        state = read_checked(folder / STATE).decode()
        return report_on(note, read_frame(path), state, origin([path]))


def _ways_file(store: Folder) -> Path:
    """The file of the steps in all ways."""
    return store.result("ways")


def about_log(log: Log, budget: int) -> Note:
    """Return what the page says of a log itself.

    Args:
        log: The times of the job.
        budget: The number B of tasks into which a step is cut.
    """
    round_times = log.seconds.max(axis=1)
    runtime = float(round_times.sum())
    worker_time = float(log.seconds.sum())
    n = len(log.workers)
    sorted_times = np.sort(log.seconds, axis=1)
    slowest = log.seconds.argmax(axis=1)
    last = np.bincount(slowest, minlength=n) / len(round_times)
    lead = sorted_times[:, -1] - sorted_times[:, -2]
    lost = np.bincount(slowest, lead, minlength=n) / runtime
    columns = (log.workers, last.tolist(), lost.tolist(), log.seconds.mean(axis=0).tolist())
    # in a perfect split all workers end together: B tasks at the sum of the workers' speeds
    with np.errstate(divide="ignore"):
        speeds = (1.0 / task_times(log, budget)).sum(axis=1)
    return {
        "log": log.name,
        "steps": len(round_times),
        "workers": n,
        "budget": budget,
        "runtime": runtime,
        "worker_time": worker_time,
        "idle": 1.0 - worker_time / (n * runtime),
        "perfect": 1.0 - float(np.sum(budget / speeds)) / runtime,
        "remarks": list(log.remarks),
        "waited_for": [
            dict(zip(("worker", "last", "lost", "mean"), row, strict=True))
            for row in zip(*columns, strict=True)
        ],
    }


def frame_of(ways: Sequence[Way]) -> pl.DataFrame:
    """Return the steps in all ways as a frame, a row for each way and step that it played.

    The columns are policy, kind, round (the step, counted from 1), round_time and worker_time.
    """
    return pl.concat(
        pl.DataFrame(
            {
                "round": np.arange(1, len(way.round_times) + 1),
                "round_time": way.round_times,
                "worker_time": way.worker_times,
            },
        ).select(pl.lit(way.name).alias("policy"), pl.lit(way.kind).alias("kind"), pl.all())
        for way in ways
    )
