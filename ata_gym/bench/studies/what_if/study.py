"""What stragglers cost in a job: its steps are played again in other ways, as ``what-if`` does."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
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
from ata_gym.bench.studies.what_if.fixed_costs import with_fixed_costs
from ata_gym.bench.studies.what_if.off_policy.answers import Answer, answer_of
from ata_gym.bench.studies.what_if.page import NOTE, STATE, report_on
from ata_gym.bench.studies.what_if.waiting import about_log, heat_frame
from ata_gym.bench.studies.what_if.ways import (
    FEWEST_TASKS,
    LEARNS,
    OTHER_ENVS,
    Way,
    played,
    played_steps,
    remarks_on_parts,
    simple_ways,
    task_times,
)
from ata_gym.typing import Floats
from ata_gym.utils.errors import RoundError, named_failure
from ata_gym.utils.files.manifest import read_checked, remove_listed
from ata_gym.utils.validation import flag, short, unknown, whole_number
from ata_policies import Allocator, Clock
from ata_policies.registry import full_name

POLICIES = ("default", "restarting-beta", "lb-bsp-ema")
"""The policies that share the tasks out, by default."""


def what_if(
    log: str | os.PathLike[str] | Log,
    *,
    tasks: int = 8,
    policies: Policies = POLICIES,
    without: str | Sequence[str] = (),
    worker_column: str | None = None,
    duration_column: str | None = None,
    round_column: str | None = None,
    where: Mapping[str, Sequence[str]] | None = None,
    pattern: str | None = None,
    warmup: int | None = None,
    doubly_robust: bool | None = None,
    out: str | os.PathLike[str] | None = None,
    command: Sequence[str] = (),
) -> Results:
    """Say what stragglers cost in a job, and what other ways to do its steps would save.

    The steps are played again on the very times of the log: with the best fixed split, without the
    worst worker, by policies that learn, as a race, and by dispatch.

    Args:
        log: The times of the job: a file, or a folder with one of each rank, as ``read_log`` reads
            them, or what that has read.
        tasks: The number of equal tasks into which the share of a worker is cut, on average, so
            that B is ``tasks`` for each worker. A task of a worker takes the same time in all of a
            step, its logged one; so what workers share, such as a slow disk, stays shared. With
            doubly robust estimates, B is the log's own number of tasks in a step.
        policies: Policies of ``ata_gym/TaskAllocation-v0``, as for ``run``. A race and dispatch
            are played by their defaults besides.
        without: Ways that are not played, such as "race,dispatch": names of policies, race,
            dispatch.
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
        policy is a way: the part of the runtime that it saves, its runtime, its worker time, and
        the part of its tasks that is not in the log; and by doubly robust estimates what it saves
        and its worker time over the logged one, where something follows from them.
        Comparisons are over ten parts of the log, whose neighbours may be alike. Where the log
        says nothing of communication, the runtime is without it. Of large jobs, policies play the
        first steps; a remark says on how many, and their figures are of these steps.

    Raises:
        ValueError: For a log that cannot be read or answers nothing, or has no propensities where
            they are needed, ``tasks`` below 2, a policy that cannot play, a way to leave out that
            would not be played, or a folder that holds something else.
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
        >>> for line in results.content.findings.splitlines()[:2]:
        ...     print(line.partition(" (")[0])
        c was waited for: last in 100 % of steps, 2 of each step of 3
        Worth it: restarting-beta would save 52.8 %
    """
    source = log.name if isinstance(log, Log) else str(log)
    job_log = _read(
        log,
        worker=worker_column,
        duration=duration_column,
        round=round_column,
        where=where,
        pattern=pattern,
        warmup=warmup,
    )
    if doubly_robust is None:
        doubly_robust = job_log.propensity is not None and job_log.latency is None
    if not flag("doubly_robust", doubly_robust):
        job_log = with_fixed_costs(replace(job_log, propensity=None, allocation_propensity=None))
    policies_by_name = by_name(policies)
    left_out = _left_out(without, [*policies_by_name, *OTHER_ENVS])
    call = (
        f"bench.what_if({source!r}, tasks={tasks}, policies={[*policies_by_name]},"
        f" without={left_out}, doubly_robust={doubly_robust}, out='results/what-if')"
    )
    page_command = command or ["python", "-c", f"from ata_gym import bench; {call}"]
    for name in left_out:
        policies_by_name.pop(name, None)
    other_envs = [name for name in OTHER_ENVS if name not in left_out]
    study = WhatIf(policies_by_name, job_log, tasks, other_envs, doubly_robust)
    return play(study, out, USUAL, page_command)


def _read(log: str | os.PathLike[str] | Log, **options: Any) -> Log:
    """The log that a path names, read with these options, or the log itself."""
    if isinstance(log, Log):
        return log
    if not isinstance(log, str | os.PathLike):
        raise ValueError(  # noqa: TRY004 - as for all arguments
            f"log must be a file, a folder, or a Log, not {short(log)}",
        )
    return read_log(log, **options)


def _left_out(without: str | Sequence[str], ways: Sequence[str]) -> list[str]:
    """The full names of the ways that are not played; ValueError for one that would not be."""
    if isinstance(without, str):
        names = [name.strip() for name in without.split(",") if name.strip()]
    else:
        names = list(without)
    full_names = [full_name(name) if isinstance(name, str) else name for name in names]
    for name in full_names:
        if name not in ways:
            raise unknown("way to leave out", name, ways)
    return full_names


@dataclass(frozen=True)
class WhatIf(Study):
    """The steps of a log, played again in other ways."""

    name: ClassVar[str] = "what-if"

    log: Log = field(compare=False)
    tasks: int
    """The number of tasks into which the share of a worker is cut, on average."""
    other_envs: Sequence[str] = tuple(OTHER_ENVS)
    """The names of ``OTHER_ENVS`` that are played."""
    doubly_robust: bool = False
    """Whether costs are estimated doubly robustly, too."""

    @property
    def budget(self) -> int:
        """The number B of tasks into which a step is cut."""
        if self.doubly_robust:
            # decisions are compared with the log's own
            return int(self.log.tasks.sum(axis=1).max())
        return self.tasks * len(self.log.workers)

    def check(self) -> None:
        whole_number("tasks", self.tasks, FEWEST_TASKS)
        self._check_propensities()
        if np.isnan(self.log.task_times[0]).any():
            place = int(np.isnan(self.log.task_times[0]).argmax())
            raise ValueError(
                f"{self.log.name}: worker {self.log.workers[place]} has no task in the first"
                " step: begin after each worker has had one",
            )
        if not self.log.seconds.sum() > 0:
            raise ValueError(f"{self.log.name}: all times are 0, so that nothing was waited for")
        for worker, total in zip(self.log.workers, self.log.work.sum(axis=0), strict=True):
            if not total > 0:
                raise ValueError(
                    f"{self.log.name}: the times of worker {worker} are all 0, so that its work is"
                    " not in the log: leave its rows out, or log how long it computes",
                )
        for policy in self.policies:
            with named_failure(f"the policy {policy}"):
                Allocator(len(self.log.workers), self.budget, policy).allocate()

    def _check_propensities(self) -> None:
        """Raise ValueError if doubly robust estimates are asked for that the log cannot give."""
        if not self.doubly_robust:
            return
        if self.log.propensity is None or self.log.allocation_propensity is None:
            raise ValueError(
                f"{self.log.name} has no propensities, which doubly robust estimates need: record"
                " them with TraceRecorder(path, propensities=True), or leave doubly_robust out",
            )
        if self.log.latency is not None:
            raise ValueError(
                f"{self.log.name} has latencies, and doubly robust estimates are of task times"
                " alone: leave doubly_robust out",
            )

    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        open_folder(folder, self._config())
        steps, n = self.log.seconds.shape
        on_parts = remarks_on_parts(self._counts, steps, n, self.budget)
        note = {**self._about, "remarks": [*self._about["remarks"], *on_parts]}
        write_note(folder, self.name, command, note)
        return []

    @cached_property
    def _about(self) -> Note:
        """What the log itself says."""
        return about_log(self.log, self.budget)

    @property
    def _counts(self) -> dict[str, int]:
        """The number of steps that each policy plays."""
        steps, n = self.log.seconds.shape
        names = [*self.policies, *self.other_envs]
        return {name: played_steps(name, steps, n, self.budget) for name in names}

    def _config(self) -> dict[str, Any]:
        """All that the outcome of a way depends on, as plain data; the log is there as a hash."""
        content = hashlib.sha256(json.dumps(list(self.log.workers)).encode())
        log = self.log
        arrays = [log.seconds, log.tasks, log.rest, log.latency]
        arrays += [log.propensity, log.allocation_propensity, log.before]
        for array in arrays:
            if array is not None:
                content.update(np.ascontiguousarray(array).tobytes())
        config = {"log": content.hexdigest(), "tasks": self.tasks}
        if self.doubly_robust:
            config["doubly_robust"] = True
        return config

    @cached_property
    def _seed(self) -> int:
        """The seed of the policies' own randomness.

        Where the log is of a random policy it follows from the log: a policy that drew the same
        numbers would not decide independently of it, as doubly robust estimates need.
        """
        if self.doubly_robust:
            return int(self._config()["log"][:8], 16)
        return 0

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
                        way, clock = self._played(name, times, count, partial(update, name))
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
                _, learned = self._played("default", times, count, lambda _steps: None)
            state = learned.allocator(self.log.workers).state_dict()
            write_json(folder / STATE, {"allocator": state})
            made_by = merged(provenance_of(__name__), *map(provenance, counts))
            write_frame(store.result("times"), heat_frame(self.log, self._about), made_by)
            answers = [self._answer(way) for way in ways]
            doubts = pl.concat(answer.doubts for answer in answers)
            write_frame(store.result("doubts"), doubts, made_by)
            # the frame of the ways comes last, since it says that all is there
            steps = pl.concat(answer.steps for answer in answers)
            write_frame(_ways_file(store), steps, made_by)
        return failures

    def _played(
        self, name: str, times: Floats, count: int, progress: Callable[[int], object]
    ) -> tuple[Way, Clock]:
        """The way of a policy in the first steps, and the clock that played it."""
        latency = self.log.latency
        if latency is not None:
            latency = latency[:count]
        return played(name, times[:count], self.budget, progress, latency, self._seed)

    def _answer(self, way: Way) -> Answer:
        """What the log says of a way."""
        return answer_of(way, self.log, self.budget, self.doubly_robust and way.kind == LEARNS)

    @staticmethod
    def report(folder: Path) -> Report:
        note = read_note(folder, NOTE)
        path = _ways_file(Folder(folder))
        if not finished(path):
            raise nothing_finished("the steps of the log were not played to the end", folder, note)
        times, doubts = (read_frame(Folder(folder).result(name)) for name in ("times", "doubts"))
        state = read_checked(folder / STATE).decode()
        return report_on(note, read_frame(path), times, doubts, state, origin([path]))


def _ways_file(store: Folder) -> Path:
    """The file of the steps in all ways."""
    return store.result("ways")
