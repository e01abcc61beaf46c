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
from ata_gym.utils.compiled import copy_rows, kernel
from ata_gym.utils.ranges import FINITE, Within
from ata_gym.utils.validation import LARGEST_COUNT

Features: TypeAlias = Floats32


class FeatureColumns(NamedTuple):
    """The columns of the features; from ``log_level`` to ``silence`` they show what changes."""

    log_count: int = 0
    """The logarithm of 1 + the number of results, over 5."""
    log_mean: int = 1
    """The logarithm of the time per result, in the row's unit of time, as all logarithms here."""
    log_recent: int = 2
    """The logarithm of the mean of the recent task times."""
    spread: int = 3
    """The standard deviation of the logarithms of the task times."""
    untried: int = 4
    """1 for a worker that has spent no time on tasks, else 0."""
    last_duration: int = 5
    """The logarithm of the last task time."""
    log_level: int = 6
    """The logarithm of the mean task time of its last step with results."""
    log_previous_level: int = 7
    """The same of its step with results before that one."""
    jump: int = 8
    """The logarithm of ``log_level``'s time over the recent mean before that step."""
    jump_of_other_workers: int = 9
    """The mean jump of the other workers with results in the last step."""
    silence: int = 10
    """The logarithm of 1 + the number of steps since its last result, over 3."""
    waited: int = 11
    """The logarithm of 1 + the time of its running or cancelled task."""
    running: int = 12
    """1 for a worker that runs a task, else 0."""
    started: int = 13
    """The tasks that it has started in the round, over the budget."""
    available: int = 14
    """0 for an empty place and for a worker that seems to be away, else 1."""


FEATURE = FeatureColumns()
WORKER_FEATURES = tuple(name.replace("_", " ") for name in FEATURE._fields)
"""The features of a worker by name, in the order of the columns."""
ROUND_FEATURES = ("progress", "log workers", "log budget", "log price", "missing")
"""The features of the round, alike for all workers, in the columns after ``WORKER_FEATURES``."""
WIDTH = len(WORKER_FEATURES) + len(ROUND_FEATURES)
"""The number of columns where workers pay no latency."""
LATENCY_FEATURES = ("mean latency", "last latency")
"""The features of a worker in the columns after all others, where workers pay latencies.

The logarithm of 1 + the mean of those that it has paid, in the row's unit of time, and of 1 + the
last one. A latency that a worker had not yet paid in full when the round ended counts as the time
until then.
"""
LARGEST_FEATURE = 10.0
"""The largest absolute value of a feature."""


class MemoryColumns(NamedTuple):
    """The columns of the memory of a worker."""

    results: int = 0
    """The number of results."""
    busy: int = 1
    """The time spent on tasks."""
    recent: int = 2
    """The recent mean of the task times."""
    log_mean: int = 3
    """The mean of the logarithms of the task times."""
    log_squares: int = 4
    """The sum of the squared deviations from that mean."""
    last: int = 5
    """The last task time."""
    elapsed: int = 6
    """The time of the last cancelled task."""
    silent: int = 7
    """1 for a worker that got tasks and gave no answer, else 0."""
    assigned: int = 8
    """The tasks that it has got for the coming step."""
    level: int = 9
    """The mean task time of its last step with results."""
    previous_level: int = 10
    """The mean task time of its step with results before that one."""
    jump: int = 11
    """The logarithm of ``level`` over the recent mean before that step."""
    since: int = 12
    """The number of steps since that step."""
    latencies: int = 13
    """The number of latencies above 0 that it has paid."""
    late: int = 14
    """The time of these latencies."""
    last_latency: int = 15
    """The last of them."""


MEMORY = MemoryColumns()
_LEAST_WEIGHT = 0.25
"""The least weight of a result in the recent mean of its worker."""
_SHORTEST_TIME = 1e-30
"""The time as which shorter times count where a logarithm is taken."""
_LARGEST_LOG = 800.0
"""A bound above the logarithm of any time, and of the ratio of any two times."""
_LOWEST_NUMBERS = tuple(
    -_LARGEST_LOG if column in (MEMORY.log_mean, MEMORY.jump) else 0.0 for column in MEMORY
)
_LARGEST_NUMBERS = {
    MEMORY.results: LARGEST_COUNT,
    MEMORY.log_mean: _LARGEST_LOG,
    MEMORY.log_squares: LARGEST_COUNT * _LARGEST_LOG**2,
    MEMORY.silent: 1.0,
    MEMORY.assigned: LARGEST_COUNT,
    MEMORY.jump: _LARGEST_LOG,
    MEMORY.since: LARGEST_COUNT,
    MEMORY.latencies: LARGEST_COUNT,
}
_HIGHEST_NUMBERS = tuple(_LARGEST_NUMBERS.get(column, FINITE) for column in MEMORY)
"""The least and the largest number of each column; those that are not named hold times."""


@kernel("(n,m),(r),(r),(n)->(n,m)")
def _observe(
    memory: Floats,
    worker: Ints,
    duration: Floats,
    elapsed: Floats,
    updated: Floats,
) -> None:
    """Add the results of a step and the elapsed times to the memory."""
    n = len(elapsed)
    copy_rows(memory, updated)
    total = np.zeros(n)
    for r in range(len(worker)):
        i = worker[r]
        if i >= 0:
            worker_memory = updated[i]
            x = duration[r]
            worker_memory[MEMORY.results] += 1.0
            worker_memory[MEMORY.busy] += x
            worker_memory[MEMORY.recent] += max(
                1.0 / worker_memory[MEMORY.results], _LEAST_WEIGHT
            ) * (x - worker_memory[MEMORY.recent])
            # Welford's update of mean and squared deviations.
            log = math.log(max(x, _SHORTEST_TIME))
            gap = log - worker_memory[MEMORY.log_mean]
            worker_memory[MEMORY.log_mean] += gap / worker_memory[MEMORY.results]
            worker_memory[MEMORY.log_squares] += gap * (log - worker_memory[MEMORY.log_mean])
            worker_memory[MEMORY.last] = x
            total[i] += x
    for i in range(n):
        results = updated[i, MEMORY.results] - memory[i, MEMORY.results]
        updated[i, MEMORY.since] += 1.0
        if results > 0.0:
            updated[i, MEMORY.level] = total[i] / results
            updated[i, MEMORY.previous_level] = updated[i, MEMORY.level]
            updated[i, MEMORY.since] = 0.0
            if memory[i, MEMORY.results] > 0.0:
                updated[i, MEMORY.previous_level] = memory[i, MEMORY.level]
                log_recent = math.log(max(memory[i, MEMORY.recent], _SHORTEST_TIME))
                updated[i, MEMORY.jump] = (
                    math.log(max(updated[i, MEMORY.level], _SHORTEST_TIME)) - log_recent
                )
        alive = results > 0.0 or elapsed[i] > 0.0
        if alive:
            updated[i, MEMORY.silent] = 0.0
        elif memory[i, MEMORY.assigned] > 0.0:
            updated[i, MEMORY.silent] = 1.0
        updated[i, MEMORY.busy] += elapsed[i]
        updated[i, MEMORY.elapsed] = elapsed[i]
        updated[i, MEMORY.assigned] = 0.0


@kernel("(n,m),(n),(n),(n),(n),(g),(n,k)", writable=(6,))
def _encode(
    memory: Floats,
    running: Floats,
    started: Floats,
    age: Floats,
    present: Floats,
    round_columns: Floats,
    out: Features,
) -> None:
    """Write the features of each worker into ``out``, and behind them the features of the round."""
    n = len(running)
    # The logarithm of the row's unit of time is the mean over workers with a time.
    tried = 0.0
    unit = 0.0
    for i in range(n):
        if memory[i, MEMORY.busy] > 0.0:
            tried += 1.0
            unit += math.log(
                max(memory[i, MEMORY.busy] / max(memory[i, MEMORY.results], 1.0), _SHORTEST_TIME)
            )
    unit = unit / max(tried, 1.0)
    if tried > 0.0:
        scale = math.exp(-unit)
    else:
        scale = 0.0
    # The number of workers with results in the last step, and the sum of their jumps.
    updates = 0.0
    jumps = 0.0
    for i in range(n):
        if memory[i, MEMORY.results] > 0.0 and memory[i, MEMORY.since] == 0.0:
            updates += 1.0
            jumps += memory[i, MEMORY.jump]
    for i in range(n):
        count = memory[i, MEMORY.results]
        busy = memory[i, MEMORY.busy]
        out[i, FEATURE.log_count] = min(math.log1p(count) / 5.0, LARGEST_FEATURE)
        if busy > 0.0:
            mean = busy / max(count, 1.0)
            out[i, FEATURE.log_mean] = math.log(max(mean, _SHORTEST_TIME)) - unit
        else:
            out[i, FEATURE.log_mean] = 0.0
        if count > 0.0:
            recent = max(memory[i, MEMORY.recent], _SHORTEST_TIME)
            last = max(memory[i, MEMORY.last], _SHORTEST_TIME)
            level = max(memory[i, MEMORY.level], _SHORTEST_TIME)
            previous_level = max(memory[i, MEMORY.previous_level], _SHORTEST_TIME)
            out[i, FEATURE.log_recent] = math.log(recent) - unit
            out[i, FEATURE.last_duration] = math.log(last) - unit
            out[i, FEATURE.log_level] = math.log(level) - unit
            out[i, FEATURE.log_previous_level] = math.log(previous_level) - unit
        else:
            out[i, FEATURE.log_recent] = 0.0
            out[i, FEATURE.last_duration] = 0.0
            out[i, FEATURE.log_level] = 0.0
            out[i, FEATURE.log_previous_level] = 0.0
        if count > 1.0:
            out[i, FEATURE.spread] = math.sqrt(memory[i, MEMORY.log_squares] / (count - 1.0))
        else:
            out[i, FEATURE.spread] = 0.0
        if count == 0.0 and busy == 0.0:
            out[i, FEATURE.untried] = 1.0
        else:
            out[i, FEATURE.untried] = 0.0
        out[i, FEATURE.jump] = memory[i, MEMORY.jump]
        other_jumps = jumps
        other_updates = updates
        if count > 0.0 and memory[i, MEMORY.since] == 0.0:
            other_jumps -= memory[i, MEMORY.jump]
            other_updates -= 1.0
        out[i, FEATURE.jump_of_other_workers] = other_jumps / max(other_updates, 1.0)
        out[i, FEATURE.silence] = math.log1p(memory[i, MEMORY.since]) / 3.0
        if running[i] > 0.0:
            waited = age[i]
            out[i, FEATURE.available] = present[i]
        else:
            waited = memory[i, MEMORY.elapsed]
            out[i, FEATURE.available] = present[i] * (1.0 - memory[i, MEMORY.silent])
        out[i, FEATURE.waited] = math.log1p(waited * scale)
        out[i, FEATURE.running] = running[i]
        out[i, FEATURE.started] = started[i]
        for k in range(FEATURE.log_mean, FEATURE.waited + 1):
            out[i, k] = min(max(out[i, k], -LARGEST_FEATURE), LARGEST_FEATURE)
        for k in range(len(round_columns)):
            out[i, len(FEATURE) + k] = round_columns[k]
        latency_column = len(FEATURE) + len(round_columns)
        if latency_column < out.shape[1]:
            mean_latency = memory[i, MEMORY.late] / max(memory[i, MEMORY.latencies], 1.0)
            last_latency = memory[i, MEMORY.last_latency]
            out[i, latency_column] = min(math.log1p(mean_latency * scale), LARGEST_FEATURE)
            out[i, latency_column + 1] = min(math.log1p(last_latency * scale), LARGEST_FEATURE)


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
    """The numbers of each worker, in the columns of ``MemoryColumns``, shape (E, n, 16)."""

    @classmethod
    def bounded(cls, numbers: Floats) -> Self:
        """The memory of these numbers, (E, n, 16), each within what its column may hold."""
        return cls(np.clip(np.nan_to_num(numbers), _LOWEST_NUMBERS, _HIGHEST_NUMBERS))

    @classmethod
    def empty(cls, rows: int, n: int) -> Self:
        """The memory of E rows of n workers at the start of an episode."""
        return cls(np.zeros((rows, n, len(MEMORY))))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats) -> "WorkerMemory":
        """Add the feedback of a step.

        Args:
            worker: The worker of each result, -1 for none, shape (E, r).
            duration: The task time of each result, shape (E, r).
            elapsed: The time of each worker's cancelled task, or 0, shape (E, n).
        """
        return WorkerMemory(_observe(self.workers, worker, duration, elapsed))

    def with_answers(self, feedback: Mapping[str, NDArray[Any]]) -> "WorkerMemory":
        """Remember that workers in their warm-up are there, though their results do not count.

        Args:
            feedback: The feedback of the last step, with a row axis; ``warm_up``, (E, n), says
                which workers are in their warm-up, and none is without it.
        """
        if "warm_up" not in feedback:
            return self
        rows = len(feedback["warm_up"])
        answered = feedback["elapsed"] > 0.0
        for row in range(rows):
            worker = feedback["worker"][row]
            answered[row, worker[worker >= 0]] = True
        workers = self.workers.copy()
        workers[..., MEMORY.silent] *= ~answered
        return WorkerMemory(workers)

    def with_latencies(self, feedback: Mapping[str, NDArray[Any]]) -> "WorkerMemory":
        """Add the latencies of a step, apart from the task times; they are signs of life, too.

        Args:
            feedback: The feedback of the last step, with a row axis; without ``latency``, (E, n),
                nothing is added.
        """
        if "latency" not in feedback:
            return self
        latency = feedback["latency"]
        paid = latency > 0.0
        workers = self.workers.copy()
        workers[..., MEMORY.latencies] += paid
        workers[..., MEMORY.late] += latency
        workers[..., MEMORY.last_latency][paid] = latency[paid]
        workers[..., MEMORY.silent] *= ~paid
        return WorkerMemory(workers)

    def with_assigned(self, tasks: NDArray[np.integer[Any]]) -> "WorkerMemory":
        """Remember how many tasks each worker got, shape (E, n).

        A worker that got tasks, and then has neither a result nor an elapsed time, counts as away.
        """
        workers = self.workers.copy()
        workers[..., MEMORY.assigned] = tasks
        return WorkerMemory(workers)


class RoundFeatures(NamedTuple):
    """The numbers of a scenario from which the features of a round are computed."""

    budget: int
    """The results that a round needs."""
    price: Floats | float = 0.0
    """The price of one unit of worker time, (E,) where rows may differ."""
    horizon: int | None = None
    """The rounds in an episode; None means no end."""
    latency: bool = False
    """Whether the features show latencies (``LATENCY_FEATURES``)."""


def present_in(feedback: Mapping[str, NDArray[Any]]) -> Mask | None:
    """The places that hold a worker, in the shape of the feedback's ``present``.

    None means all.
    """
    if "present" in feedback:
        return feedback["present"] > 0
    return None


def features_of(
    memory: WorkerMemory,
    round_features: RoundFeatures,
    round: Ints,
    feedback: Mapping[str, NDArray[Any]],
    picks: Ints | None = None,
) -> Features:
    """The features, shape (E, n, 20) or, with latencies, (E, n, 22), float32 from -10 to 10.

    They are the same in any unit of time.

    Args:
        memory: The memory of the workers, with the results of ``feedback``.
        round_features: The numbers of the scenario.
        round: The coming round, or the one that has begun, counted from 0, shape (E,).
        feedback: The feedback of the last step.
        picks: The tasks that were picked since, shape (E, n), where an agent picks one worker at a
            time.
    """
    rows, n = memory.workers.shape[:2]
    budget = round_features.budget
    zeros = np.zeros((rows, n))
    if picks is None:
        added = np.zeros((rows, n), np.int64)
    else:
        added = picks
    running = zeros
    started = added / budget
    age = zeros
    missing = budget - added.sum(axis=1)
    if "running" in feedback:
        running = feedback["running"] + added
        started = (feedback["started"] + added) / budget
        age = feedback["age"]
        missing = feedback["missing"][:, 0]
    progress: Floats | float
    if round_features.horizon:
        progress = np.minimum(round / round_features.horizon, 1.0)
    else:
        progress = 0.0
    present = present_in(feedback)
    workers: Ints | int
    presence: Floats | Mask
    if present is None:
        workers = n
        presence = np.ones((rows, n))
    else:
        workers = np.maximum(present.sum(axis=1), 1)
        presence = present
    # In the order of ``ROUND_FEATURES``.
    columns = (
        progress,
        np.log2(workers) / 10,
        min(math.log2(budget) / 10, LARGEST_FEATURE),
        np.clip(np.log10(np.asarray(round_features.price) + 1e-3) / 3, -1, LARGEST_FEATURE),
        missing / budget,
    )
    round_columns = np.empty((rows, len(ROUND_FEATURES)))
    for k, column in enumerate(columns):
        round_columns[:, k] = column
    out = np.empty((rows, n, width_of(round_features.latency)), np.float32)
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


def width_of(latency: bool) -> int:
    """The number of columns of the features, with or without latencies."""
    return WIDTH + len(LATENCY_FEATURES) * latency


def space_of(n: int, in_one_row: bool, latency: bool = False) -> Box:
    """The space of the features of a row of n workers.

    Args:
        n: The number of workers.
        in_one_row: Whether the features are as :func:`flat` gives them; else they have shape
            (n, 20) or, with latencies, (n, 22).
        latency: Whether the features show latencies.
    """
    width = width_of(latency)
    shape: tuple[int, ...]
    if in_one_row:
        shape = (n * (width - len(ROUND_FEATURES)) + len(ROUND_FEATURES),)
    else:
        shape = (n, width)
    return Box(-LARGEST_FEATURE, LARGEST_FEATURE, shape, np.float32)


def flat(features: Features) -> Features:
    """The features in one row, with the features of the round once at the end.

    Args:
        features: Features of shape (..., n, 20) or, with latencies, (..., n, 22).
    """
    of_round = slice(len(WORKER_FEATURES), WIDTH)
    of_workers = np.delete(features, of_round, axis=-1)
    worker_columns = of_workers.reshape(*features.shape[:-2], -1)
    return np.concatenate([worker_columns, features[..., 0, of_round]], axis=-1)
