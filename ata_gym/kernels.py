"""Every compiled loop of the simulation: keyed noise, the law of a task time, and who is done when.

They share a file because numba's cache sees no edit in another one. A task's noise is a counter-based uniform number:
Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with the row's key and the
counter (task, worker, episode), so it depends on nothing else: not on the policy, the batch or the process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from numba.extending import get_cython_function_address
from numpy.typing import NDArray

from ata_gym.compiled import gufunc, inlined

Keys = NDArray[np.uint64]
Word = Any  # an unsigned integer of 32 or 64 bits, whose arithmetic wraps
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bits = NDArray[np.int8]


def _scipy(name: str, arguments: int) -> Callable[..., float]:
    """A scalar function of scipy.special for use inside kernels, linked by symbol so that kernels stay cacheable."""
    symbol = f"ata_gym_{name}"
    llvmlite.binding.add_symbol(symbol, get_cython_function_address("scipy.special.cython_special", name))
    signature = numba.types.float64(*[numba.types.float64] * arguments, numba.types.intc)
    function: Callable[..., float] = numba.types.ExternalFunction(symbol, signature)
    return function


_gamma_quantile = _scipy("gammaincinv", 2)
_normal_quantile = _scipy("ndtri", 1)


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
    """Quantile ``u`` of a family's standard law; the codes are those of ``ata_gym.pools.families``."""
    if family == 1:  # exponential
        return -math.log(1.0 - u)
    if family == 2:  # uniform
        return u
    if family == 3:  # half-normal
        return -_normal_quantile(0.5 * (1.0 - u), np.intc(0))
    if family == 4:  # gamma
        return _gamma_quantile(shape, u, np.intc(0))
    if family == 5:  # log-normal
        return math.exp(shape * _normal_quantile(u, np.intc(0)))
    if family == 6:  # weibull
        return math.pow(-math.log(1.0 - u), 1.0 / shape)
    if family == 7:  # pareto
        return math.pow(1.0 - u, -1.0 / shape)
    return 1.0  # deterministic


@inlined
def _task_time(
    family: int, shift: float, scale: float, shape: float, table: Floats, first: int, length: int,
    round_index: int, task: int, u: float,
) -> float:  # fmt: skip
    """The time of a worker's ``task`` (counted from 0 in the episode), started in a round (likewise)."""
    z: float
    if family == 8:  # trace by task
        z = table[first + task % length]
    elif family == 9:  # trace by round
        z = table[first + round_index % length]
    else:
        z = _standard_time(family, shape, u)
    return shift + scale * z


_ROUND = (
    "void(int64[:],float64[:],float64[:],float64[:],float64[:],int64[:],int64[:],uint64[:],int64[:],int64[:],int64[:],int64[:],"
    "int64[:],float64[:],float64[:],int64[:],float64[:],float64[:])"
)
_ROUND_LAYOUT = "(n),(n),(n),(n),(m),(n),(n),(),(),(),(n),(n),(b),(b),(n),(n),(),()"
_ROUND_OUTPUTS = (12, 13, 14, 15, 16, 17)


@gufunc(_ROUND, _ROUND_LAYOUT, _ROUND_OUTPUTS)
def run_allocation(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints,
    key: Keys, episode: Ints, round_index: Ints, started: Ints, allocation: Ints,
    worker: Ints, time: Floats, elapsed: Floats, started_after: Ints, round_time: Floats, worker_time: Floats,
) -> None:  # fmt: skip
    """Every worker runs its tasks one after the other; the round ends when the last one is done."""
    budget = len(worker)
    padded = (budget + 8) // 8 * 8  # whole vectors, and a place to spare
    scratch = np.zeros((3, padded), np.int64)
    workers, tasks, noise = scratch[0], scratch[1], scratch[2].view(np.float64)
    b = 0
    for i in range(len(allocation)):
        workers[b], tasks[b] = i, started[i]
        b += allocation[i] > 0  # no branch for the first task: nothing predicts it
        for j in range(1, allocation[i]):
            workers[b], tasks[b] = i, started[i] + j
            b += 1
        started_after[i] = started[i] + allocation[i]
        elapsed[i] = 0.0
    for b in range(padded):  # a loop of its own, so that it vectorises
        noise[b] = _uniform(key[0], tasks[b], workers[b], episode[0])
    longest = busy = total = 0.0
    for b in range(budget):
        i = workers[b]
        if b > 0 and workers[b - 1] != workers[b]:
            total += busy
            busy = 0.0
        x = _task_time(
            family[i], shift[i], scale[i], shape[i], table, first[i], length[i], round_index[0], tasks[b], noise[b],
        )  # fmt: skip
        worker[b], time[b] = i, x
        busy += x
        longest = max(longest, busy)
    round_time[0] = longest
    worker_time[0] = total + busy


@inlined
def _sift_down(heap: Ints, size: int, at: int, due: Floats) -> None:
    """Restore the heap of workers below position ``at``: earliest ``due`` first, then lowest worker."""
    moved = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size:
            left, right = heap[child], heap[child + 1]
            if due[right] < due[left] or (due[right] == due[left] and right < left):
                child += 1
        other = heap[child]
        if due[moved] < due[other] or (due[moved] == due[other] and moved < other):
            break
        heap[at] = other
        at = child
    heap[at] = moved


@gufunc(_ROUND, _ROUND_LAYOUT, _ROUND_OUTPUTS)
def run_race(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints,
    key: Keys, episode: Ints, round_index: Ints, started: Ints, allocation: Ints,
    worker: Ints, time: Floats, elapsed: Floats, started_after: Ints, round_time: Floats, worker_time: Floats,
) -> None:  # fmt: skip
    """The same, but the round ends at the B-th result; tasks still running then are cancelled."""
    budget, n = len(worker), len(allocation)
    begun, lasts, due = np.zeros(n), np.zeros(n), np.zeros(n)  # of each worker's latest task
    done = np.zeros(n, np.int64)
    heap = np.empty(n, np.int64)  # the workers that are running
    size = 0
    for i in range(n):
        started_after[i] = started[i]
        if allocation[i] > 0:
            heap[size] = i
            size += 1
            u = _uniform(key[0], started[i], i, episode[0])
            lasts[i] = _task_time(
                family[i], shift[i], scale[i], shape[i], table, first[i], length[i], round_index[0], started[i], u,
            )  # fmt: skip
            due[i] = lasts[i]
            started_after[i] += 1
    for at in range(size // 2 - 1, -1, -1):
        _sift_down(heap, size, at, due)
    arrived_from, arrived_time = np.empty(budget, np.int64), np.empty(budget)
    now = 0.0
    for b in range(budget):
        i = heap[0]
        now = due[i]
        arrived_from[b], arrived_time[b] = i, lasts[i]
        done[i] += 1
        if done[i] < allocation[i] and b < budget - 1:
            task = started_after[i]
            u = _uniform(key[0], task, i, episode[0])
            lasts[i] = _task_time(
                family[i], shift[i], scale[i], shape[i], table, first[i], length[i], round_index[0], task, u
            )
            begun[i], due[i] = now, now + lasts[i]
            started_after[i] += 1
        else:
            size -= 1
            heap[0] = heap[size]
        _sift_down(heap, size, 0, due)
    place = np.empty(n, np.int64)  # where each worker's next result goes
    b = 0
    total = 0.0
    for i in range(n):
        place[i] = b
        b += done[i]
        running = started_after[i] - started[i] > done[i]
        elapsed[i] = now - begun[i] if running else 0.0
        total += now if running else due[i]
    for b in range(budget):
        i = arrived_from[b]
        worker[place[i]], time[place[i]] = i, arrived_time[b]
        place[i] += 1
    round_time[0] = now
    worker_time[0] = total


@gufunc(
    "void(int64[:],float64[:],float64[:],float64[:],float64[:],int64[:],int64[:],uint64[:],int64[:],int64[:],int64[:],int8[:],"
    "int64[:],int64[:],int64[:],int8[:],float64[:],float64[:],float64[:],float64[:],float64[:],float64[:],"
    "int64[:],float64[:],float64[:],float64[:],boolean[:],float64[:],float64[:])",
    "(n),(n),(n),(n),(m),(n),(n),(),(),(),(),(n),(n),(),(n),(n),(n),(n),(n),(n),(),(),(),(),(n),(n),(),(),()",
    tuple(range(12, 29)),
)
def run_dispatch(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints,
    key: Keys, episode: Ints, round_index: Ints, budget: Ints, action: Bits,
    started: Ints, missing: Ints, tasks: Ints, running: Bits, begun: Floats, lasts: Floats, due: Floats, idle: Floats,
    now: Floats, spent: Floats,
    worker: Ints, time: Floats, elapsed: Floats, age: Floats, round_over: Any, round_time: Floats, worker_time: Floats,
) -> None:  # fmt: skip
    """Start idle workers and wait for the next result; the arguments from ``started`` to ``spent`` go on from it."""
    n = len(action)
    moment = now[0]
    nobody = True
    for i in range(n):
        nobody = nobody and running[i] == 0 and action[i] == 0
    for i in range(n):
        if running[i] == 0 and (nobody or action[i] != 0):
            u = _uniform(key[0], started[i], i, episode[0])
            lasts[i] = _task_time(
                family[i], shift[i], scale[i], shape[i], table, first[i], length[i], round_index[0], started[i], u,
            )  # fmt: skip
            idle[i] += moment - due[i]  # exactly 0 where it restarts at once
            begun[i], due[i] = moment, moment + lasts[i]
            running[i] = 1
            tasks[i] += 1
            started[i] += 1
    next_one = -1
    for i in range(n):
        if running[i] != 0 and (next_one < 0 or due[i] < due[next_one]):
            next_one = i
    moment = due[next_one]
    running[next_one] = 0
    missing[0] -= 1
    over = missing[0] == 0
    total = 0.0
    for i in range(n):
        total += (moment if running[i] != 0 else due[i]) - idle[i]
        since = moment - begun[i] if running[i] != 0 else 0.0
        elapsed[i] = since if over else 0.0
        age[i] = 0.0 if over else since
    worker[0], time[0] = next_one, lasts[next_one]
    round_over[0], round_time[0], worker_time[0] = over, moment, total
    now[0], spent[0] = moment, total
    if over:
        missing[0] = budget[0]
        now[0] = spent[0] = 0.0
        for i in range(n):
            tasks[i], running[i] = 0, 0
            begun[i] = lasts[i] = due[i] = idle[i] = 0.0


@gufunc(
    "void(int64[:],float64[:],float64[:],float64[:],float64[:],int64[:],int64[:],uint64[:],int64[:],int64[:],int64[:],"
    "int64[:],float64[:])",
    "(n),(n),(n),(n),(m),(n),(n),(),(),(),(),()->()",
)
def one_time(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints,
    key: Keys, episode: Ints, round_index: Ints, worker: Ints, task: Ints, out: Floats,
) -> None:  # fmt: skip
    """The time of a worker's task."""
    i = worker[0]
    u = _uniform(key[0], task[0], i, episode[0])
    out[0] = _task_time(family[i], shift[i], scale[i], shape[i], table, first[i], length[i], round_index[0], task[0], u)


@gufunc("void(uint64[:], float64[:])", "(),(k)", (1,))
def fill_uniforms(key: Keys, out: Floats) -> None:
    """The first uniform numbers of a key."""
    for i in range(len(out)):
        out[i] = _uniform(key[0], 0, i, 0)


@gufunc("void(uint64[:], int64[:], int64[:], uint64[:])", "(),(),()->()")
def derive_key(key: Keys, episode: Ints, index: Ints, out: Keys) -> None:
    """A key from a key, an episode and an index."""
    c0, c1 = philox(key[0], index[0], 0, episode[0])
    out[0] = (np.uint64(c0) << np.uint64(32)) | np.uint64(c1)
