"""Float32 features of each worker: what was seen of it in the episode, in a form that networks learn from.

The env with ``observation="workers"`` and policies that play a trained agent compute them here, from the same feedback.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc
from ata_gym.utils.ranges import FINITE, Within

Features = NDArray[np.float32]

OF_WORKER = (
    "log count", "log mean", "log recent", "spread", "untried", "last duration", "waited", "running", "started",
    "available",
)  # fmt: skip
"""Features of a worker, in the order of the columns."""
OF_ROUND = ("progress", "log workers", "log budget", "log price", "missing")
"""Features of the round, the same for all workers, in the columns after those of the worker."""
WIDTH = len(OF_WORKER) + len(OF_ROUND)
LARGEST = 10.0  # no feature is larger in absolute value

_COUNT, _BUSY, _RECENT, _LOG_MEAN, _LOG_SQUARES, _LAST, _ELAPSED, _SILENT, _ASKED = range(9)
_COLUMNS = 9
_LOWEST = tuple(-FINITE if column == _LOG_MEAN else 0.0 for column in range(_COLUMNS))
"""The least number of each column."""
_LEAST_WEIGHT = 0.25  # the least weight of a result in the recent mean of its worker
_SHORTEST = 1e-30  # where the logarithm of a time is taken, shorter times count as this one


@gufunc("void(float64[:,:], int64[:], float64[:], float64[:], float64[:,:])", "(n,m),(r),(r),(n)->(n,m)")
def _observe(memory: Any, worker: Any, duration: Any, elapsed: Any, after: Any) -> None:
    n = len(elapsed)
    after[:] = memory
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
    for i in range(n):
        alive = after[i, _COUNT] > memory[i, _COUNT] or elapsed[i] > 0.0
        if alive:
            after[i, _SILENT] = 0.0
        elif memory[i, _ASKED] > 0.0:
            after[i, _SILENT] = 1.0
        after[i, _BUSY] += elapsed[i]
        after[i, _ELAPSED] = elapsed[i]
        after[i, _ASKED] = 0.0


@gufunc(
    "void(float64[:,:], float64[:], float64[:], float64[:], float64[:], float64[:], float32[:,:])",
    "(n,m),(n),(n),(n),(n),(g),(n,k)",
    writable=(6,),
)
def _encode(memory: Any, running: Any, started: Any, age: Any, present: Any, of_round: Any, out: Any) -> None:
    n = len(running)
    tried, unit = 0.0, 0.0  # the logarithm of the row's unit of time: the mean over workers with a time
    for i in range(n):
        if memory[i, _BUSY] > 0.0:
            tried += 1.0
            unit += math.log(max(memory[i, _BUSY] / max(memory[i, _COUNT], 1.0), _SHORTEST))
    unit = unit / max(tried, 1.0)
    scale = math.exp(-unit) if tried > 0.0 else 0.0
    for i in range(n):
        count, busy = memory[i, _COUNT], memory[i, _BUSY]
        out[i, 0] = min(math.log1p(count) / 5.0, LARGEST)
        out[i, 1] = math.log(max(busy / max(count, 1.0), _SHORTEST)) - unit if busy > 0.0 else 0.0
        out[i, 2] = math.log(max(memory[i, _RECENT], _SHORTEST)) - unit if count > 0.0 else 0.0
        out[i, 3] = math.sqrt(memory[i, _LOG_SQUARES] / (count - 1.0)) if count > 1.0 else 0.0
        out[i, 4] = 1.0 if count == 0.0 and busy == 0.0 else 0.0
        out[i, 5] = math.log(max(memory[i, _LAST], _SHORTEST)) - unit if count > 0.0 else 0.0
        out[i, 6] = math.log1p((age[i] if running[i] > 0.0 else memory[i, _ELAPSED]) * scale)
        out[i, 7] = running[i]
        out[i, 8] = started[i]
        out[i, 9] = present[i] if running[i] > 0.0 else present[i] * (1.0 - memory[i, _SILENT])
        for k in range(1, 7):
            out[i, k] = min(max(out[i, k], -LARGEST), LARGEST)
        for k in range(len(of_round)):
            out[i, 10 + k] = of_round[k]


class WorkerMemory(NamedTuple):
    """What E rows remember of n workers in their episodes; the belief of policies that play a trained agent.

    >>> memory = WorkerMemory.empty(1, 2).observe(np.array([[0, 0]]), np.array([[1.0, 3.0]]), np.zeros((1, 2)))
    >>> in_round = RoundFeatures(budget=4).of(np.array([0]), np.array([4]))
    >>> memory.encode(in_round).shape
    (1, 2, 15)
    """

    workers: Annotated[Floats, Within(_LOWEST, FINITE)]  # (E, n, 9), see the names of the columns

    @classmethod
    def empty(cls, rows: int, n: int) -> WorkerMemory:
        """Rows that have seen nothing."""
        return cls(np.zeros((rows, n, _COLUMNS)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats) -> WorkerMemory:
        """Remember the feedback of a step: (E, R) workers and durations, and (E, n) elapsed times."""
        return WorkerMemory(_observe(self.workers, worker, duration, elapsed))

    def asked(self, tasks: NDArray[np.integer[Any]]) -> WorkerMemory:
        """Remember which workers got tasks, (E, n); one of these without a result or elapsed time counts as away."""
        workers = self.workers.copy()
        workers[..., _ASKED] = tasks
        return WorkerMemory(workers)

    def encode(
        self,
        of_round: Floats,
        running: NDArray[Any] | None = None,
        started: NDArray[Any] | None = None,
        age: Floats | None = None,
        present: Mask | None = None,
    ) -> Features:
        """The features, shape (E, n, 15), float32 from -10 to 10; they are the same in any unit of time.

        ``of_round``, (E, 5), is from ``RoundFeatures``. The others, (E, n), say whether each worker runs a task, which
        share of the budget it was given in the round, how long its task has run (by default none runs), and which
        places hold a worker (by default all).
        """
        shape = self.workers.shape[:-1]
        none = np.zeros(shape)
        given = [none if part is None else part for part in (running, started, age)]
        out = np.empty((*shape, WIDTH), np.float32)
        _encode(self.workers, *given, np.ones(shape) if present is None else present, of_round, out)
        return out


class RoundFeatures(NamedTuple):
    """What the features of a round are computed from, beside the round itself."""

    budget: int
    price: Floats | float = 0.0
    horizon: int | None = None

    def of(self, round: Ints, missing: Ints, present: Mask | None = None, n: int = 1) -> Floats:
        """The features, shape (E, 5): of rounds counted from 0 and results that are missing, both (E,).

        ``present``, (E, n), gives the number of workers of each row, else ``n``.
        """
        workers = n if present is None else np.maximum(present.sum(axis=1), 1)
        columns = (
            np.minimum(round / self.horizon, 1.0) if self.horizon else 0.0,
            np.log2(workers) / 10,
            min(math.log2(self.budget) / 10, LARGEST),
            np.clip(np.log10(np.asarray(self.price) + 1e-3) / 3, -1, LARGEST),
            missing / self.budget,
        )
        out = np.empty((len(round), len(OF_ROUND)))
        for k, column in enumerate(columns):
            out[:, k] = column
        return out


def present_in(seen: Mapping[str, NDArray[Any]]) -> Mask | None:
    """Places that hold a worker, of the shape of the feedback's ``present``; None: all."""
    return seen["present"] > 0 if "present" in seen else None


def features_of(
    memory: WorkerMemory,
    of_round: RoundFeatures,
    round: Ints,
    seen: Mapping[str, NDArray[Any]],
    picked: Ints | None = None,
) -> Features:
    """The features, shape (E, n, 15), from what is remembered and the feedback of the last step, ``seen``.

    ``round``, (E,), is the coming round, or the one that has begun, counted from 0. ``picked``, (E, n), are the tasks
    that were picked since, where an agent picks one worker at a time.
    """
    budget, n = of_round.budget, memory.workers.shape[1]
    added = np.zeros(memory.workers.shape[:2], np.int64) if picked is None else picked
    in_round: dict[str, NDArray[Any]] = {"started": added / budget}
    missing = budget - added.sum(axis=1)
    if "running" in seen:
        in_round = {"running": seen["running"] + added, "started": (seen["started"] + added) / budget}
        in_round["age"], missing = seen["age"], seen["missing"][:, 0]
    present = present_in(seen)
    return memory.encode(of_round.of(round, missing, present, n), present=present, **in_round)
