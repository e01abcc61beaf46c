"""A job's steps, played again: with other splits, with policies, as a race, by dispatch, and without a worker."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report.statistics import estimate
from ata_gym.bench.what_if.logs import Log
from ata_gym.pools.constructors import trace
from ata_gym.theory.allocation.proxy_loss import allocate
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number
from ata_policies import Allocator, Clock

POLICIES = ("default", "restarting-beta", "lb-bsp-ema")
_OTHERS = {"race": "ata_gym/TaskRace-v0", "dispatch": "ata_gym/TaskDispatch-v0"}
_PARTS = 10  # parts of a log, one after the other, over which intervals are
_LARGE = 50_000  # times of a log that are looked at in the search for a split
_MATTERS = 0.02  # the part of the runtime below which a change is not worth it


class Alternative(NamedTuple):
    """Another way to share the work of a job."""

    name: str
    kind: str
    runtime: Floats  # (steps,) the time of each step
    worker_time: float  # the time that all workers were busy
    saved: float  # the part of the runtime that it saves
    half: float  # half its 95 % interval over parts of the log; NaN for a log that is too short


class WhatIf(NamedTuple):
    """What stragglers cost, and what the alternatives would give back."""

    log: Log
    budget: int  # tasks B into which a step is cut
    now: Floats  # (steps,) the time of each step as it was
    last: Floats  # (workers,) the part of the steps in which each worker was waited for
    lost: Floats  # (workers,) the part of the runtime for which only that worker was waited for
    idle: float  # the part of the paid worker time in which workers waited
    perfect: float  # the part of the runtime that a perfect split of each step, known beforehand, would save
    alternatives: Sequence[Alternative]
    verdict: str
    state: Mapping[str, Any]  # what the default policy has learned, for ``Allocator(prior=...)``


def what_if(log: Log, *, tasks: int = 8, policies: Sequence[str] = POLICIES) -> WhatIf:
    """Play a job's steps again in other ways, on the very times of its log.

    - ``tasks``: into how many equal tasks the share of a worker is cut, on average, so that B is ``tasks`` for each
      worker. A task of a worker takes the same time in all of a step, its logged one; so what workers share, such as a
      slow disk, stays shared.
    - ``policies``: names of policies of ``ata_gym/TaskAllocation-v0``, beside a race and dispatch by the defaults.

    ValueError for ``tasks`` below 2 or a policy that cannot play.

    >>> from ata_gym.bench.what_if.logs import Log
    >>> times = np.tile([1.0, 1.0, 3.0], (40, 1))
    >>> found = what_if(Log("job", ["a", "b", "c"], times, np.ones_like(times)), policies=["restarting-beta"])
    >>> found.last.tolist(), round(found.idle, 3), round(found.perfect, 3), round(found.alternatives[0].saved, 3)
    ([0.0, 0.0, 1.0], 0.444, 0.571, 0.542)
    """
    n, each = len(log.workers), whole_number("tasks", tasks, 2)
    budget, steps = each * n, len(log.seconds)
    for policy in policies:
        Allocator(n, budget, policy)
    time = log.seconds / log.tasks * log.tasks.sum(axis=1, keepdims=True) / budget  # of a task
    now, ends = log.seconds.max(axis=1), np.sort(log.seconds, axis=1)
    who = log.seconds.argmax(axis=1)
    found = [
        _fixed("best fixed split", "in hindsight", best_split(time, budget), time, now),
        _without(log, time * each, now),
    ]
    playing = {**dict.fromkeys(policies, "ata_gym/TaskAllocation-v0"), **_OTHERS}
    with progress_bars(dict.fromkeys(playing, steps)) as progress:
        for name, env_id in playing.items():
            env = gym.make(env_id, pool=trace(list(time.T), replay="round"), budget=budget)
            clock = Clock(env, "default" if name in _OTHERS else name)
            runtime = np.empty(steps)
            for step in range(steps):
                runtime[step] = clock.tick()
                progress(name, step + 1)
            kind = {"race": "learns, starts more", "dispatch": "learns, at each result"}.get(name, "learns")
            found.append(_of(name, kind, np.diff(runtime, prepend=0.0), clock.total_worker_time, now))
    with np.errstate(divide="ignore"):
        perfect = 1.0 - float(np.sum(budget / (1.0 / time).sum(axis=1)) / now.sum())
    return WhatIf(
        log, budget, now, last=np.bincount(who, minlength=n) / steps,
        lost=np.bincount(who, ends[:, -1] - ends[:, -2], minlength=n) / now.sum(),
        idle=1.0 - float(log.seconds.sum() / (n * now.sum())), perfect=perfect, alternatives=found,
        verdict=_verdict(found, perfect), state=_learned(log, time, budget),
    )  # fmt: skip


def best_split(time: Floats, budget: int) -> Ints:
    """A split of B tasks, (n,), that no move of one task makes faster, for task times in each step, (steps, n).

    Of long logs of many workers every k-th step is looked at.
    """
    time = time[:: -(-time.size // _LARGE)]
    split = allocate(time.mean(axis=0), budget)
    least = float((split * time).max(axis=1).sum())
    while True:
        ends = split * time
        best: tuple[float, int, int] = (least, 0, 0)
        for giver in np.flatnonzero(split):
            given = ends.copy()
            given[:, giver] -= time[:, giver]
            highest = given.max(axis=1, keepdims=True)
            totals = np.maximum(highest, given + time).sum(axis=0)
            totals[giver] = np.inf
            taker = int(totals.argmin())
            best = min(best, (float(totals[taker]), int(giver), taker))
        if best[0] >= least * (1.0 - 1e-12):
            return split
        least = best[0]
        split[best[1]] -= 1
        split[best[2]] += 1


def _of(name: str, kind: str, runtime: Floats, worker_time: float, now: Floats) -> Alternative:
    parts = min(_PARTS, len(now) // 5)
    half = float("nan")
    if parts > 1:
        cut = [part.astype(np.int64) for part in np.array_split(np.arange(len(now)), parts)]
        half = float(estimate(np.array([1.0 - runtime[part].sum() / now[part].sum() for part in cut]))[1])
    return Alternative(name, kind, runtime, float(worker_time), 1.0 - float(runtime.sum() / now.sum()), half)


def _fixed(name: str, kind: str, split: Ints, time: Floats, now: Floats) -> Alternative:
    ends = split * time
    return _of(name, kind, ends.max(axis=1), float(ends.sum()), now)


def _without(log: Log, time: Floats, now: Floats) -> Alternative:
    """The same work in even shares among all workers but the one without whom that is fastest.

    ``time``, (steps, workers), is that of an even share of all workers.
    """
    n = time.shape[1]
    totals = [np.delete(time, leaver, axis=1).max(axis=1).sum() for leaver in range(n)]
    leaver = int(np.argmin(totals))
    ends = np.delete(time, leaver, axis=1) * (n / (n - 1))
    return _of(f"without {log.workers[leaver]}", "even shares", ends.max(axis=1), float(ends.sum()), now)


def _verdict(found: Sequence[Alternative], perfect: float) -> str:  # whether it is worth it, in a sentence
    best = next((one for one in found if one.kind == "learns"), found[0])
    said = f"{best.name} would save {100 * best.saved:z.1f} % (± {100 * best.half:.1f}) of the runtime at price 0"
    if perfect < _MATTERS:
        return f"Not worth it: workers are near equal; a perfect split of each step would save {100 * perfect:.1f} %."
    if np.isnan(best.half):
        return f"The log is too short to say: {best.name} would save {100 * best.saved:z.1f} % of its runtime."
    if best.saved - best.half > _MATTERS:
        return f"Worth it: {said}, by other shares alone."
    if best.saved + best.half < _MATTERS:
        race = next((one for one in found if one.name == "race" and one.saved - one.half > _MATTERS), None)
        more = "" if race is None else f" A race, which cancels what is late, would save {100 * race.saved:.1f} %."
        return f"Not worth it: {said}, by other shares alone.{more}"
    return f"Nothing follows: {said}, and less than {100 * _MATTERS:g} % would not be worth it."


def _learned(log: Log, time: Floats, budget: int) -> Mapping[str, Any]:
    allocator = Allocator(log.workers, budget)
    for step in time.tolist():
        tasks = allocator.allocate()
        own = zip(log.workers, step, strict=True)
        allocator.observe({who: [one] * tasks[who] for who, one in own if tasks[who]})
    return allocator.state_dict()
