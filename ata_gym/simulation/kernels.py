"""Every compiled loop of the simulation: keyed noise, task times from quantiles, and the events of a round.

A task's noise is a counter-based uniform number: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC 2011) with the row's key and the counter (task, worker, episode). It depends on nothing else: not on the
policy, the batch or the process.

numba takes no tuples here, so each kernel has its arrays one by one, in groups that are in the order of a named tuple's
fields. ``rounds.py`` and ``dispatch.py`` alone call the kernels that play rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from numba.extending import get_cython_function_address

from ata_gym.pools.distributions import Distributions
from ata_gym.typing import Bits, Floats, Ints, Keys
from ata_gym.utils.compiled import gufunc, inlined

Word = Any  # an unsigned integer of 32 or 64 bits, whose arithmetic wraps


def _scipy(name: str, arguments: int) -> Callable[..., float]:
    """A scalar function of scipy.special for use inside kernels, linked by symbol so that kernels stay cacheable."""
    symbol = f"ata_gym_{name}"
    llvmlite.binding.add_symbol(symbol, get_cython_function_address("scipy.special.cython_special", name))
    signature = numba.types.float64(*[numba.types.float64] * arguments, numba.types.intc)
    function: Callable[..., float] = numba.types.ExternalFunction(symbol, signature)
    return function


_LARGEST_UNIFORM = 1.0 - 2.0**-53
gamma_quantile = _scipy("gammaincinv", 2)
normal_quantile = _scipy("ndtri", 1)


@inlined
def philox(key: Word, task: int, worker: int, episode: int) -> tuple[Word, Word]:
    """Two 32-bit words of Philox-4x32-10 for a 64-bit key and a (64, 32, 32)-bit counter."""
    k0, k1 = np.uint32(key), np.uint32(key >> np.uint64(32))
    c0, c1 = np.uint32(task), np.uint32(np.uint64(task) >> np.uint64(32))
    c2, c3 = np.uint32(worker), np.uint32(episode)
    for _ in range(10):
        low, high = np.uint64(0xD2511F53) * np.uint64(c0), np.uint64(0xCD9E8D57) * np.uint64(c2)
        c0 = np.uint32(np.uint32(high >> np.uint64(32)) ^ c1 ^ k0)
        c2 = np.uint32(np.uint32(low >> np.uint64(32)) ^ c3 ^ k1)
        c1, c3 = np.uint32(high), np.uint32(low)
        k0 = np.uint32(k0 + np.uint32(0x9E3779B9))
        k1 = np.uint32(k1 + np.uint32(0xBB67AE85))
    return c0, c1


@inlined
def _uniform(key: Word, task: int, worker: int, episode: int) -> float:
    """The noise of a task: 52 bits, symmetric within (0, 1), so that u and 1 - u are both exact and neither is 0."""
    high, low = philox(key, task, worker, episode)
    return (np.float64((np.uint64(high) << np.uint64(20)) | np.uint64(low >> np.uint32(12))) + 0.5) * 2.0**-52


@inlined
def _standard_time(family: int, shape: float, u: float) -> float:
    """Quantile ``u`` of a family's standard distribution; the codes are those of ``ata_gym.pools.families``."""
    if family == 1:  # exponential
        return -math.log(1.0 - u)
    if family == 2:  # uniform
        return u
    if family == 3:  # half-normal
        return -normal_quantile(0.5 * (1.0 - u), np.intc(0))
    if family == 4:  # gamma
        return gamma_quantile(shape, u, np.intc(0))
    if family == 5:  # log-normal
        return math.exp(shape * normal_quantile(u, np.intc(0)))
    if family == 6:  # weibull
        return math.pow(-math.log(1.0 - u), 1.0 / shape)
    if family == 7:  # pareto
        return math.pow(1.0 - u, -1.0 / shape)
    return 1.0  # deterministic


@inlined
def _disturbed(u: float, share: float, own: float, common: float) -> float:
    """A task's noise under outliers and shared noise: below 1, or in [1, 2) for an outlier."""
    if share > 0.0:
        rest = 1.0 - share
        if u >= rest:  # the top end
            return 1.0 + (u - rest) / share
        u /= rest
    if own < 1.0:
        normal = own * normal_quantile(u, np.intc(0)) + common
        u = min(0.5 * math.erfc(-normal / math.sqrt(2.0)), _LARGEST_UNIFORM)
    return u


@inlined
def _task_time(
    family: int, shift: float, scale: float, shape: float, table: Floats, first: int, length: int,
    low: float, high: float, round_index: int, task: int, u: float,
) -> float:  # fmt: skip
    """The time of a worker's ``task`` (counted from 0 in the episode), started in a round (likewise).

    An outlier, whose ``u`` is in [1, 2), takes a time from ``low`` to ``high``.
    """
    z: float
    if u >= 1.0:
        return low + (high - low) * (u - 1.0)
    if family == 8:  # trace by task
        z = table[first + task % length]
    elif family == 9:  # trace by round
        z = table[first + round_index % length]
    else:
        z = _standard_time(family, shape, u)
    return shift + scale * z


@inlined
def _time_of(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints, noise: Floats,
    i: int, round_index: int, task: int, u: float,
) -> float:  # fmt: skip
    """The time of a task of worker ``i`` from its noise ``u``, with the round's disturbances."""
    u = _disturbed(u, noise[i, 0], noise[i, 3], noise[i, 4])
    time: float = _task_time(
        family[i], shift[i], scale[i], shape[i], table, first[i], length[i], noise[i, 1], noise[i, 2],
        round_index, task, u,
    )  # fmt: skip
    return time


@inlined
def _alive(dies: float, now: float) -> bool:
    """Whether a worker that dies at ``dies`` is alive; one that never dies is so even at a time that overflowed."""
    return dies > now or dies == math.inf


@inlined
def _end(begun: float, duration: float, dies: float) -> float:
    """When a task ends, or its worker dies: never NaN, so that events stay in order and a round ends."""
    return begun + duration if begun + duration < dies else dies


def distribution_arguments(distributions: Distributions, noise: Floats) -> tuple[Ints | Floats, ...]:
    """The first arguments of every kernel that draws task times; ``noise`` is that of ``Disturbances``."""
    return *distributions[:-1], noise


_DISTRIBUTIONS = "int64[:],float64[:],float64[:],float64[:],float64[:],int64[:],int64[:],float64[:,:],"
_DISTRIBUTIONS_LAYOUT = "(n),(n),(n),(n),(m),(n),(n),(n,q),"
"""Types and shapes of what ``distribution_arguments`` gives."""


@gufunc(
    f"void({_DISTRIBUTIONS}uint64[:],int64[:],int64[:],int64[:],int64[:],int64[:],float64[:],int64[:],float64[:],float64[:])",
    f"{_DISTRIBUTIONS_LAYOUT}(),(),(),(n),(n),(b),(b)->(n),(),()",
    (13, 14),
)
def run_allocation(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints, noise: Floats,
    key: Keys, episode: Ints, round_index: Ints, started: Ints, allocation: Ints,
    worker: Ints, time: Floats, started_after: Ints, round_time: Floats, worker_time: Floats,
) -> None:  # fmt: skip
    """Every worker runs its tasks one after the other, and nobody dies; the round ends when the last task is done."""
    budget = len(worker)
    padded = (budget + 8) // 8 * 8  # whole vectors, with a spare place at the end
    scratch = np.empty((2, padded), np.int64)
    workers, tasks = scratch[0], scratch[1]
    uniform = tasks.view(np.float64)  # in place of the tasks
    workers[budget:] = tasks[budget:] = 0
    b = 0
    for i in range(len(allocation)):
        workers[b], tasks[b] = i, started[i]
        b += allocation[i] > 0  # no branch for the first task: nothing predicts it
        for j in range(1, allocation[i]):
            workers[b], tasks[b] = i, started[i] + j
            b += 1
        started_after[i] = started[i] + allocation[i]
    for b in range(padded):  # a loop of its own, so that it vectorises
        uniform[b] = _uniform(key[0], tasks[b], workers[b], episode[0])
    if noise[0, 0] > 0.0 or noise[0, 3] < 1.0:
        for b in range(budget):
            i = workers[b]
            uniform[b] = _disturbed(uniform[b], noise[i, 0], noise[i, 3], noise[i, 4])
    worker[:] = workers[:budget]
    longest = busy = total = 0.0
    before, task = -1, 0
    for b in range(budget):
        i = worker[b]
        same = i == before
        total += 0.0 if same else busy
        busy = busy if same else 0.0
        task = task + 1 if same else started[i]
        before = i
        x = _task_time(
            family[i], shift[i], scale[i], shape[i], table, first[i], length[i],
            noise[i, 1], noise[i, 2], round_index[0], task, uniform[b],
        )  # fmt: skip
        time[b] = x
        busy += x
        longest = max(longest, busy)
    round_time[0] = longest
    worker_time[0] = total + busy


@inlined
def _sift_down(heap: Ints, size: int, at: int, finish: Floats) -> None:
    """Restore the heap of workers below position ``at``: earliest ``finish`` first, then lowest worker."""
    moved = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size:
            left, right = heap[child], heap[child + 1]
            if finish[right] < finish[left] or (finish[right] == finish[left] and right < left):
                child += 1
        other = heap[child]
        if finish[moved] < finish[other] or (finish[moved] == finish[other] and moved < other):
            break
        heap[at] = other
        at = child
    heap[at] = moved


@inlined
def _race(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints, noise: Floats,
    key: Keys, episode: Ints, round_index: Ints, started: Ints, allocation: Ints, dies: Floats, deadline: Floats,
    worker: Ints, time: Floats, start: Floats, elapsed: Floats, started_after: Ints, round_time: Floats,
    worker_time: Floats, lost: Ints,
) -> None:  # fmt: skip
    """The round ends at the B-th result, tasks that are running then are cancelled, and workers may die.

    ``start``, of length B or 0, takes when the task of each result was started.
    """
    budget, n = len(worker), len(allocation)
    floats, counts = np.zeros((5, n)), np.zeros((4, n), np.int64)
    begun, duration, finish, idle = floats[0], floats[1], floats[2], floats[3]  # finish: its task ends, or it dies
    uniform = floats[4]  # noise of each worker's first task
    done, quota = counts[0], counts[1]  # quota: tasks of each living worker
    heap = counts[2]  # the workers that are running
    spare = -budget  # results beyond B that the living workers will give
    size = b = 0
    lost[0] = 0
    for i in range(n):  # a loop of its own, so that it vectorises
        uniform[i] = _uniform(key[0], started[i], i, episode[0])
    for i in range(n):
        started_after[i] = started[i]
        elapsed[i] = 0.0
        if allocation[i] > 0 and dies[i] > 0.0:
            quota[i] = allocation[i]
            spare += quota[i]
            heap[size] = i
            size += 1
            duration[i] = _time_of(
                family, shift, scale, shape, table, first, length, noise, i, round_index[0], started[i], uniform[i]
            )
            finish[i] = _end(0.0, duration[i], dies[i])
            started_after[i] += 1
    for at in range(size // 2 - 1, -1, -1):
        _sift_down(heap, size, at, finish)
    arrived_from, arrived_time, arrived_start = np.empty(budget, np.int64), np.empty(budget), np.empty(len(start))
    now = 0.0
    while b < budget:
        i = -1  # the worker that starts a task now
        if spare < 0 and now >= deadline[0]:  # the living worker that became idle first gets one
            for j in range(n):
                if done[j] == quota[j] and _alive(dies[j], now) and (i < 0 or finish[j] < finish[i]):
                    i = j
        if i >= 0:
            quota[i] += 1
            spare += 1
            idle[i] += now - finish[i]
            at = size  # it goes to the top, as nothing finishes before now, and sinks from there
            size += 1
            while at > 0:
                heap[at] = heap[(at - 1) // 2]
                at = (at - 1) // 2
            heap[0] = i
        elif spare < 0 and now < deadline[0] and (size == 0 or finish[heap[0]] > deadline[0]):
            now = deadline[0]
            continue
        else:
            i = heap[0]
            now = finish[i]
            if now < dies[i] or not begun[i] + duration[i] > now:  # NaN counts as a result
                arrived_from[b], arrived_time[b] = i, duration[i]
                if len(start) > 0:
                    arrived_start[b] = begun[i]
                done[i] += 1
                b += 1
            else:
                lost[0] += 1
                elapsed[i] = now - begun[i]
            if not _alive(dies[i], now):
                spare -= quota[i] - done[i]
                quota[i] = done[i]
        if done[i] < quota[i] and b < budget:
            task = started_after[i]
            u = _uniform(key[0], task, i, episode[0])
            duration[i] = _time_of(family, shift, scale, shape, table, first, length, noise, i, round_index[0], task, u)
            begun[i], finish[i] = now, _end(now, duration[i], dies[i])
            started_after[i] += 1
        else:
            size -= 1
            heap[0] = heap[size]
        _sift_down(heap, size, 0, finish)
    place = counts[3]  # where each worker's next result goes
    b = 0
    total = 0.0
    for i in range(n):
        place[i] = b
        b += done[i]
        running = started_after[i] - started[i] > done[i] and elapsed[i] == 0.0  # a dead worker has its elapsed already
        if running:
            elapsed[i] = now - begun[i]
        total += (now if running else finish[i]) - idle[i]
    for b in range(budget):
        i = arrived_from[b]
        worker[place[i]], time[place[i]] = i, arrived_time[b]
        if len(start) > 0:
            start[place[i]] = arrived_start[b]
        place[i] += 1
    round_time[0] = now
    worker_time[0] = total


@gufunc(
    f"void({_DISTRIBUTIONS}uint64[:],int64[:],int64[:],int64[:],int64[:],float64[:],float64[:],"
    "int64[:],float64[:],float64[:],int64[:],float64[:],float64[:],int64[:])",
    f"{_DISTRIBUTIONS_LAYOUT}(),(),(),(n),(n),(n),(),(b),(b)->(n),(n),(),(),()",
    (15, 16),
)
def run_race(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints, noise: Floats,
    key: Keys, episode: Ints, round_index: Ints, started: Ints, allocation: Ints, dies: Floats, deadline: Floats,
    worker: Ints, time: Floats, elapsed: Floats, started_after: Ints, round_time: Floats, worker_time: Floats,
    lost: Ints,
) -> None:  # fmt: skip
    """The round ends at the B-th result, tasks that are running then are cancelled, and workers may die."""
    _race(
        family, shift, scale, shape, table, first, length, noise, key, episode, round_index, started, allocation, dies,
        deadline, worker, time, np.empty(0), elapsed, started_after, round_time, worker_time, lost,
    )  # fmt: skip


@gufunc(
    f"void({_DISTRIBUTIONS}uint64[:],int64[:],int64[:],int64[:],int64[:],float64[:],float64[:],"
    "int64[:],float64[:],float64[:],float64[:],int64[:],float64[:],float64[:],int64[:])",
    f"{_DISTRIBUTIONS_LAYOUT}(),(),(),(n),(n),(n),(),(b),(b),(b)->(n),(n),(),(),()",
    (15, 16, 17),
)
def run_race_with_starts(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints, noise: Floats,
    key: Keys, episode: Ints, round_index: Ints, started: Ints, allocation: Ints, dies: Floats, deadline: Floats,
    worker: Ints, time: Floats, start: Floats, elapsed: Floats, started_after: Ints, round_time: Floats,
    worker_time: Floats, lost: Ints,
) -> None:  # fmt: skip
    """As ``run_race``; tells besides when the task of each result was started."""
    _race(
        family, shift, scale, shape, table, first, length, noise, key, episode, round_index, started, allocation, dies,
        deadline, worker, time, start, elapsed, started_after, round_time, worker_time, lost,
    )  # fmt: skip


@gufunc(
    f"void({_DISTRIBUTIONS}uint64[:],int64[:],int64[:],int64[:],int8[:],float64[:],"
    "int64[:],int64[:],int64[:],int8[:],float64[:],float64[:],float64[:],float64[:],float64[:],float64[:],int64[:],"
    "int64[:],float64[:],float64[:],float64[:],boolean[:],float64[:],float64[:])",
    f"{_DISTRIBUTIONS_LAYOUT}(),(),(),(),(n),(n),(n),(),(n),(n),(n),(n),(n),(n),(),(),(),(),(),(n),(n),(),(),()",
    tuple(range(14, 32)),
)
def run_dispatch(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints, noise: Floats,
    key: Keys, episode: Ints, round_index: Ints, budget: Ints, action: Bits, dies: Floats,
    started: Ints, missing: Ints, tasks: Ints, running: Bits, begun: Floats, duration: Floats, finish: Floats,
    idle: Floats, now: Floats, spent: Floats, lost: Ints,
    worker: Ints, time: Floats, elapsed: Floats, age: Floats, round_over: Any, round_time: Floats, worker_time: Floats,
) -> None:  # fmt: skip
    """Start idle workers and go on to the next result; ``started`` to ``lost`` are changed in place."""
    n = len(action)
    moment = now[0]
    if missing[0] == budget[0]:  # the round begins
        lost[0] = 0
    next_one, everybody = -1, False
    while next_one < 0:
        for i in range(n):
            if running[i] == 0 and (action[i] != 0 or everybody) and _alive(dies[i], moment):
                u = _uniform(key[0], started[i], i, episode[0])
                duration[i] = _time_of(
                    family, shift, scale, shape, table, first, length, noise, i, round_index[0], started[i], u
                )
                idle[i] += moment - finish[i]  # exactly 0 where it restarts at once
                begun[i], finish[i] = moment, _end(moment, duration[i], dies[i])
                running[i] = 1
                tasks[i] += 1
                started[i] += 1
        for i in range(n):
            if running[i] != 0 and (next_one < 0 or finish[i] < finish[next_one]):
                next_one = i
        if everybody and next_one < 0:  # nobody lives, which the callers rule out
            break
        everybody = next_one < 0  # as no worker is running a task
        if not everybody:
            moment = finish[next_one]
            running[next_one] = 0
            if begun[next_one] + duration[next_one] > moment:  # it dies
                lost[0] += 1
                next_one = -1
    missing[0] -= 1
    over = missing[0] == 0
    total = 0.0
    for i in range(n):
        total += (moment if running[i] != 0 else finish[i]) - idle[i]
        since = moment - begun[i] if running[i] != 0 else 0.0
        elapsed[i] = since if over else 0.0
        age[i] = 0.0 if over else since
    if over and lost[0] > 0:
        for i in range(n):
            if running[i] == 0 and begun[i] + duration[i] > finish[i]:  # it died
                elapsed[i] = finish[i] - begun[i]
    worker[0], time[0] = next_one, duration[next_one]
    round_over[0], round_time[0], worker_time[0] = over, moment, total
    now[0], spent[0] = moment, total
    if over:
        missing[0] = budget[0]
        now[0] = spent[0] = 0.0
        for i in range(n):
            tasks[i], running[i] = 0, 0
            begun[i] = duration[i] = finish[i] = idle[i] = 0.0


@gufunc(
    f"void({_DISTRIBUTIONS}uint64[:],int64[:],int64[:],int64[:],int64[:],float64[:])",
    f"{_DISTRIBUTIONS_LAYOUT}(),(),(),(),()->()",
)
def one_time(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints, noise: Floats,
    key: Keys, episode: Ints, round_index: Ints, worker: Ints, task: Ints, out: Floats,
) -> None:  # fmt: skip
    """The time of a worker's task."""
    i = worker[0]
    u = _uniform(key[0], task[0], i, episode[0])
    out[0] = _time_of(family, shift, scale, shape, table, first, length, noise, i, round_index[0], task[0], u)


@gufunc(f"void({_DISTRIBUTIONS}float64[:])", f"{_DISTRIBUTIONS_LAYOUT[:-1]}->(n)")
def longest_times(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints,
    noise: Floats,  # noqa: ARG001 - as every kernel that begins with these arguments
    out: Floats,
) -> None:  # fmt: skip
    """The longest task time that each worker can have."""
    for i in range(len(out)):
        z = 0.0
        if family[i] == 8 or family[i] == 9:
            for k in range(first[i], first[i] + length[i]):
                z = max(z, table[k])
        else:
            z = _standard_time(family[i], shape[i], _LARGEST_UNIFORM)
        out[i] = shift[i] + scale[i] * z


@gufunc("void(uint64[:], float64[:])", "(),(k)", (1,))
def fill_uniforms(key: Keys, out: Floats) -> None:
    """The first uniform numbers of a key, as many as ``out`` holds."""
    for i in range(len(out)):
        out[i] = _uniform(key[0], 0, i, 0)


@gufunc("void(uint64[:], int64[:], int64[:], uint64[:])", "(),(),()->()")
def derive_key(key: Keys, episode: Ints, index: Ints, out: Keys) -> None:
    """A key from a key, an episode and an index."""
    c0, c1 = philox(key[0], index[0], 0, episode[0])
    out[0] = (np.uint64(c0) << np.uint64(32)) | np.uint64(c1)


@gufunc("void(uint64[:], int64[:], int64[:], int64[:], float64[:])", "(),(),(),(),(k)", (4,))
def fill_uniforms_of_round(key: Keys, episode: Ints, round_index: Ints, place: Ints, out: Floats) -> None:
    """Uniform numbers of a round for the change at ``place``; their key has a negative task number, as no task has."""
    c0, c1 = philox(key[0], -1 - place[0], 0, episode[0])
    own = (np.uint64(c0) << np.uint64(32)) | np.uint64(c1)
    for i in range(len(out)):
        out[i] = _uniform(own, round_index[0], i, 0)
