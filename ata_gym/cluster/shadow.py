"""What a policy would save in a job that runs as it is: it looks on, decides, and changes nothing."""

import logging
from collections.abc import Mapping
from typing import Any

from ata_gym.typing import Worker
from ata_gym.utils.validation import whole_number
from ata_policies import Allocator
from ata_policies.allocator.named_workers import checked_seconds

_log = logging.getLogger("ata_gym.cluster")


class Shadow:
    """Plays a policy beside a data-parallel job with even shares, and logs what it would have saved.

    Each step of the job is a round: each worker's step is cut into equal tasks, the policy decides who would have
    computed how many, and learns as if it had decided. Nothing is sent and nothing is changed, so that it may run on
    one rank, on the times that a job gathers anyway. What a worker computes faster or slower with other shares than
    proportionally is not seen.

    - ``tasks``: into how many tasks a step of each worker is cut; the budget B is that times the workers of a step.
    - ``policy``, ``arguments``: as of ``ata_policies.Allocator``.
    - ``every``: steps between two lines in the log ``ata_gym.cluster``; None for no lines.

    ValueError for bad arguments.

    >>> shadow = Shadow(tasks=4, policy="certainty-equivalence", every=None)
    >>> for step in range(10):
    ...     shadow.step({"gpu0": 1.0, "gpu1": 3.0})  # seconds until each had its gradient, before any communication
    >>> shadow.tasks, round(shadow.saved, 3)
    ({'gpu0': 6, 'gpu1': 2}, 0.45)
    """

    runtime = would_be = 0.0  # seconds that the steps took so far, and would have taken, without communication
    tasks: Mapping[Worker, int]  # the policy's last allocation

    def __init__(self, *, tasks: int = 8, policy: str = "default", every: int | None = 100, **arguments: Any) -> None:
        self._each, self._policy, self._arguments = whole_number("tasks", tasks, 2), policy, arguments
        self._every = None if every is None else whole_number("every", every)
        self._allocator: Allocator | None = None
        self._steps, self.tasks = 0, {}

    @property
    def saved(self) -> float:
        """The part of the runtime that the policy would have saved so far; negative if it would have cost more."""
        return 1.0 - self.would_be / self.runtime if self.runtime else 0.0

    def step(self, seconds: Mapping[Worker, float]) -> None:
        """Look at a step, in which each worker needed so many seconds for its share, before any communication.

        ValueError for a time that is no number of at least 0, and for other workers than in the first step; nothing has
        changed then.
        """
        times = {worker: checked_seconds(worker, own) for worker, own in seconds.items()}
        if self._allocator is None:
            self._allocator = Allocator(times, self._each * len(times), self._policy, **self._arguments)
        if times.keys() != set(self._allocator.workers):
            raise ValueError(f"each step has the workers {list(self._allocator.workers)}, not {list(times)}")
        self.tasks = self._allocator.allocate()
        ends = {worker: own * self.tasks[worker] / self._each for worker, own in times.items()}
        self._allocator.observe({who: [times[who] / self._each] * count for who, count in self.tasks.items() if count})
        self.runtime += max(times.values())
        self.would_be += max(ends.values())
        self._steps += 1
        if self._every and self._steps % self._every == 0:
            slowest = max(times, key=times.__getitem__)
            _log.info("step %d: it would have saved %.1f %%; waited for %s", self._steps, 100 * self.saved, slowest)

    def state_dict(self) -> dict[str, Any]:
        """What was learned, for ``Allocator(prior=...)``; ValueError before the first step."""
        if self._allocator is None:
            raise ValueError("there is nothing to save before the first step")
        return self._allocator.state_dict()
