"""Races: which workers to start, and with how many tasks, where the first B results end the round."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby, product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.pools.pool import Pool, checked_pool
from ata_gym.theory.allocation.smallest_multiples import allocate_kernel
from ata_gym.theory.round_time.units import rescaled
from ata_gym.theory.simulated.race_costs import race_costs
from ata_gym.theory.simulated.slices import known_sample
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import non_negative, whole_number

EVERYTHING = 2**40
"""A number of tasks to share out that stands for B tasks for every worker."""
_TINY = np.nextafter(0.0, 1.0)
"""Takes the place of a score of 0, for which RAS has a rule of its own."""
_ROUGH = 64
"""Rounds with each candidate of a search that has no start."""
_SLICES = 256
"""Of a worker's distribution."""
STRIDE = 4
"""Length of the first steps of a search."""

Place = tuple[int, int]
"""Of a race on the scales of numbers of workers and of tasks."""


class Race(NamedTuple):
    """A race and what it costs on average, in units of time."""

    allocation: Ints
    """(n,) tasks for each worker."""
    round_time: float
    worker_time: float


class Choice(NamedTuple):
    """Which race of ``race_allocation``, and what it costs on average, in units of time."""

    fastest: int
    """Workers in the race."""
    tasks: int
    """Tasks shared out among them, before the cap of B each; ``EVERYTHING``: B each."""
    round_time: float
    worker_time: float
    stride: int
    """Length of the steps with which the search has to go on; 0 if it is done."""

    def total(self, price: float) -> float:
        """Round time + price * worker time."""
        return self.round_time + price * self.worker_time


def race_allocation(scores: ArrayLike, fastest: ArrayLike, tasks: ArrayLike, budget: int) -> Ints:
    """Share out ``tasks`` among the ``fastest`` workers by RAS (see ``allocate``), at most ``budget`` each.

    Parameters
    ----------
    scores
        (..., n) estimated task times, at least 0, and finite where among the fastest. Of equal ones the lowest index is
        faster.
    fastest, tasks
        (...,) how many workers take part, from 1 to n, and tasks to share out, from B = ``budget`` on. With
        ``EVERYTHING`` each gets B.

    Examples
    --------
    Two tasks to spare, none of them for the slowest; and everything to the two fastest:

    >>> race_allocation([1.0, 2.0, 4.0, 9.0], fastest=3, tasks=9, budget=7)
    array([6, 2, 1, 0])
    >>> race_allocation([1.0, 2.0, 4.0, 9.0], fastest=2, tasks=EVERYTHING, budget=7)
    array([7, 7, 0, 0])
    """
    times, share = np.asarray(scores, np.float64), np.asarray(tasks, np.int64)
    rank = np.argsort(np.argsort(times, axis=-1, kind="stable"), axis=-1)
    inside = rank < np.asarray(fastest)[..., None]
    return _shared(np.where(inside, np.maximum(times, _TINY), np.inf), share, budget)


def _shared(times: Floats, tasks: Ints, budget: int) -> Ints:
    """Tasks shared out by these scores, (..., n); those of infinity are out."""
    shared = allocate_kernel(times, tasks, np.zeros(times.shape[-1], np.bool_), np.empty(0))
    return np.where(tasks[..., None] >= EVERYTHING, budget * (times < np.inf), np.minimum(shared, budget))


def time_per_result(times: ArrayLike, until: float) -> Floats:
    """Time that workers spend per result if a task is cancelled after ``until``, shape (n,): E min(X, t) / P(X <= t).

    Without an end it is the mean; with one, a worker that is mostly fast and seldom very slow looks as good as it is in
    a race. ``times`` has shape (n, S), equally likely task times; a worker that is never done by then gets infinity.

    >>> time_per_result([[1.0, 9.0], [4.0, 4.0]], until=5.0)
    array([6., 4.])
    """
    table = np.asarray(times, np.float64)
    spent, done = np.minimum(table, until).mean(axis=1), (table <= until).mean(axis=1)
    return np.asarray(np.divide(spent, done, out=np.full_like(spent, np.inf), where=done > 0))


def choose_race(
    times: ArrayLike,
    scores: ArrayLike,
    budget: int,
    price: float,
    *,
    tolerance: float = 0.0,
    replicates: int = 256,
    factors: Floats | None = None,
    least: int = 1,
    start: tuple[int, int] | None = None,
    stride: int = STRIDE,
    most: int | None = None,
) -> Choice:
    """Choose how many of the fastest workers race, and for how many tasks: the least round time + price * worker time.

    Of the races that cost at most ``1 + tolerance`` times the least, the one with the least worker time. The numbers of
    workers and of tasks are searched on scales that grow by 6 % and at least 1, the tasks from exactly B to B for every
    worker: first every second of them on few rounds, unless there is a ``start``, then step by step, with long steps
    first. At price 0 no race costs less than that of all workers with B tasks each. Ours.

    Parameters
    ----------
    times, replicates, factors
        (n, S) equally likely task times of each worker, rounds to play with each candidate, and (n, F) factors where
        the times are uncertain: see ``race_costs``. ValueError if the rounds may have more than 2**28 tasks.
    scores
        (n,) estimated task times, which rank the workers and share out the tasks: see ``race_allocation``.
    least
        Workers that have to be in the race, from 1 to n.
    start, stride
        Workers and tasks of the race to start from, such as an earlier choice, and the length of the first steps.
    most
        Races to play with: the search ends early when it has played so many, but at least once around its start.

    Examples
    --------
    >>> from ata_gym import scenario
    >>> named = scenario("icml2025-cifar100")
    >>> times = known_sample(named.pool, 64)
    >>> choose_race(times, times.mean(axis=1), named.budget, price=0.1)[:2]
    (5, 30)
    """
    table, ranked = np.asarray(times, np.float64), np.asarray(scores, np.float64)
    order = np.argsort(ranked, kind="stable")[: max(1, int((ranked < np.inf).sum()))]
    table, ranked = table[order], ranked[order]
    stride = max(stride, 1)  # a negative one would never end
    unsure = np.ones((len(order), 1)) if factors is None else factors[order]
    workers, tasks = _scale(min(least, len(order)), len(order)), [*_scale(budget, 4 * budget), EVERYTHING]
    last = len(workers) - 1, len(tasks) - 1

    def play(places: list[Place], rounds: int) -> dict[Place, Choice]:
        """The races of these places on the scales, and what they cost."""
        found = []
        for i, group in groupby(places, key=lambda place: place[0]):
            shared = np.array([tasks[j] for _, j in group])
            size = workers[i]
            races = _shared(np.tile(np.maximum(ranked[:size], _TINY), (len(shared), 1)), shared, budget)
            time, work = race_costs(table[:size], races, budget, rounds, unsure[:size])
            found += [Choice(size, *one, 0) for one in zip(shared.tolist(), time.tolist(), work.tolist(), strict=True)]
        return dict(zip(places, found, strict=True))

    known: dict[Place, Choice] = {}

    def cost(place: Place) -> float:
        return known[place].total(price)

    def walk(loss: Callable[[Place], tuple[float, float]], here: Place, step: int) -> tuple[Place, int]:
        """Step to the best neighbour until none is better; of equal ones to the smallest race."""
        while step:
            steps = np.array(list(product((-step, 0, step), repeat=2)))
            around = {(i, j) for i, j in np.clip(here + steps, 0, last).tolist()}
            known.update(play(sorted(around - known.keys()), replicates))
            best = min(around, key=lambda place: (loss(place), place))
            if (loss(best), best) < (loss(here), here):  # never where extreme times make it no number
                here = best
            else:
                step //= STRIDE
            if most is not None and len(known) >= most:
                break
        return here, step

    def frugal(limit: float) -> Callable[[Place], tuple[float, float]]:
        """Cost above the limit counts first, then worker time."""
        return lambda place: (max(cost(place) - limit, 0.0), known[place].worker_time)

    if start is None:
        every_second = product(sorted({*range(0, last[0], 2), last[0]}), sorted({*range(0, last[1], 2), last[1]}))
        rough = play(list(every_second), min(_ROUGH, replicates))
        here = min(rough, key=lambda place: rough[place].total(price))
    else:
        here = _nearest(start[0], workers), _nearest(start[1], tasks)
    if price > 0.0:
        here, stride = walk(lambda place: (cost(place), 0.0), here, stride)
        if tolerance > 0.0:
            here, stride = walk(frugal((1.0 + tolerance) * cost(here)), here, stride or STRIDE)
    else:
        known.update(play([last], replicates))
        here, stride = walk(frugal((1.0 + tolerance) * cost(last)), here, stride)
    return known[here]._replace(stride=stride)


def best_race(pool: Pool, budget: int, price: float, tolerance: float = 0.0, replicates: int = 1024) -> Race:
    """Find the race of least expected round time + price * expected worker time where the distributions are known.

    The search is ``choose_race`` with the workers ranked in three ways: by their mean times, and by their times per
    result in a race as long as all workers together need, and twice that. The best of the three is returned.

    Tasks count as independent, those of traces too. ValueError is raised if the budget is not a whole number of at
    least 1 or is too large to play rounds (see ``can_simulate``), or the price or the tolerance is negative.

    >>> from ata_gym import scenario
    >>> named = scenario("icml2025-cifar100")
    >>> race = best_race(named.pool, named.budget, price=0.05)
    >>> race.allocation[:9]
    array([14,  7,  4,  3,  2,  2,  1,  1,  0])
    """
    budget = whole_number("budget", budget)
    price, tolerance = non_negative("price", price), non_negative("tolerance", tolerance)
    means = checked_pool(pool).mean()
    pool, unit = rescaled(pool, float(means.min()))
    times = known_sample(pool, _SLICES)
    everybody = np.full((1, pool.n), budget)
    end = float(race_costs(times, everybody, budget, _SLICES).round_time[0])
    races = []
    for scores in (times.mean(axis=1), time_per_result(times, end), time_per_result(times, 2 * end)):
        choice = choose_race(times, scores, budget, price, tolerance=tolerance, replicates=replicates)
        allocation = race_allocation(scores, choice.fastest, choice.tasks, budget)
        races.append(Race(allocation, choice.round_time * unit, choice.worker_time * unit))
    return min(races, key=lambda race: race.round_time + price * race.worker_time)


def _scale(least: int, most: int) -> list[int]:
    """Whole numbers from ``least`` to ``most``, growing by 6 % and at least 1."""
    numbers = [least]
    while numbers[-1] < most:
        numbers.append(min(most, max(numbers[-1] + 1, round(numbers[-1] * 1.06))))
    return numbers


def _nearest(number: int, scale: list[int]) -> int:
    return min(range(len(scale)), key=lambda place: abs(scale[place] - number))
