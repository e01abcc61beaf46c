"""The ways in which the steps of a log are played again, on the very times of the log."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_gym.bench.logs import Log
from ata_gym.pools.constructors import trace
from ata_gym.pools.pool import Pool, concatenate
from ata_gym.theory.allocation.hindsight_split import best_split
from ata_gym.typing import Floats
from ata_gym.utils.errors import RoundError
from ata_policies import Clock

AS_IT_IS = "as it is"
"""The name of the way in which the job was run."""
LEARNS = "learns"
"""The kind of the policies that share the tasks of each step out."""

OTHER_ENVS = {"race": "ata_gym/TaskRace-v0", "dispatch": "ata_gym/TaskDispatch-v0"}
"""The envs whose default policy plays, too, by the name of that policy."""
_OTHER_KINDS = {"race": "learns, starts more", "dispatch": "learns, at each result"}

_MOST_WORK = 280_000_000
"""The most workers x tasks x steps that are played of a log, where a step counts once."""
_WORK = {"race": 2, "dispatch": 16}
"""How often a step counts for policies that take longer than the others."""
_FEWEST_STEPS = 5
"""The least steps that a policy plays which learns from step to step."""
FEWEST_TASKS = 2
"""The least tasks for each worker, of which a split can take one away."""


class Way(NamedTuple):
    """A way to do the work of the steps of a log."""

    name: str
    kind: str
    """What decides: knowledge of the log, a policy that learns, or nothing."""
    round_times: Floats
    """(steps,) the time of each step, or of the first ones where only these are played."""
    worker_times: Floats
    """(steps,) the time that all workers were busy in each step."""
    tasks: Floats
    """(steps, workers) the tasks that each worker begins, of the B of a step."""


def logged_tasks(log: Log, budget: int) -> Floats:
    """Return the tasks of each worker in the log, (steps, workers), as parts of B in each step."""
    tasks: Floats = log.tasks / log.tasks.sum(axis=1, keepdims=True) * budget
    return tasks


def task_times(log: Log, budget: int) -> Floats:
    """Return the time of one of B equal tasks of each worker in each step, (steps, workers).

    It is without the latency, where the log has one. Where a worker has no task in the log, it is
    the time of its last step before (``Log.task_times``).

    Args:
        log: The times of the job.
        budget: The number B of tasks into which a step is cut.
    """
    # the time of a logged task, times the number of logged tasks in one of the B tasks
    times: Floats = log.task_times * log.tasks.sum(axis=1, keepdims=True) / budget
    return times


def simple_ways(log: Log, times: Floats, budget: int) -> list[Way]:
    """Return the job as it was, with the best fixed split, and without its worst worker.

    Args:
        log: The times of the job.
        times: The times of one task, as ``task_times`` returns them.
        budget: The number B of tasks.
    """
    split = best_split(times, budget, log.latency)
    late = 0.0 if log.latency is None else log.latency
    split_times = split * times + (split > 0) * late
    same_split = np.tile(split.astype(np.float64), (len(times), 1))
    return [
        _of_shares(AS_IT_IS, "", log.seconds, logged_tasks(log, budget)),
        _of_shares("best fixed split", "in hindsight", split_times, same_split),
        _without_worst(log, times * (budget / len(log.workers)), late, budget),
    ]


def played_steps(policy: str, steps: int, n: int, budget: int) -> int:
    """Return on how many steps of a log, from the first on, a policy is played.

    A step takes the longer, the more workers and tasks it has, so only the first steps of large
    jobs are played. It follows from the sizes alone: at B = 8 n, all steps of 64 workers x 8,500
    steps or of 256 x 400 are played, and 33 steps of 1,024 workers. A race plays half as many
    steps, and dispatch a sixteenth, since it decides at each of the B results of a step; where that
    is none, dispatch is not played. The others play five steps at least, since they learn from step
    to step.

    Args:
        policy: The name of a policy, as for ``played``.
        steps: The number of steps of the log.
        n: The number of workers.
        budget: The number B of tasks.

    Returns:
        The number of steps; 0 where the policy is not played.

    Example:
        >>> [played_steps(name, 400, 1_024, 8_192) for name in ("ata", "race", "dispatch")]
        [33, 16, 2]
    """
    affordable = _MOST_WORK // (n * budget * _WORK.get(policy, 1))
    if policy != "dispatch":
        affordable = max(affordable, _FEWEST_STEPS)
    return min(steps, affordable)


def remarks_on_parts(counts: Mapping[str, int], steps: int, n: int, budget: int) -> list[str]:
    """Return what a reader should know of the policies that are not played on all steps.

    Args:
        counts: The number of steps that each policy plays, as ``played_steps`` returns them.
        steps: The number of steps of the log.
        n: The number of workers.
        budget: The number B of tasks.
    """
    parts = [f"{name} on {count:,}" for name, count in counts.items() if 0 < count < steps]
    remarks = []
    if parts:
        remarks.append(
            f"A step of {n:,} workers and {budget:,} tasks takes long to play, so policies play the"
            f" first of the {steps:,} steps: {', '.join(parts)}. Each is compared with the same"
            " steps as they were; on more steps it would have learned more, and state.json would"
            " hold more.",
        )
    if counts.get("dispatch") == 0:
        cure = "fewer --tasks make it possible"
        if played_steps("dispatch", steps, n, FEWEST_TASKS * n) == 0:
            cure = "it is for jobs of fewer workers"
        remarks.append(
            f"Dispatch is not played, since it would decide at each of {budget:,} results of"
            f" {n:,} workers in a step: {cure}.",
        )
    return remarks


def played(
    policy: str,
    times: Floats,
    budget: int,
    progress: Callable[[int], object] = lambda _steps: None,
    latency: Floats | None = None,
    seed: int = 0,
) -> tuple[Way, Clock]:
    """Return the way of a policy, which sees of each step what it would have seen in the job.

    Args:
        policy: The name of a policy of ``TaskAllocation-v0``, or one of ``OTHER_ENVS``.
        times: The time of a task of each worker in each step, shape (steps, n).
        budget: The number B of tasks.
        progress: Called with the number of steps that are over.
        latency: What each worker pays in each step before its first task, shape (steps, n); None
            where the log does not say.
        seed: The seed of the policy's own randomness.

    Returns:
        The way, and the clock that played it, with what the policy has learned.

    Raises:
        RoundError: If the policy fails in a step.
    """
    env_id = OTHER_ENVS.get(policy, "ata_gym/TaskAllocation-v0")
    env = gym.make(env_id, pool=_recorded(times, latency), budget=budget)
    bare: Any = env.unwrapped
    clock = Clock(env, policy, seed=seed)
    steps = len(times)
    started = np.zeros((steps + 1, times.shape[1]))
    runtime = np.empty(steps)
    total_worker_time = np.empty(steps)
    for step in range(steps):
        try:
            runtime[step] = clock.tick()
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            # a policy of the user's may raise anything
            raise RoundError(f"in step {step + 1}: {type(error).__name__}: {error}") from error
        total_worker_time[step] = clock.total_worker_time
        if policy == "race":
            # a race begins fewer tasks than it may
            started[step + 1] = bare.checkpoint()["started"][0]
        else:
            started[step + 1] = started[step] + clock.allocation
        progress(step + 1)
    kind = _OTHER_KINDS.get(policy, LEARNS)
    round_times, worker_times = (
        np.diff(sums, prepend=0.0) for sums in (runtime, total_worker_time)
    )
    return Way(policy, kind, round_times, worker_times, np.diff(started, axis=0)), clock


def _recorded(times: Floats, latency: Floats | None) -> Pool:
    """The workers with these task times and latencies in each step, (steps, n) each."""
    if latency is None:
        return trace(list(times.T), replay="round")
    workers = []
    for of_worker, late in zip(times.T, latency.T, strict=True):
        # a trace has times above 0: a worker that never pays anything has no latency
        recorded = trace([late], replay="round") if late.any() else None
        workers.append(trace([of_worker], replay="round", latency=recorded))
    return concatenate(workers)


def _of_shares(name: str, kind: str, share_times: Floats, tasks: Floats) -> Way:
    """The way in which the share of each worker in each step takes a time, (steps, workers)."""
    return Way(name, kind, share_times.max(axis=1), share_times.sum(axis=1), tasks)


def _without_worst(log: Log, work_times: Floats, late: Floats | float, budget: int) -> Way:
    """The same work in even shares among all workers but the one without whom that is fastest.

    ``work_times``, (steps, workers), are the times of the tasks of shares where all workers have
    even shares, and ``late`` are the latencies before them.
    """
    share_times = work_times + late
    n = share_times.shape[1]
    second, longest = np.partition(share_times, n - 2, axis=1)[:, n - 2 :].T
    # without the last worker of a step it ends with the second; without another, as it did
    saved = np.bincount(share_times.argmax(axis=1), longest - second, minlength=n)
    leaver = int(saved.argmax())
    # the shares of n - 1 workers are larger
    larger_times = np.delete(work_times * (n / (n - 1)) + late, leaver, axis=1)
    tasks = np.full(share_times.shape, budget / (n - 1))
    tasks[:, leaver] = 0.0
    name = f"without {log.workers[leaver]}"
    return _of_shares(name, "even shares", larger_times, tasks)
