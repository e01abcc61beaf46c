"""The kernels of the rule ``by_margin``, of whole rounds simulated with it, and of the search for its shadow price.

They are in one file, as they share their helpers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ata_gym.typing import Bits, Floats, Ints
from ata_gym.utils.compiled import gufunc, helper, inlined

_SPREAD = 1.2  # with b results missing, the rest of a round is taken to be R, and R times 1 -+ 1.2 / sqrt b
_PRECISE = 0.01  # the share by which the rest of a round may be wrong
_STEPS = 40
_AGAIN = 16  # the rest is computed again when one in 16 of those working was started since
_USEFUL = 2.0  # workers whose shortest time is longer than this many rounds of everybody are not in simulated rounds
_WORK = 8_000  # workers times results in a simulated round; of more, a part stands for the whole
PAIRS = 32  # rounds played with each of two shadow prices that are compared
_TOLERANCE = 0.003  # at price 0 a round may be longer than the shortest by this share, if that saves worker time
_WORTH = 0.3  # the share of worker time for which it may be longer by that; for less, in proportion
_LEAST = 3e-4  # at price 0, the least shadow price times the number of useful workers
_EAGER, _STEADY = 6.0, 1.0 / 6.0  # changes of the shadow price that are of full size, and the least size of later ones


@inlined
def _until(times: Floats, low: int, end: float) -> int:
    """How many of the rising times are at most ``end``, where the first ``low`` are known to be."""
    high = len(times)
    while low < high:
        middle = (low + high) // 2
        if times[middle] <= end:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _results(times: Floats, sums: Floats, mean: float, age: float, passed: int, time: float) -> float:
    """Expected results within ``time`` of a worker whose task has run for ``age``, longer than ``passed`` of its times.

    After the task's end the results come at the rate 1 / mean. A task that outlasted all times goes on as long again.
    """
    alive = len(times) - passed
    if alive == 0:
        return 1.0 + (time - age) / mean if time >= age else 0.0
    by = _until(times, passed, age + time)
    if by == passed:
        return 0.0
    done = by - passed
    total = sums[by - 1] - (sums[passed - 1] if passed > 0 else 0.0)
    result: float = (done + (done * (age + time) - total) / mean) / alive
    return result


@helper()
def _rest(
    times: Floats, sums: Floats, mean: Floats, who: Ints, age: Floats, passed: Ints, count: int, missing: int,
    rate: float, guess: float,
) -> float:  # fmt: skip
    """The time after which the first ``count`` of ``who`` are expected to have given the results that are missing."""
    low, high, short, over = 0.0, math.inf, float(missing), 0.0
    time = guess
    for step in range(_STEPS):
        found = 0.0
        for a in range(count):
            i = who[a]
            found += _results(times[i], sums[i], mean[i], age[a], passed[a], time)
        if found < missing:
            low, short = time, missing - found
        else:
            high, over = time, found - missing
        if high < math.inf:
            if high - low <= _PRECISE * high:
                break
            share = short / (short + over)
            if step % 3 == 2:
                share = 0.5
            time = low + (high - low) * min(max(share, 0.1), 0.9)
        else:
            time = low + max(1.1 * short / rate, 0.05 * low)
    if not high < math.inf:
        return low
    result: float = low + (high - low) * short / (short + over)
    return result


@helper()
def _start(
    times: Floats, sums: Floats, mean: Floats, order: Ints, factor: Floats, shadow: float, missing: int,
    absent: Bits, who: Ints, age: Floats, passed: Ints, running: int, out: Bits,
) -> int:  # fmt: skip
    """Start idle workers: set them in ``out``, and append them to ``who``; return how many are in it."""
    size = times.shape[1]
    rate, count = 0.0, running
    for a in range(count):
        passed[a] = _until(times[who[a]], 0, age[a])
        rate += 1.0 / mean[who[a]]
    rest, recent = math.inf, 0
    if rate > 0.0 and shadow > 0.0:
        rest = _rest(times, sums, mean, who, age, passed, count, missing, rate, missing / rate)
    spread = _SPREAD / math.sqrt(missing)
    for i in order:
        if out[i] != 0:
            continue
        if not mean[i] < math.inf:
            out[i] = 1  # never tried
            continue
        if count > 0 and shadow > 0.0:
            share = factor[i]
            in_time, busy = 0.0, 0.0
            soonest = rest * max(1.0 - spread, 0.0) if rest < math.inf else math.inf
            for end in (soonest, rest, rest * (1.0 + spread)):
                by = _until(times[i], 0, end / share)
                in_time += by if by > 0 else (end / share / times[i, 0]) ** 3
                busy += sums[i, by - 1] * share if by > 0 else 0.0
                busy += (size - by) * end if by < size else 0.0
            if in_time * (1.0 + shadow * count) < shadow * busy * (rate + 1.0 / mean[i]):
                continue
        out[i] = 1
        if absent[i] != 0:
            continue
        who[count], age[count], passed[count] = i, 0.0, 0
        count += 1
        if shadow > 0.0:
            rate += 1.0 / mean[i]
            recent += 1
            if not rest < math.inf or recent * _AGAIN > count:
                guess = min(rest, missing / rate)
                rest = _rest(times, sums, mean, who, age, passed, count, missing, rate, guess)
                recent = 0
            else:
                rest -= min(_results(times[i], sums[i], mean[i], 0.0, 0, rest) / rate, 0.5 * rest)
    return count


@gufunc("void(float64[:,:], int64[:], float64[:,:], float64[:])", "(n,s),()->(n,s),(n)")
def paces(times: Floats, budget: Ints, sums: Floats, mean: Floats) -> None:
    """Each worker's times added up, and its time per result: E[min(X, t)] / P(X <= t), t = B times the least median.

    That is close to the mean, except where rare times are longer than any round; it is infinite for workers never
    tried, and never 0.
    """
    n, size = times.shape
    least = math.inf
    for i in range(n):
        least = min(least, times[i, (size - 1) // 2])
    until = budget[0] * least
    for i in range(n):
        total, spent, done = 0.0, 0.0, 0
        for s in range(size):
            total += times[i, s]
            sums[i, s] = total
            if times[i, s] <= until:
                done += 1
                spent = total
        each = (spent + (size - done) * until) / done if done > 0 and until < math.inf else total / size
        mean[i] = max(each, 1e-300) if each < math.inf else math.inf


@gufunc("void(float64[:,:], float64[:,:], float64[:], int64[:], int64[:], int64[:])", "(n,s),(n,s),(n),(n),()->()")
def useful_workers(times: Floats, sums: Floats, mean: Floats, order: Ints, budget: Ints, out: Ints) -> None:
    """How many workers of ``order`` can give results in a round in which everybody works, or in one twice as long."""
    n = len(mean)
    age, passed, rate, count = np.zeros(n), np.zeros(n, np.int64), 0.0, 0
    while count < n and mean[order[count]] < math.inf:
        rate += 1.0 / mean[order[count]]
        count += 1
    out[0] = 0
    if count > 0:
        rest = _rest(times, sums, mean, order, age, passed, count, budget[0], rate, budget[0] / rate)
        for p in range(count):
            if times[order[p], 0] <= _USEFUL * rest:
                out[0] = p + 1


@gufunc(
    "void(float64[:,:], float64[:,:], float64[:], int64[:], float64[:], float64[:], int64[:], int8[:], float64[:], "
    "int8[:], int8[:])",
    "(n,s),(n,s),(n),(n),(n),(),(),(n),(n),(n)->(n)",
)
def by_margin_kernel(
    times: Floats, sums: Floats, mean: Floats, order: Ints, factor: Floats, shadow: Floats, missing: Ints,
    running: Bits, age: Floats, absent: Bits, out: Bits,
) -> None:  # fmt: skip
    """Who should be working; see ``ata_policies.dispatch.rules.by_margin``."""
    n = len(mean)
    who, ages, passed = np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64)
    count = 0
    for i in range(n):
        out[i] = running[i]
        if running[i] != 0:
            who[count], ages[count] = i, age[i]
            count += 1
    _start(
        times, sums, mean, order, factor, shadow[0], missing[0], absent, who, ages, passed, count, out
    )  # fmt: skip


@inlined
def _slice(worker: int, task: int, replicate: int, size: int) -> int:
    """Which of its times a worker's task takes: each of them once in ``size`` replicates, a power of two."""
    word = np.uint64(worker) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(task) * np.uint64(0xC2B2AE3D27D4EB4F)
    word ^= np.uint64(replicate // size) * np.uint64(0xD6E8FEB86659FD93)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    place = (np.uint64(replicate) ^ word) * ((word >> np.uint64(20)) | np.uint64(1)) + (word >> np.uint64(40))
    place &= np.uint64(size - 1)
    return int(place ^ (place >> np.uint64(2)))


@helper()
def _play(
    times: Floats, sums: Floats, mean: Floats, order: Ints, shadow: float, budget: int, replicate: int, out: Floats
) -> None:
    """Play a round with the workers in ``order``: its round time and worker time."""
    n, size = times.shape
    factor, absent, busy, tasks = np.ones(n), np.zeros(n, np.int8), np.zeros(n, np.int8), np.zeros(n, np.int64)
    who, passed = np.empty(n, np.int64), np.empty(n, np.int64)
    age, finish, begun = np.empty(n), np.empty(n), np.empty(n)
    now, spent, before = 0.0, 0.0, 0
    for missing in range(budget, 0, -1):
        for a in range(before):
            age[a] = now - begun[a]
        count = _start(times, sums, mean, order, factor, shadow, missing, absent, who, age, passed, before, busy)
        for a in range(before, count):
            i = who[a]
            begun[a], finish[a] = now, now + times[i, _slice(i, tasks[i], replicate, size)]
            tasks[i] += 1
        first = 0
        for a in range(1, count):
            if finish[a] < finish[first] or (finish[a] == finish[first] and who[a] < who[first]):
                first = a
        now = finish[first]
        spent += now - begun[first]
        busy[who[first]] = 0
        before = count - 1
        who[first], begun[first], finish[first] = who[before], begun[before], finish[before]
    for a in range(before):
        spent += now - begun[a]
    out[0], out[1] = now, spent


@gufunc(
    "void(float64[:,:], float64[:,:], float64[:], int64[:], int64[:], int64[:], float64[:], boolean[:], "
    "float64[:], float64[:], int64[:], float64[:,:], float64[:], float64[:], int64[:], float64[:,:])",
    "(n,s),(n,s),(n),(n),(),(),(),(),(),(),(),(c,q)->(),(),(),(c,q)",
)
def search_step(
    times: Floats, sums: Floats, mean: Floats, order: Ints, useful: Ints, budget: Ints, price: Floats, awake: Any,
    level: Floats, moves: Floats, turn: Ints, totals: Floats,
    new_level: Floats, new_moves: Floats, new_turn: Ints, new_totals: Floats,
) -> None:  # fmt: skip
    """Simulate one round more, and move the shadow price after enough; see ``ShadowSearch``."""
    new_level[0], new_moves[0], new_turn[0], new_totals[:] = level[0], moves[0], turn[0], totals
    if not awake[0] or useful[0] == 0:
        return
    candidate, pair = turn[0] % 2, turn[0] // 2
    shadow = 2.0 ** (level[0] + candidate - 0.5)
    if price[0] == 0.0:
        shadow = 2.0 ** level[0] if candidate == 1 else 0.0
    each = max(math.sqrt(useful[0] * budget[0] / _WORK), 1.0)  # how many workers and results one stands for
    results = max(int(budget[0] / each + 0.5), 1)
    each = max(min(budget[0] / results, float(useful[0])), 1.0)
    replicate = int(moves[0]) * PAIRS + pair
    some, count = np.empty(int(useful[0] / each), np.int64), 0
    offset = ((replicate * 5) % 8 + 0.5) / 8.0
    for p in range(len(some)):
        some[count] = order[min(int((p + offset) * each), useful[0] - 1)]
        count += mean[some[count]] < math.inf  # a worker may have been forgotten since the order was made
    if count == 0:
        return
    cost = np.empty(2)
    _play(times, sums, mean, some[:count], shadow * each, results, replicate, cost)
    new_totals[candidate, 0] += cost[0]
    new_totals[candidate, 1] += cost[1] * each
    new_turn[0] += 1
    if new_turn[0] < 2 * PAIRS:
        return
    round_time, worker_time = new_totals[:, 0], new_totals[:, 1]
    if price[0] > 0.0:
        saved = price[0] * (worker_time[0] - worker_time[1])
        lost = round_time[1] - round_time[0]
        sign = (saved - lost) / max(abs(saved) + abs(lost), 1e-300)
    else:
        saved = 1.0 - worker_time[1] / worker_time[0]
        allowed = _TOLERANCE * min(saved / _WORTH, 1.0)
        sign = max((allowed - (round_time[1] / round_time[0] - 1.0)) / _TOLERANCE, -2.0)
    new_level[0] += sign * max(1.0 / (1.0 + max(moves[0] - _EAGER, 0.0) / 3.0), _STEADY)
    least, most = math.log2(_LEAST / useful[0]), 0.0
    if price[0] > 0.0:
        least, most = math.log2(price[0]) - 2.0, math.log2(price[0]) + 1.0
    new_level[0] = min(max(new_level[0], least), most)
    new_moves[0] += 1.0
    new_turn[0] = 0
    new_totals[:] = 0.0
