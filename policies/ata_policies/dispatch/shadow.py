"""The search for the shadow price with which the rule ``by_margin`` costs least, in simulated rounds."""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from ata_gym.simulation.heap import comes_first
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc, helper, inlined, phase
from ata_gym.utils.ranges import Counts, Times, Within
from ata_policies.dispatch.margin import Running, Workers, start_workers

_WORK = 8_000  # workers times results in a simulated round; of more, a part stands for the whole
_PAIRS = 32  # rounds played with each of two shadow prices that are compared
_TOLERANCE = 0.003  # at price 0 a round may be longer than the shortest by this share, if that saves worker time
_WORTH = 0.3  # the share of worker time for which it may be longer by that; for less, in proportion
_LONGEST_FALL = -2.0  # how far the shadow price may fall in a move at price 0, in octaves
_LEAST = 3e-4  # at price 0, the least shadow price times the number of useful workers
_EAGER, _SLOWER, _STEADY = 6.0, 3.0, 1.0 / 6.0  # moves of full size; how many more halve it; the least size


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
def _play_round(workers: Workers, shadow: float, budget: int, replicate: int) -> tuple[float, float]:
    """The round time and worker time of a round of the workers in ``workers.order``."""
    times, (n, size) = workers.times, workers.times.shape
    factor, absent, busy, tasks = np.ones(n), np.zeros(n, np.int8), np.zeros(n, np.int8), np.zeros(n, np.int64)
    running = Running(np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64))
    who, finish, begun = running.worker, np.empty(n), np.empty(n)
    now, spent, before = 0.0, 0.0, 0
    for missing in range(budget, 0, -1):
        for a in range(before):
            running.age[a] = now - begun[a]
        count = start_workers(workers, factor, absent, shadow, missing, running, before, busy)
        for a in range(before, count):
            i = who[a]
            begun[a], finish[a] = now, now + times[i, _slice(i, tasks[i], replicate, size)]
            tasks[i] += 1
        first = 0
        for a in range(1, count):
            if comes_first(finish[a], who[a], finish[first], who[first]):
                first = a
        now = finish[first]
        spent += now - begun[first]
        busy[who[first]] = 0
        before = count - 1
        who[first], begun[first], finish[first] = who[before], begun[before], finish[before]
    for a in range(before):
        spent += now - begun[a]
    return now, spent


@phase
def _next_level(level: float, moves: float, price: float, useful: int, totals: Floats) -> float:
    """The logarithm of the shadow price after a move that follows from the totals of both prices."""
    round_time, worker_time = totals[:, 0], totals[:, 1]
    if price > 0.0:
        least, most = math.log2(price) - 2.0, math.log2(price) + 1.0
        saved = price * (worker_time[0] - worker_time[1])
        lost = round_time[1] - round_time[0]
        sign = (saved - lost) / max(abs(saved) + abs(lost), 1e-300)
    else:
        least, most = math.log2(_LEAST / useful), 0.0
        saved = 1.0 - worker_time[1] / worker_time[0]
        allowed = _TOLERANCE * min(saved / _WORTH, 1.0)
        sign = max((allowed - (round_time[1] / round_time[0] - 1.0)) / _TOLERANCE, _LONGEST_FALL)
    moved = level + sign * max(1.0 / (1.0 + max(moves - _EAGER, 0.0) / _SLOWER), _STEADY)
    return float(min(max(moved, least), most))


@gufunc(
    "void(float64[:,:], float64[:,:], float64[:], int64[:], int64[:], int64[:], float64[:], boolean[:], "
    "float64[:], float64[:], int64[:], float64[:,:], float64[:], float64[:], int64[:], float64[:,:])",
    "(n,s),(n,s),(n),(n),(),(),(),(),(),(),(),(c,q)->(),(),(),(c,q)",
)
def _search_step(
    times: Floats, sums: Floats, mean: Floats, order: Ints, useful: Ints, budget: Ints, price: Floats, awake: Any,
    level: Floats, moves: Floats, turn: Ints, totals: Floats,
    new_level: Floats, new_moves: Floats, new_turn: Ints, new_totals: Floats,
) -> None:  # fmt: skip
    """Simulate one round more, and move the shadow price after enough."""
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
    replicate = int(moves[0]) * _PAIRS + pair
    some, count = np.empty(int(useful[0] / each), np.int64), 0
    offset = ((replicate * 5) % 8 + 0.5) / 8.0
    for p in range(len(some)):
        some[count] = order[min(int((p + offset) * each), useful[0] - 1)]
        count += mean[some[count]] < math.inf  # a worker may have been forgotten since the order was made
    if count == 0:
        return
    workers = Workers(times, sums, mean, some[:count], useful)
    round_time, worker_time = _play_round(workers, shadow * each, results, replicate)
    new_totals[candidate, 0] += round_time
    new_totals[candidate, 1] += worker_time * each
    new_turn[0] += 1
    if new_turn[0] == 2 * _PAIRS:
        new_level[0] = _next_level(level[0], moves[0], price[0], useful[0], new_totals)
        new_moves[0] += 1.0
        new_turn[0] = 0
        new_totals[:] = 0.0


class ShadowSearch(NamedTuple):
    """Where the search is, in E rows: a stochastic approximation, one simulated round at a time.

    Two shadow prices are compared by 32 simulated rounds each, on the same task times. With a price p of worker time
    they are sqrt 2 apart, around the present one, which moves to the one of less cost C, by

        (C_low - C_high) / (p |W_low - W_high| + |T_low - T_high|)

    times a step, where T and W are round time and worker time. It stays between p / 4 and 2 p. At price 0 the present
    one is compared with 0, where everybody works, in time T_0 and W_0, and moves by the step times

        min((1 - W / W_0) / 0.3, 1) - (T / T_0 - 1) / 0.003,

    at least -2: so rounds get longer by 0.3 % if that saves 30 % of the worker time, and by less if it saves less. The
    step is one octave for 6 moves, and falls to a sixth (Robbins and Monro, 1951; Kiefer and Wolfowitz, 1952). A
    simulated round has at most 8,000 workers times results: of more workers, and of the results, every k-th stands for
    k. Ours.
    """

    level: Annotated[Floats, Within(-1080.0, 1023.0)]  # (E,) the binary logarithm of the shadow price
    moves: Counts  # (E,) how often it moved
    turn: Annotated[Ints, Within(0, 2 * _PAIRS - 1)]  # (E,) rounds that were simulated since then
    totals: Times  # (E, 2, 2) their round times and worker times added up, with each of the two shadow prices

    @classmethod
    def start(cls, rows: int, n: int, price: float) -> ShadowSearch:
        """From the price itself; or, where worker time has no price, from 0.1 / n."""
        level = math.log2(price if price > 0.0 else 0.1 / n)
        return cls(np.full(rows, level), np.zeros(rows), np.zeros(rows, np.int64), np.zeros((rows, 2, 2)))

    def go_on(self, workers: Workers, budget: int, price: float, awake: Mask | bool = True) -> ShadowSearch:
        """Simulate one round more in the rows that are ``awake``, (E,)."""
        return ShadowSearch(*_search_step(*workers, budget, price, awake, *self))

    def shadow(self) -> Floats:
        """The shadow prices, (E,)."""
        return np.asarray(2.0**self.level)
