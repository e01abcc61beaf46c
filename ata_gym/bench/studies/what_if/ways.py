"""The ways in which the steps of a log are played again, on the very times of the log."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_gym.bench.logs import Log
from ata_gym.pools.constructors import trace
from ata_gym.theory.allocation.proxy_loss import allocate
from ata_gym.typing import Floats, Ints
from ata_gym.utils.errors import RoundError
from ata_policies import Allocator, Clock

AS_IT_IS = "as it is"
"""The name of the way in which the job was run."""
LEARNS = "learns"
"""The kind of the policies that share the tasks of each step out."""

OTHER_ENVS = {"race": "ata_gym/TaskRace-v0", "dispatch": "ata_gym/TaskDispatch-v0"}
"""The envs whose default policy plays, too, by the name of that policy."""
_OTHER_KINDS = {"race": "learns, starts more", "dispatch": "learns, at each result"}

_SEARCHED_TIMES = 50_000
"""The number of times of a log that count in the search for a split, about."""


class Way(NamedTuple):
    """A way to do the work of the steps of a log."""

    name: str
    kind: str
    """What decides: knowledge of the log, a policy that learns, or nothing."""
    round_times: Floats
    """(steps,) the time of each step."""
    worker_times: Floats
    """(steps,) the time that all workers were busy in each step."""


def task_times(log: Log, budget: int) -> Floats:
    """Return the time of one of B equal tasks of each worker in each step, (steps, workers).

    Args:
        log: The times of the job.
        budget: The number B of tasks into which a step is cut.
    """
    # the time of a logged task, times the number of logged tasks in one of the B tasks
    times: Floats = log.seconds / log.tasks * log.tasks.sum(axis=1, keepdims=True) / budget
    return times


def simple_ways(log: Log, times: Floats, budget: int) -> list[Way]:
    """Return the job as it was, with the best fixed split, and without its worst worker.

    Args:
        log: The times of the job.
        times: The times of one task, as ``task_times`` returns them.
        budget: The number B of tasks.
    """
    split_times = best_split(times, budget) * times
    return [
        _of_shares(AS_IT_IS, "", log.seconds),
        _of_shares("best fixed split", "in hindsight", split_times),
        _without_worst(log, times * (budget // len(log.workers))),
    ]


def best_split(times: Floats, budget: int) -> Ints:
    """Return a fixed split of the tasks that no move of one task makes faster.

    Args:
        times: The time of a task of each worker in each step, shape (steps, n). Of long logs of
            many workers every k-th step counts.
        budget: The number B of tasks.

    Returns:
        The tasks of each worker, shape (n,).
    """
    # every k-th step, where k is the number of times over _SEARCHED_TIMES, rounded up
    times = times[:: -(-times.size // _SEARCHED_TIMES)]
    split = allocate(times.mean(axis=0), budget)
    least_time = float((split * times).max(axis=1).sum())
    while True:
        ends = split * times
        best: tuple[float, int, int] = (least_time, 0, 0)
        for giver in np.flatnonzero(split):
            remaining = ends.copy()
            remaining[:, giver] -= times[:, giver]
            highest = remaining.max(axis=1, keepdims=True)
            # a step ends with the slowest of the others, or with the taker, whichever is later
            totals = np.maximum(highest, remaining + times).sum(axis=0)
            totals[giver] = np.inf
            taker = int(totals.argmin())
            best = min(best, (float(totals[taker]), int(giver), taker))
        total, best_giver, best_taker = best
        # a gain within rounding is none, so that the search ends
        if total >= least_time * (1.0 - 1e-12):
            return split
        least_time = total
        split[best_giver] -= 1
        split[best_taker] += 1


def played(
    policy: str,
    times: Floats,
    budget: int,
    progress: Callable[[int], object] = lambda _steps: None,
) -> Way:
    """Return the way of a policy, which sees of each step what it would have seen in the job.

    Args:
        policy: The name of a policy of ``TaskAllocation-v0``, or one of ``OTHER_ENVS``.
        times: The time of a task of each worker in each step, shape (steps, n).
        budget: The number B of tasks.
        progress: Called with the number of steps that are over.

    Raises:
        RoundError: If the policy fails in a step.
    """
    env_id = OTHER_ENVS.get(policy, "ata_gym/TaskAllocation-v0")
    env = gym.make(env_id, pool=trace(list(times.T), replay="round"), budget=budget)
    clock = Clock(env, policy)
    steps = len(times)
    runtime = np.empty(steps)
    total_worker_time = np.empty(steps)
    for step in range(steps):
        try:
            runtime[step] = clock.tick()
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:  # a policy of the user's may raise anything
            raise RoundError(f"in step {step + 1}: {type(error).__name__}: {error}") from error
        total_worker_time[step] = clock.total_worker_time
        progress(step + 1)
    kind = _OTHER_KINDS.get(policy, LEARNS)
    return Way(policy, kind, *(np.diff(sums, prepend=0.0) for sums in (runtime, total_worker_time)))


def learned_state(workers: Iterable[str], times: Floats, budget: int) -> dict[str, Any]:
    """Return what the default policy has learned at the end of a log.

    Args:
        workers: The names of the workers.
        times: The time of a task of each worker in each step, shape (steps, n).
        budget: The number B of tasks.

    Returns:
        The state of an ``Allocator``, for its argument ``prior``.
    """
    names = list(workers)
    allocator = Allocator(names, budget)
    for step in times.tolist():
        tasks = allocator.allocate()
        worker_times = zip(names, step, strict=True)
        allocator.observe(
            {
                worker: [task_time] * tasks[worker]
                for worker, task_time in worker_times
                if tasks[worker]
            },
        )
    return allocator.state_dict()


def _of_shares(name: str, kind: str, share_times: Floats) -> Way:
    """The way in which the share of each worker in each step takes a time, (steps, workers)."""
    return Way(name, kind, share_times.max(axis=1), share_times.sum(axis=1))


def _without_worst(log: Log, share_times: Floats) -> Way:
    """The same work in even shares among all workers but the one without whom that is fastest.

    ``share_times``, (steps, workers), are the times of shares where all workers have even shares.
    """
    n = share_times.shape[1]
    totals = [np.delete(share_times, leaver, axis=1).max(axis=1).sum() for leaver in range(n)]
    leaver = int(np.argmin(totals))
    # the shares of n - 1 workers are larger
    larger_times = np.delete(share_times, leaver, axis=1) * (n / (n - 1))
    return _of_shares(f"without {log.workers[leaver]}", "even shares", larger_times)
