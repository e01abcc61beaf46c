"""Float32 features of each worker in the episode, from which networks can learn.

The env with ``observation="workers"`` and policies that play a trained agent compute them here,
from the same feedback.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Self, TypeAlias

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ata_gym.typing import Floats, Floats32, Ints, Mask
from ata_gym.utils.compiled import kernel
from ata_gym.utils.ranges import FINITE, Within
from ata_gym.utils.validation import LARGEST_COUNT

Features: TypeAlias = Floats32

OF_WORKER = (
    "log count",
    "log mean",
    "log recent",
    "spread",
    "untried",
    "last duration",
    "log level",
    "log before",
    "jump",
    "others' jump",
    "silence",
    "waited",
    "running",
    "started",
    "available",
)
"""The features of a worker, in the order of the columns.

From "log level" to "silence" they show what changes from step to step.
"""
OF_ROUND = ("progress", "log workers", "log budget", "log price", "missing")
"""The features of the round, the same for all workers, in the columns after ``OF_WORKER``."""
WIDTH = len(OF_WORKER) + len(OF_ROUND)
"""The number of columns."""
LARGEST = 10.0
"""The largest absolute value of a feature."""

# The columns of the memory of a worker: number of results, time spent on tasks, recent mean of the
# task times, mean of their logarithms and sum of squared deviations from it, last task time, time
# of the last cancelled task, 1 if it was asked and did not answer, tasks asked of it now.
_COUNT, _BUSY, _RECENT, _LOG_MEAN, _LOG_SQUARES, _LAST, _ELAPSED, _SILENT, _ASKED = range(9)
# Mean task time of its last step with results, and of the one before, logarithm of the last one
# over the recent mean, steps since then.
_LEVEL, _BEFORE, _JUMP, _SINCE = range(9, 13)
_COLUMNS = 13
_LEAST_WEIGHT = 0.25
"""The least weight of a result in the recent mean of its worker."""
_SHORTEST_TIME = 1e-30
"""The time as which shorter times count where a logarithm is taken."""
_LARGEST_LOG = 800.0
"""A bound above the logarithm of any time, and of the ratio of any two times."""
_LOWEST_NUMBERS = tuple(
    -_LARGEST_LOG if column in (_LOG_MEAN, _JUMP) else 0.0 for column in range(_COLUMNS)
)
_LARGEST_NUMBERS = {
    _COUNT: LARGEST_COUNT,
    _LOG_MEAN: _LARGEST_LOG,
    _LOG_SQUARES: LARGEST_COUNT * _LARGEST_LOG**2,
    _SILENT: 1.0,
    _ASKED: LARGEST_COUNT,
    _JUMP: _LARGEST_LOG,
    _SINCE: LARGEST_COUNT,
}
_HIGHEST_NUMBERS = tuple(_LARGEST_NUMBERS.get(column, FINITE) for column in range(_COLUMNS))
"""The least and the largest number of each column; those that are not named hold times."""


@kernel("(n,m),(r),(r),(n)->(n,m)")
def _observe(
    memory: Floats,
    worker: Ints,
    duration: Floats,
    elapsed: Floats,
    after: Floats,
) -> None:
    """Add the results of a step and the elapsed times to the memory."""
    n = len(elapsed)
    after[:] = memory
    total = np.zeros(n)
    for r in range(len(worker)):
        i = worker[r]
        if i >= 0:
            worker_memory = after[i]
            x = duration[r]
            worker_memory[_COUNT] += 1.0
            worker_memory[_BUSY] += x
            worker_memory[_RECENT] += max(1.0 / worker_memory[_COUNT], _LEAST_WEIGHT) * (
                x - worker_memory[_RECENT]
            )
            # Welford's update of mean and squared deviations.
            log = math.log(max(x, _SHORTEST_TIME))
            gap = log - worker_memory[_LOG_MEAN]
            worker_memory[_LOG_MEAN] += gap / worker_memory[_COUNT]
            worker_memory[_LOG_SQUARES] += gap * (log - worker_memory[_LOG_MEAN])
            worker_memory[_LAST] = x
            total[i] += x
    for i in range(n):
        results = after[i, _COUNT] - memory[i, _COUNT]
        after[i, _SINCE] += 1.0
        if results > 0.0:
            after[i, _LEVEL] = total[i] / results
            after[i, _BEFORE] = after[i, _LEVEL]
            after[i, _SINCE] = 0.0
            if memory[i, _COUNT] > 0.0:
                after[i, _BEFORE] = memory[i, _LEVEL]
                log_recent = math.log(max(memory[i, _RECENT], _SHORTEST_TIME))
                after[i, _JUMP] = math.log(max(after[i, _LEVEL], _SHORTEST_TIME)) - log_recent
        alive = results > 0.0 or elapsed[i] > 0.0
        if alive:
            after[i, _SILENT] = 0.0
        elif memory[i, _ASKED] > 0.0:
            after[i, _SILENT] = 1.0
        after[i, _BUSY] += elapsed[i]
        after[i, _ELAPSED] = elapsed[i]
        after[i, _ASKED] = 0.0


@kernel("(n,m),(n),(n),(n),(n),(g),(n,k)", writable=(6,))
def _encode(
    memory: Floats,
    running: Floats,
    started: Floats,
    age: Floats,
    present: Floats,
    round_features: Floats,
    out: Features,
) -> None:
    """Write the features of each worker; the columns of ``out`` are ``OF_WORKER``, ``OF_ROUND``."""
    n = len(running)
    # The logarithm of the row's unit of time is the mean over workers with a time.
    tried = 0.0
    unit = 0.0
    for i in range(n):
        if memory[i, _BUSY] > 0.0:
            tried += 1.0
            unit += math.log(max(memory[i, _BUSY] / max(memory[i, _COUNT], 1.0), _SHORTEST_TIME))
    unit = unit / max(tried, 1.0)
    if tried > 0.0:
        scale = math.exp(-unit)
    else:
        scale = 0.0
    # The workers with results in the last step, and the sum of their jumps.
    news = 0.0
    jumps = 0.0
    for i in range(n):
        if memory[i, _COUNT] > 0.0 and memory[i, _SINCE] == 0.0:
            news += 1.0
            jumps += memory[i, _JUMP]
    for i in range(n):
        count = memory[i, _COUNT]
        busy = memory[i, _BUSY]
        out[i, 0] = min(math.log1p(count) / 5.0, LARGEST)
        if busy > 0.0:
            out[i, 1] = math.log(max(busy / max(count, 1.0), _SHORTEST_TIME)) - unit
        else:
            out[i, 1] = 0.0
        if count > 0.0:
            out[i, 2] = math.log(max(memory[i, _RECENT], _SHORTEST_TIME)) - unit
            out[i, 5] = math.log(max(memory[i, _LAST], _SHORTEST_TIME)) - unit
            out[i, 6] = math.log(max(memory[i, _LEVEL], _SHORTEST_TIME)) - unit
            out[i, 7] = math.log(max(memory[i, _BEFORE], _SHORTEST_TIME)) - unit
        else:
            out[i, 2] = 0.0
            out[i, 5] = 0.0
            out[i, 6] = 0.0
            out[i, 7] = 0.0
        if count > 1.0:
            out[i, 3] = math.sqrt(memory[i, _LOG_SQUARES] / (count - 1.0))
        else:
            out[i, 3] = 0.0
        if count == 0.0 and busy == 0.0:
            out[i, 4] = 1.0
        else:
            out[i, 4] = 0.0
        out[i, 8] = memory[i, _JUMP]
        # The mean jump of the other workers with results in the last step.
        others_jumps = jumps
        others_news = news
        if count > 0.0 and memory[i, _SINCE] == 0.0:
            others_jumps -= memory[i, _JUMP]
            others_news -= 1.0
        out[i, 9] = others_jumps / max(others_news, 1.0)
        out[i, 10] = math.log1p(memory[i, _SINCE]) / 3.0
        if running[i] > 0.0:
            waited = age[i]
            out[i, 14] = present[i]
        else:
            waited = memory[i, _ELAPSED]
            out[i, 14] = present[i] * (1.0 - memory[i, _SILENT])
        out[i, 11] = math.log1p(waited * scale)
        out[i, 12] = running[i]
        out[i, 13] = started[i]
        for k in range(1, 12):
            out[i, k] = min(max(out[i, k], -LARGEST), LARGEST)
        for k in range(len(round_features)):
            out[i, 15 + k] = round_features[k]


class WorkerMemory(NamedTuple):
    """The memory that E rows have of n workers in their episodes.

    It is the belief of policies that play a trained agent.

    Example:
        >>> results = np.array([[0, 0]]), np.array([[1.0, 3.0]])
        >>> memory = WorkerMemory.empty(1, 2).observe(*results, elapsed=np.zeros((1, 2)))
        >>> features_of(memory, RoundFeatures(budget=4), np.array([0]), {}).shape
        (1, 2, 20)
    """

    workers: Annotated[Floats, Within(_LOWEST_NUMBERS, _HIGHEST_NUMBERS)]
    """The columns of each worker, from ``_COUNT`` to ``_SINCE``, shape (E, n, 13)."""

    @classmethod
    def empty(cls, rows: int, n: int) -> Self:
        """The memory of E rows of n workers at the start of an episode."""
        return cls(np.zeros((rows, n, _COLUMNS)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats) -> "WorkerMemory":
        """Add the feedback of a step.

        Args:
            worker: The worker of each result, -1 for none, shape (E, r).
            duration: The task time of each result, shape (E, r).
            elapsed: The time of each worker's cancelled task, or 0, shape (E, n).
        """
        return WorkerMemory(_observe(self.workers, worker, duration, elapsed))

    def asked(self, tasks: NDArray[np.integer[Any]]) -> "WorkerMemory":
        """Remember how many tasks each worker got, shape (E, n).

        A worker that got tasks, and then has neither a result nor an elapsed time, counts as away.
        """
        workers = self.workers.copy()
        workers[..., _ASKED] = tasks
        return WorkerMemory(workers)


class RoundFeatures(NamedTuple):
    """The numbers of a scenario from which the features of a round are computed."""

    budget: int
    """The results that a round needs."""
    price: Floats | float = 0.0
    """The price of one unit of worker time, (E,) where rows may differ."""
    horizon: int | None = None
    """The rounds in an episode; None means no end."""


def present_in(seen: Mapping[str, NDArray[Any]]) -> Mask | None:
    """The places that hold a worker, of the shape of the feedback's ``present``.

    None means all.
    """
    if "present" in seen:
        return seen["present"] > 0
    return None


def features_of(
    memory: WorkerMemory,
    of_round: RoundFeatures,
    round: Ints,
    seen: Mapping[str, NDArray[Any]],
    picked: Ints | None = None,
) -> Features:
    """The features, shape (E, n, 20), float32 from -10 to 10.

    They are the same in any unit of time.

    Args:
        memory: The memory of the workers, with the results of ``seen``.
        of_round: The numbers of the scenario.
        round: The coming round, or the one that has begun, counted from 0, shape (E,).
        seen: The feedback of the last step.
        picked: The tasks that were picked since, shape (E, n), where an agent picks one worker at a
            time.
    """
    rows, n = memory.workers.shape[:2]
    budget = of_round.budget
    zeros = np.zeros((rows, n))
    if picked is None:
        added = np.zeros((rows, n), np.int64)
    else:
        added = picked
    running = zeros
    started = added / budget
    age = zeros
    missing = budget - added.sum(axis=1)
    if "running" in seen:
        running = seen["running"] + added
        started = (seen["started"] + added) / budget
        age = seen["age"]
        missing = seen["missing"][:, 0]
    progress: Floats | float
    if of_round.horizon:
        progress = np.minimum(round / of_round.horizon, 1.0)
    else:
        progress = 0.0
    present = present_in(seen)
    workers: Ints | int
    presence: Floats | Mask
    if present is None:
        workers = n
        presence = np.ones((rows, n))
    else:
        workers = np.maximum(present.sum(axis=1), 1)
        presence = present
    # In the order of ``OF_ROUND``.
    columns = (
        progress,
        np.log2(workers) / 10,
        min(math.log2(budget) / 10, LARGEST),
        np.clip(np.log10(np.asarray(of_round.price) + 1e-3) / 3, -1, LARGEST),
        missing / budget,
    )
    round_columns = np.empty((rows, len(OF_ROUND)))
    for k, column in enumerate(columns):
        round_columns[:, k] = column
    out = np.empty((rows, n, WIDTH), np.float32)
    _encode(
        memory.workers,
        running,
        started,
        age,
        presence,
        round_columns,
        out,
    )
    return out


def space_of(n: int, in_one_row: bool) -> Box:
    """The space of the features of a row of n workers.

    Args:
        n: The number of workers.
        in_one_row: Whether the features are as :func:`flat` gives them; else they have shape
            (n, 20).
    """
    shape: tuple[int, ...]
    if in_one_row:
        shape = (n * len(OF_WORKER) + len(OF_ROUND),)
    else:
        shape = (n, WIDTH)
    return Box(-LARGEST, LARGEST, shape, np.float32)


def flat(features: Features) -> Features:
    """The features in one row, with the features of the round once at the end.

    Args:
        features: Features of shape (..., n, 20).
    """
    k = len(OF_WORKER)
    worker_columns = features[..., :k].reshape(*features.shape[:-2], -1)
    return np.concatenate([worker_columns, features[..., 0, k:]], axis=-1)
