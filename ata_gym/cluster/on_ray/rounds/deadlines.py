"""After how many seconds a task without an answer counts as hung.

It is a fixed time, or a time that is learned from answers.
"""

from collections import defaultdict, deque
from functools import partial
from math import inf

import numpy as np

from ata_gym.typing import Worker
from ata_gym.utils.validation import real

LEARNED = "learned"
# A learned deadline is a quantile of a worker's answers, times a factor, and so many seconds at
# least.
_QUANTILE = 0.99
_QUANTILE_FACTOR = 5.0
_LEAST_DEADLINE = 1.0
# So many of the last answers of a worker count, and so many are needed.
_MOST_ANSWERS = 200
_ENOUGH_ANSWERS = 10


class Deadlines:
    """The deadline of each worker's tasks.

    Args:
        deadline: Seconds; None for never; or "learned": five times the .99 quantile of the worker's
            last 200 answers, and a second at least, once there are ten.

    Raises:
        ValueError: For anything else.

    Example:
        >>> deadlines = Deadlines("learned")
        >>> for seconds in range(1, 101):
        ...     deadlines.note("a", float(seconds))
        >>> round(deadlines.seconds("a"), 2), deadlines.seconds("b")
        (495.05, inf)
    """

    def __init__(self, deadline: float | str | None) -> None:
        if deadline == LEARNED:
            self._fixed = None
        elif deadline is None:
            self._fixed = inf
        else:
            self._fixed = real("deadline", deadline)
        self._answers: dict[Worker, deque[float]] = defaultdict(
            partial(deque, maxlen=_MOST_ANSWERS),
        )

    def note(self, worker: Worker, seconds: float) -> None:
        """Take in an answer of a worker."""
        self._answers[worker].append(seconds)

    def seconds(self, worker: Worker) -> float:
        """The seconds after which a task of a worker counts as hung."""
        if self._fixed is not None:
            return self._fixed
        times = self._answers[worker]
        if len(times) >= _ENOUGH_ANSWERS:
            return max(_QUANTILE_FACTOR * float(np.quantile(times, _QUANTILE)), _LEAST_DEADLINE)
        return inf
