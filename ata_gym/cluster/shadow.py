"""What a policy would save in a job that runs as it is: it decides, and changes nothing."""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from os import PathLike
from typing import Any

from ata_gym.cluster.round_record import RoundRecord
from ata_gym.cluster.trace_recorder import TraceRecorder
from ata_gym.typing import Worker
from ata_gym.utils.validation import short, whole_number
from ata_policies import Allocator
from ata_policies.allocator.named_workers import checked_seconds

_LOG = logging.getLogger("ata_gym.cluster")


class Shadow(AbstractContextManager["Shadow"]):
    """Plays a policy beside a data-parallel job with even shares, and logs what it would save.

    Each step of the job is a round: each worker's step is cut into equal tasks, the policy decides
    how many each worker would have computed, and learns as if it had decided. Nothing is sent and
    nothing is changed, so that it may run on one rank, on the times that a job gathers anyway. A
    worker's time is taken to be proportional to its share; other effects of a share are not seen.
    All workers start with the job, so that its first steps are the warm-up of all; a shadow that is
    made anew after a restart of the job has another one.

    Args:
        tasks: Into how many tasks a step of each worker is cut; the budget B is this number times
            the number of workers of a step.
        policy: The name of a policy, as for ``ata_policies.Allocator``.
        warm_up: The first steps, which are recorded and not played, since libraries are loaded,
            kernels compiled and caches filled in them.
        log_every: Steps between two lines in the log ``ata_gym.cluster``; None for no lines.
        record: A CSV file for the times of all steps, which ``ata-gym what-if`` reads; a
            ``TraceRecorder`` writes it, each step at once, and goes on after a restart. Close the
            shadow at the end then, or use it in a ``with`` statement. None for no file. It has no
            propensities: the job gives each worker its share with certainty, so that doubly robust
            estimates would say no more than replay.
        arguments: Other arguments of ``ata_policies.Allocator``.

    Raises:
        ValueError: For bad arguments, and for a file to record that holds something else.

    Example:
        >>> shadow = Shadow(tasks=4, policy="certainty-equivalence", log_every=None)
        >>> seconds_until_the_gradient = {"gpu0": 1.0, "gpu1": 3.0}
        >>> for step in range(10):
        ...     shadow.step(seconds_until_the_gradient)
        >>> shadow.tasks, round(shadow.saved, 3)
        ({'gpu0': 6, 'gpu1': 2}, 0.444)
    """

    runtime: float = 0.0
    """The seconds that the steps took so far after the warm-up, without communication."""
    policy_runtime: float = 0.0
    """The seconds that the steps would have taken so far, without communication."""
    tasks: Mapping[Worker, int]
    """The policy's last allocation."""

    def __init__(
        self,
        *,
        tasks: int = 8,
        policy: str = "default",
        warm_up: int = 1,
        log_every: int | None = 100,
        record: str | PathLike[str] | None = None,
        **arguments: Any,
    ) -> None:
        self._tasks_per_worker = whole_number("tasks", tasks, 2)
        self._policy = policy
        self._warm_up = whole_number("warm_up", warm_up, 0)
        self._arguments = arguments
        if log_every is None:
            self._log_every = None
        else:
            self._log_every = whole_number("log_every", log_every)
        if record is None:
            self._recorder = None
        else:
            self._recorder = TraceRecorder(record)
        self._allocator: Allocator | None = None
        self._steps = 0
        self.tasks = {}

    @property
    def saved(self) -> float:
        """The part of the runtime that the policy would have saved so far.

        It is negative if the policy would have cost more.
        """
        if self.runtime:
            return 1.0 - self.policy_runtime / self.runtime
        return 0.0

    def step(self, seconds: Mapping[Worker, float]) -> None:
        """Look at a step of the job.

        Args:
            seconds: The seconds that each worker needed for its share, before any communication.

        Raises:
            ValueError: For a time that is not a number of at least 0, and for other workers than in
                the first step; nothing has changed then.
        OSError: If the times cannot be recorded.
        """
        if not isinstance(seconds, Mapping) or not seconds:
            raise ValueError(
                f"seconds must be a dict with the time of each worker, not {short(seconds)}",
            )
        times = {worker: checked_seconds(worker, duration) for worker, duration in seconds.items()}
        if self._allocator is None:
            self._allocator = Allocator(
                times,
                self._tasks_per_worker * len(times),
                self._policy,
                **self._arguments,
            )
        if times.keys() != set(self._allocator.workers):
            raise ValueError(
                f"each step has the workers {list(self._allocator.workers)}, not {list(times)}:"
                " make a new Shadow where workers come or go",
            )
        if self._recorder is not None:
            self._recorder.add(
                RoundRecord(
                    self._recorder.last_round + 1,
                    dict.fromkeys(times, 1),
                    {worker: (duration,) for worker, duration in times.items()},
                    round_time=max(times.values()),
                ),
            )
        self._steps += 1
        if self._steps <= self._warm_up:
            return
        self.tasks = self._allocator.allocate()
        # A worker is taken to need the same time for each task, whatever share it has.
        ends = {
            worker: duration * self.tasks[worker] / self._tasks_per_worker
            for worker, duration in times.items()
        }
        self._allocator.observe(
            {
                name: [times[name] / self._tasks_per_worker] * count
                for name, count in self.tasks.items()
                if count
            },
        )
        self.runtime += max(times.values())
        self.policy_runtime += max(ends.values())
        if self._log_every and self._steps % self._log_every == 0:
            slowest = max(times, key=times.__getitem__)
            _LOG.info(
                "step %d: it would have saved %.1f %%; waited for %s",
                self._steps,
                100 * self.saved,
                slowest,
            )

    def close(self) -> None:
        """Close the file of the times, if there is one."""
        if self._recorder is not None:
            self._recorder.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """What was learned, for ``Allocator(prior=...)``.

        Raises:
            ValueError: Before the first step.
        """
        if self._allocator is None:
            raise ValueError("there is nothing to save before the first step")
        return self._allocator.state_dict()
