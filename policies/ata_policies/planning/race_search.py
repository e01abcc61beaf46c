"""Races of the fastest workers: how tasks are shared out, and which race costs least in simulated rounds."""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.pools.pool import Pool, checked_pool
from ata_gym.theory.allocation.smallest_multiples import allocate_kernel
from ata_gym.theory.round_time.worker_times import rescaled
from ata_gym.theory.simulated.slices import known_sample
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import non_negative, whole_number
from ata_policies.beliefs.distributions.retries import first_of
from ata_policies.planning.race_costs import race_costs

EVERYTHING = 2**40  # a number of tasks to share out that stands for B tasks for every worker
_TINY = np.nextafter(0.0, 1.0)  # takes the place of a score of 0, for which RAS has a rule of its own
STRIDE = 4  # length of the first steps of a search
_ROUGH = 64  # rounds with each candidate of a search that has no start
_GROWTH = 1.06  # from one number of workers, or of tasks, to the next one on the scales of a search
_SLICES = 256  # equally likely times of a worker where its distribution is known

Place = tuple[int, int]  # where a race is on the scales of numbers of workers and of tasks
Loss = Callable[["Choice"], tuple[float, float]]


def race_allocation(scores: ArrayLike, fastest: ArrayLike, tasks: ArrayLike, budget: int) -> Ints:
    """Share out ``tasks`` among the ``fastest`` workers by RAS (see ``allocate``), at most ``budget`` each.

    - ``scores``: (..., n) estimated task times, finite where among the fastest. Of equal ones the lowest index is
      faster.
    - ``fastest``, ``tasks``: (...,) how many workers take part, and tasks to share out, from B = ``budget`` on. With
      ``EVERYTHING`` each gets B.

    Two tasks to spare, none of them for the slowest; and everything to the two fastest:

    >>> race_allocation([1.0, 2.0, 4.0, 9.0], fastest=3, tasks=9, budget=7)
    array([6, 2, 1, 0])
    >>> race_allocation([1.0, 2.0, 4.0, 9.0], fastest=2, tasks=EVERYTHING, budget=7)
    array([7, 7, 0, 0])
    """
    times = np.asarray(scores, np.float64)
    inside = first_of(times, np.asarray(fastest, np.int64))
    return _share_out(np.where(inside, times, np.inf), np.asarray(tasks, np.int64), budget)


def _share_out(times: Floats, tasks: Ints, budget: int) -> Ints:
    times = np.maximum(times, _TINY)
    shared = allocate_kernel(times, tasks, np.zeros(times.shape[-1], np.bool_), np.empty(0))
    return np.where(tasks[..., None] >= EVERYTHING, budget * (times < np.inf), np.minimum(shared, budget))


class Choice(NamedTuple):
    """Which race of ``race_allocation``, and what it costs on average, in units of time."""

    fastest: int  # workers in the race
    tasks: int  # tasks shared out among them, before the cap of B each; ``EVERYTHING``: B each
    round_time: float
    worker_time: float
    stride: int  # length of the steps with which the search has to go on; 0 if it is done

    def total(self, price: float) -> float:
        """The expected cost of a round."""
        return self.round_time + price * self.worker_time


class RaceSearch:
    """Chooses how many of the fastest workers race, and for how many tasks: the least round time + price * worker time.

    The numbers of workers and of tasks are searched on scales that grow by 6 % and at least 1, the tasks from exactly B
    to B for every worker, step by step, with long steps first. At price 0 no race costs less than that of all workers
    with B tasks each; of those that cost at most ``1 + tolerance`` times as much, it takes the one with the least
    worker time. Ours.

    - ``times``, ``replicates``, ``factors``: (n, S) equally likely task times of each worker, rounds to play with each
      candidate, and (n, F) factors where the times are uncertain: see ``race_costs``.
    - ``scores``: (n,) estimated task times, which rank the workers and share out the tasks: see ``race_allocation``.
    - ``least``: workers that have to be in the race, from 1 to n.

    >>> from ata_gym import scenario
    >>> named = scenario("icml2025-cifar100")
    >>> times = known_sample(named.pool, 64)
    >>> RaceSearch(times, times.mean(axis=1), named.budget, price=0.1).search()[:2]
    (5, 30)
    """

    def __init__(
        self, times: ArrayLike, scores: ArrayLike, budget: int, price: float, *, tolerance: float = 0.0,
        replicates: int = 256, factors: Floats | None = None, least: int = 1,
    ) -> None:  # fmt: skip
        ranked = np.asarray(scores, np.float64)
        order = np.argsort(ranked, kind="stable")[: max(1, int((ranked < np.inf).sum()))]
        self._times, self._scores = np.asarray(times, np.float64)[order], ranked[order]
        self._factors = np.ones((len(order), 1)) if factors is None else factors[order]
        self._budget, self._price, self._tolerance, self._replicates = budget, price, tolerance, replicates
        self._workers = _scale(min(least, len(order)), len(order))
        self._tasks = [*_scale(budget, 4 * budget), EVERYTHING]
        self._last = len(self._workers) - 1, len(self._tasks) - 1
        self._known: dict[Place, Choice] = {}

    def search(self) -> Choice:
        """Search from the best of every second number of workers and of tasks, on few rounds."""
        every_second = product(*(sorted({*range(0, last, 2), last}) for last in self._last))
        rough = self._play(list(every_second), min(_ROUGH, self._replicates))
        return self._search_from(min(rough, key=lambda place: rough[place].total(self._price)), STRIDE, None)

    def search_from(self, fastest: int, tasks: int, stride: int = STRIDE, most: int | None = None) -> Choice:
        """Search from a race, such as an earlier choice, with first steps of this length.

        The search ends early when it has played ``most`` races, but at least once around its start.
        """
        here = _nearest(fastest, self._workers), _nearest(tasks, self._tasks)
        return self._search_from(here, max(stride, 1), most)  # a negative one would never end

    def _search_from(self, here: Place, stride: int, most: int | None) -> Choice:
        if self._price > 0.0:
            here, stride = self._walk(lambda choice: (choice.total(self._price), 0.0), here, stride, most)
        else:
            self._known |= self._play([self._last], self._replicates)
            here, stride = self._walk(self._frugal, here, stride, most)
        return self._known[here]._replace(stride=stride)

    def _walk(self, loss: Loss, here: Place, step: int, most: int | None) -> tuple[Place, int]:
        known = self._known
        while step:  # each pass goes to a better one of finitely many places, or shortens the step
            steps = np.array(list(product((-step, 0, step), repeat=2)))
            around = {(i, j) for i, j in np.clip(here + steps, 0, self._last).tolist()}
            known |= self._play(sorted(around - known.keys()), self._replicates)
            best = min(around, key=lambda place: (loss(known[place]), place))
            if (loss(known[best]), best) < (loss(known[here]), here):  # never where extreme times make it no number
                here = best
            else:
                step //= STRIDE
            if most is not None and len(known) >= most:
                break
        return here, step

    def _frugal(self, choice: Choice) -> tuple[float, float]:
        limit = (1.0 + self._tolerance) * self._known[self._last].round_time
        return max(choice.round_time - limit, 0.0), choice.worker_time

    def _play(self, places: list[Place], rounds: int) -> dict[Place, Choice]:
        if not places:
            return {}
        size, tasks = np.array([(self._workers[i], self._tasks[j]) for i, j in places]).T
        inside = np.arange(size.max()) < size[:, None]
        races = _share_out(np.where(inside, self._scores[: size.max()], np.inf), tasks, self._budget)
        first = slice(races.shape[1])
        costs = race_costs(self._times[first], races, self._budget, rounds, self._factors[first])
        rows = zip(places, size.tolist(), tasks.tolist(), *(part.tolist() for part in costs), strict=True)
        return {place: Choice(m, number, time, work, 0) for place, m, number, time, work in rows}


class Race(NamedTuple):
    """A race and what it costs on average, in units of time."""

    allocation: Ints  # (n,) tasks for each worker
    round_time: float
    worker_time: float


def best_race(pool: Pool, budget: int, price: float, replicates: int = 1024) -> Race:
    """Find the race of least expected round time + price * expected worker time where the distributions are known.

    The search is ``RaceSearch`` with the workers ranked in three ways: by their mean times, and by their times per
    result in a race as long as all workers together need, and twice that. The best of the three is returned.

    Tasks count as independent, those of traces too. ValueError if the budget is no whole number of at least 1 or too
    large to play rounds, or the price is negative.

    >>> from ata_gym import scenario
    >>> named = scenario("icml2025-cifar100")
    >>> race = best_race(named.pool, named.budget, price=0.05)
    >>> race.allocation[:9]
    array([14,  7,  4,  3,  2,  2,  1,  1,  0])
    """
    budget, price = whole_number("budget", budget), non_negative("price", price)
    means = checked_pool(pool).mean()
    pool, unit = rescaled(pool, float(means.min()))
    times = known_sample(pool, _SLICES)
    everybody = np.full((1, pool.n), budget)
    end = float(race_costs(times, everybody, budget, _SLICES).round_time[0])
    races = []
    for scores in (times.mean(axis=1), time_per_result(times, end), time_per_result(times, 2 * end)):
        choice = RaceSearch(times, scores, budget, price, replicates=replicates).search()
        allocation = race_allocation(scores, choice.fastest, choice.tasks, budget)
        races.append(Race(allocation, choice.round_time * unit, choice.worker_time * unit))
    return min(races, key=lambda race: race.round_time + price * race.worker_time)


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


def _scale(least: int, most: int) -> list[int]:  # whole numbers from `least` to `most`, growing by 6 % and at least 1
    numbers = [least]
    while numbers[-1] < most:  # by 1 at least
        numbers.append(min(most, max(numbers[-1] + 1, round(numbers[-1] * _GROWTH))))
    return numbers


def _nearest(number: int, scale: list[int]) -> int:
    return min(range(len(scale)), key=lambda place: abs(scale[place] - number))
