"""Float32 features of each worker: what was seen of it in the episode, in a form that networks learn from.

The env with ``observation="workers"`` and policies that play a trained agent compute them here, from the same feedback.
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

OF_WORKER = (  # features of a worker, in the order of the columns
    *("log count", "log mean", "log recent", "spread", "untried", "last duration"),
    *("log level", "log before", "jump", "others' jump", "silence"),  # what changes from step to step
    *("waited", "running", "started", "available"),
)
OF_ROUND = ("progress", "log workers", "log budget", "log price", "missing")
"""Features of the round, the same for all workers, in the columns after those of the worker."""
WIDTH = len(OF_WORKER) + len(OF_ROUND)
LARGEST = 10.0  # no feature is larger in absolute value

_COUNT, _BUSY, _RECENT, _LOG_MEAN, _LOG_SQUARES, _LAST, _ELAPSED, _SILENT, _ASKED = range(9)
_LEVEL, _BEFORE, _JUMP, _SINCE = range(9, 13)
_COLUMNS = 13
_LEAST_WEIGHT = 0.25  # the least weight of a result in the recent mean of its worker
_SHORTEST = 1e-30  # where the logarithm of a time is taken, shorter times count as this one
_LARGEST_LOG = 800.0  # above the logarithm of any time, and of the ratio of any two
_LOWEST = tuple(-_LARGEST_LOG if column in (_LOG_MEAN, _JUMP) else 0.0 for column in range(_COLUMNS))
_MOST = {
    _COUNT: LARGEST_COUNT, _LOG_MEAN: _LARGEST_LOG, _LOG_SQUARES: LARGEST_COUNT * _LARGEST_LOG**2, _SILENT: 1.0,
    _ASKED: LARGEST_COUNT, _JUMP: _LARGEST_LOG, _SINCE: LARGEST_COUNT,
}  # fmt: skip
_HIGHEST = tuple(_MOST.get(column, FINITE) for column in range(_COLUMNS))
"""The least and the largest number of each column; those that are not named hold times."""


@kernel("(n,m),(r),(r),(n)->(n,m)")
def _observe(memory: Floats, worker: Ints, duration: Floats, elapsed: Floats, after: Floats) -> None:
    n = len(elapsed)
    after[:] = memory
    total = np.zeros(n)
    for r in range(len(worker)):
        i = worker[r]
        if i >= 0:
            now, x = after[i], duration[r]
            now[_COUNT] += 1.0
            now[_BUSY] += x
            now[_RECENT] += max(1.0 / now[_COUNT], _LEAST_WEIGHT) * (x - now[_RECENT])
            log = math.log(max(x, _SHORTEST))
            gap = log - now[_LOG_MEAN]
            now[_LOG_MEAN] += gap / now[_COUNT]
            now[_LOG_SQUARES] += gap * (log - now[_LOG_MEAN])
            now[_LAST] = x
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
                usual = math.log(max(memory[i, _RECENT], _SHORTEST))
                after[i, _JUMP] = math.log(max(after[i, _LEVEL], _SHORTEST)) - usual
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
    memory: Floats, running: Floats, started: Floats, age: Floats, present: Floats, of_round: Floats, out: Features
) -> None:
    n = len(running)
    tried, unit = 0.0, 0.0  # the logarithm of the row's unit of time: the mean over workers with a time
    for i in range(n):
        if memory[i, _BUSY] > 0.0:
            tried += 1.0
            unit += math.log(max(memory[i, _BUSY] / max(memory[i, _COUNT], 1.0), _SHORTEST))
    unit = unit / max(tried, 1.0)
    scale = math.exp(-unit) if tried > 0.0 else 0.0
    news, jumps = 0.0, 0.0
    for i in range(n):
        if memory[i, _COUNT] > 0.0 and memory[i, _SINCE] == 0.0:
            news += 1.0
            jumps += memory[i, _JUMP]
    for i in range(n):
        count, busy = memory[i, _COUNT], memory[i, _BUSY]
        out[i, 0] = min(math.log1p(count) / 5.0, LARGEST)
        out[i, 1] = math.log(max(busy / max(count, 1.0), _SHORTEST)) - unit if busy > 0.0 else 0.0
        out[i, 2] = math.log(max(memory[i, _RECENT], _SHORTEST)) - unit if count > 0.0 else 0.0
        out[i, 3] = math.sqrt(memory[i, _LOG_SQUARES] / (count - 1.0)) if count > 1.0 else 0.0
        out[i, 4] = 1.0 if count == 0.0 and busy == 0.0 else 0.0
        out[i, 5] = math.log(max(memory[i, _LAST], _SHORTEST)) - unit if count > 0.0 else 0.0
        out[i, 6] = math.log(max(memory[i, _LEVEL], _SHORTEST)) - unit if count > 0.0 else 0.0
        out[i, 7] = math.log(max(memory[i, _BEFORE], _SHORTEST)) - unit if count > 0.0 else 0.0
        own = count > 0.0 and memory[i, _SINCE] == 0.0
        out[i, 8] = memory[i, _JUMP]
        out[i, 9] = (jumps - (memory[i, _JUMP] if own else 0.0)) / max(news - (1.0 if own else 0.0), 1.0)
        out[i, 10] = math.log1p(memory[i, _SINCE]) / 3.0
        out[i, 11] = math.log1p((age[i] if running[i] > 0.0 else memory[i, _ELAPSED]) * scale)
        out[i, 12] = running[i]
        out[i, 13] = started[i]
        out[i, 14] = present[i] if running[i] > 0.0 else present[i] * (1.0 - memory[i, _SILENT])
        for k in range(1, 12):
            out[i, k] = min(max(out[i, k], -LARGEST), LARGEST)
        for k in range(len(of_round)):
            out[i, 15 + k] = of_round[k]


class WorkerMemory(NamedTuple):
    """What E rows remember of n workers in their episodes; the belief of policies that play a trained agent.

    >>> memory = WorkerMemory.empty(1, 2).observe(np.array([[0, 0]]), np.array([[1.0, 3.0]]), np.zeros((1, 2)))
    >>> features_of(memory, RoundFeatures(budget=4), np.array([0]), {}).shape
    (1, 2, 20)
    """

    workers: Annotated[Floats, Within(_LOWEST, _HIGHEST)]  # (E, n, 13), see the names of the columns

    @classmethod
    def empty(cls, rows: int, n: int) -> Self:
        return cls(np.zeros((rows, n, _COLUMNS)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats) -> "WorkerMemory":
        return WorkerMemory(_observe(self.workers, worker, duration, elapsed))

    def asked(self, tasks: NDArray[np.integer[Any]]) -> "WorkerMemory":
        """Remember which workers got tasks, (E, n); one of these without a result or elapsed time counts as away."""
        workers = self.workers.copy()
        workers[..., _ASKED] = tasks
        return WorkerMemory(workers)


class RoundFeatures(NamedTuple):
    """What the features of a round are computed from, beside the round itself."""

    budget: int
    price: Floats | float = 0.0
    horizon: int | None = None


def present_in(seen: Mapping[str, NDArray[Any]]) -> Mask | None:
    """Places that hold a worker, of the shape of the feedback's ``present``; None: all."""
    return seen["present"] > 0 if "present" in seen else None


def features_of(
    memory: WorkerMemory, of_round: RoundFeatures, round: Ints, seen: Mapping[str, NDArray[Any]],
    picked: Ints | None = None,
) -> Features:  # fmt: skip
    """The features, shape (E, n, 20), float32 from -10 to 10; they are the same in any unit of time.

    - ``seen``: the feedback of the last step, of whose results the memory knows.
    - ``round``: (E,) the coming round, or the one that has begun, counted from 0.
    - ``picked``: (E, n) the tasks that were picked since, where an agent picks one worker at a time.
    """
    rows, n = memory.workers.shape[:2]
    budget, none = of_round.budget, np.zeros((rows, n))
    added = np.zeros((rows, n), np.int64) if picked is None else picked
    running, started, age, missing = none, added / budget, none, budget - added.sum(axis=1)
    if "running" in seen:
        running, started = seen["running"] + added, (seen["started"] + added) / budget
        age, missing = seen["age"], seen["missing"][:, 0]
    present = present_in(seen)
    columns = (
        np.minimum(round / of_round.horizon, 1.0) if of_round.horizon else 0.0,
        np.log2(n if present is None else np.maximum(present.sum(axis=1), 1)) / 10,
        min(math.log2(budget) / 10, LARGEST),
        np.clip(np.log10(np.asarray(of_round.price) + 1e-3) / 3, -1, LARGEST),
        missing / budget,
    )
    in_round = np.empty((rows, len(OF_ROUND)))
    for k, column in enumerate(columns):
        in_round[:, k] = column
    out = np.empty((rows, n, WIDTH), np.float32)
    _encode(memory.workers, running, started, age, np.ones((rows, n)) if present is None else present, in_round, out)
    return out


def space_of(n: int, in_one_row: bool) -> Box:
    """The space of the features of a row of n workers, (n, 20), or of those of :func:`flat`."""
    shape = (n * len(OF_WORKER) + len(OF_ROUND),) if in_one_row else (n, WIDTH)
    return Box(-LARGEST, LARGEST, shape, np.float32)


def flat(features: Features) -> Features:
    """Features of shape (..., n, 20) in one row, with those of the round once at the end."""
    k = len(OF_WORKER)
    own = features[..., :k].reshape(*features.shape[:-2], -1)
    return np.concatenate([own, features[..., 0, k:]], axis=-1)
