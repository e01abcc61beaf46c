"""After how many seconds a task without an answer counts as hung: a fixed time, or one that is learned from answers."""

from collections import defaultdict, deque
from functools import partial
from math import inf

import numpy as np

from ata_gym.typing import Worker
from ata_gym.utils.validation import real

LEARNED = "learned"
_QUANTILE, _TIMES, _LEAST = 0.99, 5.0, 1.0  # of a worker's answers, times longer than these, and seconds
_ANSWERS, _ENOUGH = 200, 10  # of a worker that count, the last ones; and with how many something is known


class Deadlines:
    """The deadline of each worker's tasks.

    - ``deadline``: seconds; None for never; or "learned": five times the .99 quantile of the worker's last 200 answers,
      and a second at least, once there are ten.

    ValueError for anything else.

    >>> deadlines = Deadlines("learned")
    >>> for seconds in range(1, 101):
    ...     deadlines.note("a", float(seconds))
    >>> round(deadlines.of("a"), 2), deadlines.of("b")
    (495.05, inf)
    """

    def __init__(self, deadline: float | str | None) -> None:
        self._fixed = None if deadline == LEARNED else inf if deadline is None else real("deadline", deadline)
        self._answers: dict[Worker, deque[float]] = defaultdict(partial(deque, maxlen=_ANSWERS))

    def note(self, worker: Worker, seconds: float) -> None:
        """Take in an answer of a worker."""
        self._answers[worker].append(seconds)

    def of(self, worker: Worker) -> float:
        """Seconds after which a task of a worker counts as hung."""
        if self._fixed is not None:
            return self._fixed
        own = self._answers[worker]
        return max(_TIMES * float(np.quantile(own, _QUANTILE)), _LEAST) if len(own) >= _ENOUGH else inf
