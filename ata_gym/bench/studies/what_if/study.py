"""A job's steps, played again in other ways.

The ways are other splits, policies, a race, dispatch, and the same work without one worker.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_gym.bench.report.statistics import estimate
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.bench.studies.what_if.logs import Log
from ata_gym.pools.constructors import trace
from ata_gym.theory.allocation.proxy_loss import allocate
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number
from ata_policies import Allocator, Clock

POLICIES = ("default", "restarting-beta", "lb-bsp-ema")
_OTHER_ENVS = {"race": "ata_gym/TaskRace-v0", "dispatch": "ata_gym/TaskDispatch-v0"}
_OTHER_KINDS = {"race": "learns, starts more", "dispatch": "learns, at each result"}
"""What the defaults of these two envs do; a policy of allocation learns."""
_LOG_PARTS = 10
"""The number of parts of a log, one after the other, over which intervals are taken."""

_SEARCHED_TIMES = 50_000
"""The number of times of a log that count in the search for a split, about."""

_LEAST_SAVING = 0.02
"""The part of the runtime below which a change is not worth it."""


class Alternative(NamedTuple):
    """Another way to share the work of a job."""

    name: str
    kind: str
    runtime: Floats
    """(steps,) the time of each step."""
    worker_time: float
    """The time that all workers were busy."""
    saved: float
    """The part of the runtime that it saves."""
    half: float
    """Half its 95 % interval over parts of the log; NaN for a log that is too short."""


class WhatIf(NamedTuple):
    """What stragglers cost, and what the alternatives would give back."""

    log: Log
    budget: int
    """Tasks B into which a step is cut."""
    now: Floats
    """(steps,) the time of each step as it was."""
    last: Floats
    """(workers,) the part of the steps in which each worker was waited for."""
    lost: Floats
    """(workers,) the part of the runtime for which only that worker was waited for."""
    idle: float
    """The part of the paid worker time in which workers waited."""
    perfect: float
    """The part of the runtime that a perfect split of each step, known beforehand, would save."""
    alternatives: Sequence[Alternative]
    verdict: str
    state: Mapping[str, Any]
    """What the default policy has learned, for ``Allocator(prior=...)``."""


def what_if(log: Log, *, tasks: int = 8, policies: Sequence[str] = POLICIES) -> WhatIf:
    """Play a job's steps again in other ways, on the very times of its log.

    Args:
        log: The times of the job.
        tasks: The number of equal tasks into which the share of a worker is cut, on average, so
            that B is ``tasks`` for each worker. A task of a worker takes the same time in all of a
            step, its logged one; so what workers share, such as a slow disk, stays shared.
        policies: Names of policies of ``ata_gym/TaskAllocation-v0``, beside a race and dispatch by
            the defaults.

    Raises:
        ValueError: For ``tasks`` below 2 or a policy that cannot play.

    Example:
        >>> from ata_gym.bench.studies.what_if.logs import Log
        >>> times = np.tile([1.0, 1.0, 3.0], (40, 1))
        >>> log = Log("job", ["a", "b", "c"], times, np.ones_like(times))
        >>> found = what_if(log, policies=["restarting-beta"])
        >>> found.last.tolist(), round(found.idle, 3), round(found.perfect, 3)
        ([0.0, 0.0, 1.0], 0.444, 0.571)
        >>> round(found.alternatives[0].saved, 3)
        0.542
    """
    n = len(log.workers)
    tasks_per_worker = whole_number("tasks", tasks, 2)
    budget = tasks_per_worker * n
    steps = len(log.seconds)
    for policy in policies:
        Allocator(n, budget, policy)
    # of one of B tasks, (steps, n): the time of a logged task, times the logged tasks per task of B
    time = log.seconds / log.tasks * log.tasks.sum(axis=1, keepdims=True) / budget
    now = log.seconds.max(axis=1)
    times = np.sort(log.seconds, axis=1)
    slowest = log.seconds.argmax(axis=1)
    alternatives = [
        _fixed("best fixed split", "in hindsight", best_split(time, budget), time, now),
        _without(log, time * tasks_per_worker, now),
    ]
    env_ids = {**dict.fromkeys(policies, "ata_gym/TaskAllocation-v0"), **_OTHER_ENVS}
    with progress_bars(dict.fromkeys(env_ids, steps)) as progress:
        for name, env_id in env_ids.items():
            env = gym.make(env_id, pool=trace(list(time.T), replay="round"), budget=budget)
            if name in _OTHER_ENVS:
                clock = Clock(env, "default")
            else:
                clock = Clock(env, name)
            runtime = np.empty(steps)
            for step in range(steps):
                runtime[step] = clock.tick()
                progress(name, step + 1)
            round_times = np.diff(runtime, prepend=0.0)
            kind = _OTHER_KINDS.get(name, "learns")
            alternatives.append(_of(name, kind, round_times, clock.total_worker_time, now))
    # in a perfect split all workers end together: B tasks at the sum of the workers' speeds
    with np.errstate(divide="ignore"):
        perfect = 1.0 - float(np.sum(budget / (1.0 / time).sum(axis=1)) / now.sum())
    return WhatIf(
        log,
        budget,
        now,
        last=np.bincount(slowest, minlength=n) / steps,
        lost=np.bincount(slowest, times[:, -1] - times[:, -2], minlength=n) / now.sum(),
        idle=1.0 - float(log.seconds.sum() / (n * now.sum())),
        perfect=perfect,
        alternatives=alternatives,
        verdict=_verdict(alternatives, perfect),
        state=_learned(log, time, budget),
    )


def best_split(time: Floats, budget: int) -> Ints:
    """A fixed split of the tasks that no move of one task makes faster.

    Args:
        time: The time of a task of each worker in each step, shape (steps, n). Of long logs of many
            workers every k-th step counts.
        budget: The number B of tasks.

    Returns:
        The tasks of each worker, shape (n,).
    """
    # every k-th step, where k is the number of times over _SEARCHED_TIMES, rounded up
    time = time[:: -(-time.size // _SEARCHED_TIMES)]
    split = allocate(time.mean(axis=0), budget)
    least_time = float((split * time).max(axis=1).sum())
    while True:
        ends = split * time
        best: tuple[float, int, int] = (least_time, 0, 0)
        for giver in np.flatnonzero(split):
            remaining = ends.copy()
            remaining[:, giver] -= time[:, giver]
            highest = remaining.max(axis=1, keepdims=True)
            # a step ends with the slowest of the others, or with the taker, whichever is later
            totals = np.maximum(highest, remaining + time).sum(axis=0)
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


def _of(name: str, kind: str, runtime: Floats, worker_time: float, now: Floats) -> Alternative:
    """An alternative whose steps take times ``runtime``, (steps,), and took times ``now``."""
    # parts of at least 5 steps each
    parts = min(_LOG_PARTS, len(now) // 5)
    half = float("nan")
    if parts > 1:
        part_steps = [part.astype(np.int64) for part in np.array_split(np.arange(len(now)), parts)]
        saved_by_part = np.array(
            [1.0 - runtime[part].sum() / now[part].sum() for part in part_steps]
        )
        half = float(estimate(saved_by_part)[1])
    saved = 1.0 - float(runtime.sum() / now.sum())
    return Alternative(name, kind, runtime, float(worker_time), saved, half)


def _fixed(name: str, kind: str, split: Ints, time: Floats, now: Floats) -> Alternative:
    """The same tasks for each worker in all steps, (n,), with task times (steps, n)."""
    ends = split * time
    return _of(name, kind, ends.max(axis=1), float(ends.sum()), now)


def _without(log: Log, time: Floats, now: Floats) -> Alternative:
    """The same work in even shares among all workers but the one without whom that is fastest.

    ``time``, (steps, workers), is the time of a share where all workers have even shares.
    """
    n = time.shape[1]
    totals = [np.delete(time, leaver, axis=1).max(axis=1).sum() for leaver in range(n)]
    leaver = int(np.argmin(totals))
    # the shares of n - 1 workers are larger
    ends = np.delete(time, leaver, axis=1) * (n / (n - 1))
    name = f"without {log.workers[leaver]}"
    return _of(name, "even shares", ends.max(axis=1), float(ends.sum()), now)


def _verdict(alternatives: Sequence[Alternative], perfect: float) -> str:
    """Whether another way is worth it, in a sentence."""
    # the first policy speaks for all; without policies the best fixed split does
    best = next(
        (alternative for alternative in alternatives if alternative.kind == "learns"),
        alternatives[0],
    )
    clause = (
        f"{best.name} would save {100 * best.saved:z.1f} % (± {100 * best.half:.1f}) of the runtime"
        " at price 0"
    )
    if perfect < _LEAST_SAVING:
        return (
            "Not worth it: workers are near equal; a perfect split of each step would save"
            f" {100 * perfect:.1f} %."
        )
    if np.isnan(best.half):
        return (
            f"The log is too short to say: {best.name} would save {100 * best.saved:z.1f} % of its"
            " runtime."
        )
    if best.saved - best.half > _LEAST_SAVING:
        return f"Worth it: {clause}, by other shares alone."
    if best.saved + best.half < _LEAST_SAVING:
        race = next(
            (
                alternative
                for alternative in alternatives
                if alternative.name == "race"
                and alternative.saved - alternative.half > _LEAST_SAVING
            ),
            None,
        )
        if race is None:
            race_text = ""
        else:
            race_text = f" A race, which cancels what is late, would save {100 * race.saved:.1f} %."
        return f"Not worth it: {clause}, by other shares alone.{race_text}"
    return (
        f"Nothing follows: {clause}, and less than {100 * _LEAST_SAVING:g} % would not be worth it."
    )


def _learned(log: Log, time: Floats, budget: int) -> Mapping[str, Any]:
    """What the default policy has learned at the end of the log, with task times (steps, n)."""
    allocator = Allocator(log.workers, budget)
    for step in time.tolist():
        tasks = allocator.allocate()
        worker_times = zip(log.workers, step, strict=True)
        allocator.observe(
            {
                worker: [task_time] * tasks[worker]
                for worker, task_time in worker_times
                if tasks[worker]
            }
        )
    return allocator.state_dict()
