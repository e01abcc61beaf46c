"""The search for the shadow price with which the rule ``by_margin`` costs least, in simulated rounds."""

import math
from typing import Annotated, NamedTuple, Self

import numpy as np

from ata_gym.simulation.heap import comes_first
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import helper, inlined, kernel
from ata_gym.utils.ranges import Counts, Times, Within
from ata_policies.dispatch.margin import Running, Workers, start_workers

_WORK = 8_000  # workers times results in a simulated round; of more, a part stands for the whole
CANDIDATES, _BELOW = 8, 4  # shadow prices that are compared, and how many of them are below the price
_OCTAVES, _FREE_OCTAVES = 0.5, 1.0  # how far they are from each other; without a price the best may be far
_KEPT = 0.98  # how much the rounds before count after one more, so that 50 count: beliefs change, and rounds differ
_FREE = 0.03
"""Where worker time has no price, rounds may be longer by this share of the worker time that is saved, both as shares
of those in which everybody works."""


@inlined
def _slice(worker: int, task: int, replicate: int, size: int) -> int:
    word = np.uint64(worker) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(task) * np.uint64(0xC2B2AE3D27D4EB4F)
    word ^= np.uint64(replicate // size) * np.uint64(0xD6E8FEB86659FD93)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    place = (np.uint64(replicate) ^ word) * ((word >> np.uint64(20)) | np.uint64(1)) + (word >> np.uint64(40))
    place &= np.uint64(size - 1)
    return int(place ^ (place >> np.uint64(2)))


@helper()
def _play_round(workers: Workers, factor: Floats, shadow: float, budget: int, replicate: int) -> tuple[float, float]:
    times, (n, size) = workers.times, workers.times.shape
    absent, busy, tasks = np.zeros(n, np.int8), np.zeros(n, np.int8), np.zeros(n, np.int64)
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


@kernel("(n,s),(n,s),(n),(n),(),(),(),(),(n),(),(),(),(c,q)->(),(),(c,q)")
def _search_step(
    times: Floats, sums: Floats, mean: Floats, order: Ints, useful: Ints, budget: Ints, price: Floats, octaves: Floats,
    factor: Floats, awake: Mask, chosen: Ints, rounds: Floats, totals: Floats,
    new_chosen: Ints, new_rounds: Floats, new_totals: Floats,
) -> None:  # fmt: skip
    new_chosen[0], new_rounds[0], new_totals[:] = chosen[0], rounds[0], totals
    if not awake[0] or useful[0] == 0:
        return
    replicate = int(rounds[0])
    each = max(math.sqrt(useful[0] * budget[0] / _WORK), 1.0)  # how many workers and results one stands for
    results = max(int(budget[0] / each + 0.5), 1)
    each = max(min(budget[0] / results, float(useful[0])), 1.0)
    some, count = np.empty(int(useful[0] / each), np.int64), 0
    offset = ((replicate * 5) % 8 + 0.5) / 8.0
    for p in range(len(some)):
        some[count] = order[min(int((p + offset) * each), useful[0] - 1)]
        count += mean[some[count]] < math.inf  # a worker may have been forgotten since the order was made
    if count == 0:
        return
    workers = Workers(times, sums, mean, some[:count], useful)
    for c in range(CANDIDATES):
        shadow = price[0] * 2.0 ** ((c - _BELOW) * octaves[0])
        round_time, worker_time = _play_round(workers, factor, shadow * each, results, replicate)
        new_totals[c, 0] = _KEPT * totals[c, 0] + round_time
        new_totals[c, 1] = _KEPT * totals[c, 1] + worker_time * each
    new_chosen[0] = np.argmin(new_totals[:, 0] + price[0] * new_totals[:, 1])
    new_rounds[0] += 1.0


class ShadowSearch(NamedTuple):
    """Where the search is, in E rows.

    Eight shadow prices are compared by simulated rounds, and the one of least cost T + p W is chosen, where T and W are
    round time and worker time, of the last 50 rounds or so, and p is the price. A round is played with each of them at
    once, of the same workers, on the same task times, and with the draws that the rule applies, so that what it costs
    to try workers counts. They are p / 4, p / 2.8, p / 2, ..., 2.8 p. Where worker time has no price,

        p = 0.03 / useful workers,

    so rounds get longer by 3 % at most if that saves all of the worker time, and by less if it saves less; and the
    shadow prices are p / 16, p / 8, ..., 8 p, because a low one may drop nobody, and twice as much may change nothing.
    A simulated round has at most 8,000 workers times results: of more workers, and of the results, every k-th stands
    for k. Ours.
    """

    chosen: Annotated[Ints, Within(0, CANDIDATES - 1)]  # (E,) which of the shadow prices was best
    rounds: Counts  # (E,) how many rounds were simulated with each
    totals: Times  # (E, 8, 2) their round times and worker times added up, with each of the shadow prices

    @classmethod
    def start(cls, rows: int) -> Self:
        """From the price itself."""
        return cls(np.full(rows, _BELOW), np.zeros(rows), np.zeros((rows, CANDIDATES, 2)))

    def go_on(
        self, workers: Workers, budget: int, price: float, factor: Floats | float = 1.0, awake: Mask | bool = True
    ) -> "ShadowSearch":
        """Simulate one round with each in the rows that are ``awake``, (E,); for ``factor`` see ``by_margin``."""
        at = budget, _worth(workers, price), _octaves(price), np.broadcast_to(factor, workers.mean.shape), awake
        return ShadowSearch(*_search_step(*workers, *at, *self))

    def shadow(self, workers: Workers, price: float) -> Floats:
        """The shadow prices, (E,)."""
        return np.asarray(_worth(workers, price) * 2.0 ** ((self.chosen - _BELOW) * _octaves(price)))


def _octaves(price: float) -> float:  # how far neighbouring shadow prices are from each other
    return _OCTAVES if price > 0.0 else _FREE_OCTAVES


def _worth(workers: Workers, price: float) -> Floats:  # what worker time is worth, (E,): its price if it has one
    return np.full(len(workers.mean), price) if price > 0.0 else _FREE / np.maximum(workers.useful, 1)
