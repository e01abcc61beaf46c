"""The times of a job's workers, step by step, as every reader returns them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ata_gym.bench.logs.checks import doubt_of, regular_pauses, usual_steps
from ata_gym.typing import Floats, Mask
from ata_gym.utils.validation import whole_number


@dataclass(frozen=True, eq=False)
class Log:
    """The times of a job, and what was done to them.

    Example:
        >>> times = np.array([[2.0, 4.0], [3.0, 6.0], [2.0, 5.0]])
        >>> log = Log("job", ["a", "b"], times, np.ones_like(times), rest=np.array([1.0, 2.0, 1.0]))
        >>> log.step_times.tolist(), log.part(slice(2)).seconds.tolist()
        ([5.0, 8.0, 6.0], [[2.0, 4.0], [3.0, 6.0]])
    """

    name: str
    """The name of the file or folder."""
    workers: Sequence[str]
    """The names of the workers."""
    seconds: Floats
    """(steps, workers): the time of a worker's share of a step, before it waited for others; in
    seconds if ``unit`` says so, else in the unit of the file."""
    tasks: Floats
    """(steps, workers): the tasks of that share; 1 where the file does not say, 0 where a policy
    gave the worker none."""
    remarks: Sequence[str] = ()
    """What a reader should know of how the times were read."""
    rest: Floats | None = None
    """(steps,): the time of each step that no split of the work changes, such as transfers; None
    where the log does not say."""
    steps: Sequence[str] = ()
    """The names of the steps; empty where they are 1, 2, ..."""
    unit: str = ""
    """"s" where the times are known to be seconds, else empty."""
    latency: Floats | None = None
    """(steps, workers): the part of ``seconds`` that is over before the first task of a share
    begins, such as a start-up, whatever the size of the share; None where the log does not say."""
    doubt: str = ""
    """Why the log may not answer, as a sentence; empty if it does."""
    propensity: Floats | None = None
    """(steps, workers): the probability with which the policy that wrote the log gave the worker a
    task in the step, above 0 where it did; None where the log does not say."""
    allocation_propensity: Floats | None = None
    """(steps,): the same of the whole allocation of the step, above 0."""
    before: Floats | None = None
    """(workers,): the mean time of a task of each worker before the first step, in its last step
    then; NaN for a worker that had none, and None where nothing is known."""

    def __post_init__(self) -> None:
        """Check the propensities.

        Raises:
            ValueError: If they are no probabilities of these steps and workers.
        """
        for name, shape, positive in (
            ("propensity", self.tasks.shape, self.tasks > 0),
            ("allocation_propensity", self.tasks.shape[:1], np.True_),
        ):
            values = getattr(self, name)
            if values is None:
                continue
            if np.shape(values) != shape:
                raise ValueError(
                    f"{self.name}: {name} must have the shape {shape}, not {np.shape(values)}"
                )
            wrong = ~((values >= 0.0) & (values <= 1.0)) | (positive & (values == 0.0))
            if wrong.any():
                step, *worker = np.argwhere(wrong)[0].tolist()
                owner = f" of worker {self.workers[worker[0]]}" if worker else ""
                raise ValueError(
                    f"{self.name}: the {name}{owner} in step {self.step_names[step]} must be a"
                    " probability, above 0 for what has happened, not"
                    f" {values[(step, *worker)]:g}"
                )

    @property
    def step_names(self) -> list[str]:
        """(steps,): the names of the steps; their numbers, from 1 on, where they have none."""
        return list(self.steps) or [str(number + 1) for number in range(len(self.seconds))]

    @property
    def step_times(self) -> Floats:
        """(steps,): how long each step took: its longest share, and the rest."""
        longest: Floats = self.seconds.max(axis=1)
        if self.rest is None:
            return longest
        return longest + self.rest

    @property
    def work(self) -> Floats:
        """(steps, workers): the time of the tasks of a worker's share, without the latency."""
        if self.latency is None:
            return self.seconds
        return self.seconds - self.latency

    @property
    def present(self) -> Mask:
        """(steps, workers): which workers have tasks in a step."""
        return np.asarray(self.tasks > 0)

    @property
    def task_times(self) -> Floats:
        """(steps, workers): the mean time of a task of a worker's share, without the latency.

        Where a worker has no task in a step, it is the mean time in its last step before; NaN where
        there is none.
        """
        return self._last_times[1:]

    @property
    def earlier_task_times(self) -> Floats:
        """(steps, workers): ``task_times`` of the step before, so that none is of the step."""
        return self._last_times[:-1]

    @property
    def _last_times(self) -> Floats:
        """(1 + steps, workers): the last known task times, before the first step and after each."""
        with np.errstate(invalid="ignore"):
            times = self.work / self.tasks
        before = np.full(len(self.workers), np.nan) if self.before is None else self.before
        times = np.vstack([before, times])
        rows = np.arange(len(times))[:, None]
        known = np.vstack([np.zeros((1, len(self.workers)), np.bool_), self.present])
        last = np.maximum.accumulate(np.where(known, rows, 0), axis=0)
        return np.asarray(np.take_along_axis(times, last, axis=0))

    def part(self, chosen: Any) -> Log:
        """Return the log of some of its steps.

        Args:
            chosen: A slice, or a mask, (steps,), of the steps.
        """
        names = ("rest", "latency", "propensity", "allocation_propensity")
        known = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        places = np.arange(len(self.seconds))[chosen]
        before = self.before
        if len(places) and places[0] > 0:
            before = self.task_times[places[0] - 1]
        steps: Sequence[str] = ()
        if self.steps:
            steps = np.array(self.steps)[chosen].tolist()
        return replace(
            self,
            seconds=self.seconds[chosen],
            tasks=self.tasks[chosen],
            **{name: values[chosen] for name, values in known.items()},
            before=before,
            steps=steps,
        )


def checked(log: Log, warmup: int | None = None, chosen: bool = False) -> Log:
    """Return the steps of a log that bear an answer, with a remark on each kind that was left out.

    Args:
        log: A log in which a worker that is not in a step has 0 tasks there.
        warmup: The number of first steps that are left out, and no others; None leaves out what
            the data show to be warm-up, a pause of all workers, or cut off.
        chosen: Whether a policy chose who works in a step. Steps that lack a worker are kept then,
            but for those before each worker has had a task.

    Raises:
        ValueError: If there are fewer than two workers, or fewer than two steps of all workers; for
            a warm-up that is no whole number; and if the times hold the wait for other workers.
    """
    if warmup is not None:
        whole_number("warmup", warmup, 0)
    if len(log.workers) < 2:
        name = [*log.workers, ""][0]
        raise ValueError(
            f"there is one worker, {name!r}, and nobody to share its work with",
        )
    if not log.steps:
        log = replace(log, steps=[str(number) for number in range(1, len(log.seconds) + 1)])
    if warmup:
        if warmup > len(log.seconds) - 2:
            raise ValueError(
                f"a warm-up of {warmup} of {len(log.seconds)} steps leaves fewer than 2: make"
                " --warmup smaller",
            )
        log = log.part(slice(warmup, None))
    if chosen and not log.present.all():
        log = _begun(log)
        # rounds of other workers take other times
        times = log.task_times
    else:
        log = _complete(log)
        times = log.seconds
    remarks = list(log.remarks)
    if warmup is None:
        kept, more = usual_steps(times, log.steps, log.unit)
        log = log.part(kept)
        remarks += more
    elif warmup:
        remarks.append(f"The first {warmup} steps are left out, as --warmup says.")
    remarks += regular_pauses(log.seconds, log.steps, log.workers, log.unit)
    return replace(log, remarks=remarks, doubt=log.doubt or doubt_of(log.task_times))


def _begun(log: Log) -> Log:
    """The steps before which each worker has had a task."""
    present = log.present
    firsts = np.where(present.any(axis=0), present.argmax(axis=0), len(present))
    # where all work in the first step, nothing is missing in it
    first = int(firsts.max()) + 1 if firsts.max() > 0 else 0
    latest = log.workers[int(firsts.argmax())]
    if first > len(present) - 2:
        raise ValueError(
            f"worker {latest!r} has no task in the log but in its last two steps: log more steps,"
            " or leave its rows out"
        )
    remark = (
        f"Workers lack in {(~present[first:]).any(axis=1).sum()} of {len(present) - first} steps,"
        " in which they were given no task."
    )
    if first:
        remark += f" The first {first} steps are left out, in which worker {latest} begins."
    return replace(log.part(slice(first, None)), remarks=[*log.remarks, remark])


def _complete(log: Log) -> Log:
    """The steps that have all workers."""
    present = log.tasks > 0
    complete: Any = present.all(axis=1)
    rarest = int(present.sum(axis=0).argmin())
    name = log.workers[rarest]
    count = int(present[:, rarest].sum())
    if complete.sum() < 2:
        raise ValueError(
            f"times of all {len(log.workers)} workers are needed in at least 2 steps, and the log"
            f" has {complete.sum()}; worker {name!r} has times in {count} of {len(complete)}: log"
            " more steps, or leave out a worker that is no part of the job",
        )
    if complete.all():
        return log
    remark = f"{(~complete).sum()} of {len(complete)} steps lack a worker, and are left out."
    if 2 * count < len(complete):
        remark = f"{remark[:-1]}; worker {name} is in {count} only."
    return replace(log.part(complete), remarks=[*log.remarks, remark])
