"""Races of the fastest workers.

How tasks are shared out, and which race costs least in simulated rounds.
"""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.pools.pool import Pool, checked_pool
from ata_gym.theory.allocation.smallest_multiples import allocate_kernel
from ata_gym.theory.allocation.with_latency import latency_kernel
from ata_gym.theory.round_time.worker_times import rescaled
from ata_gym.theory.simulated.slices import slice_means
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import non_negative, whole_number
from ata_policies.beliefs.distributions.retries import first_of
from ata_policies.planning.races.costs import race_costs

EVERYTHING = 2**40  # a number of tasks to share out that stands for B tasks for every worker
# takes the place of a score of 0, for which RAS has a rule of its own
_LEAST_SCORE = np.nextafter(0.0, 1.0)
STRIDE = 4  # length of the first steps of a search
_ROUGH_ROUNDS = 64  # rounds with each candidate of a search that has no start
_GROWTH = 1.06  # from one number of workers, or of tasks, to the next one on the scales of a search
_SLICES = 256  # equally likely times of a worker where its distribution is known

# where a race is on the scales of numbers of workers and of tasks
Place = tuple[int, int]
# what a search makes least, in this order
Loss = Callable[["Choice"], tuple[float, float]]


def race_allocation(
    scores: ArrayLike,
    fastest: ArrayLike,
    tasks: ArrayLike,
    budget: int,
    latency: Floats | None = None,
    ranking: ArrayLike | None = None,
) -> Ints:
    """Share out tasks among the fastest workers by RAS (see ``allocate``), at most B each.

    The first example has two tasks more than needed, none of them for the slowest; in the second
    one the two fastest get all tasks.

    Args:
        scores: (..., n) estimated task times, finite where among the fastest. Of equal ones the
            lowest index is faster.
        fastest: (...,) how many workers take part.
        tasks: (...,) tasks to share out, B at least. With ``EVERYTHING`` each worker gets B.
        budget: Results that end a round, B.
        latency: (n,) mean latencies, which count where the tasks are shared out.
        ranking: (..., n) what the workers are ranked by, least first; by default the scores.

    Example:
        >>> race_allocation([1.0, 2.0, 4.0, 9.0], fastest=3, tasks=9, budget=7)
        array([6, 2, 1, 0])
        >>> race_allocation([1.0, 2.0, 4.0, 9.0], fastest=2, tasks=EVERYTHING, budget=7)
        array([7, 7, 0, 0])
    """
    times = np.asarray(scores, np.float64)
    if ranking is None:
        ranks = times
    else:
        ranks = np.asarray(ranking, np.float64)
    inside = first_of(ranks, np.asarray(fastest, np.int64))
    tasks = np.asarray(tasks, np.int64)
    return _share_out(np.where(inside, times, np.inf), tasks, budget, latency)


def _share_out(times: Floats, tasks: Ints, budget: int, latency: Floats | None) -> Ints:
    """Share out tasks among the workers of finite times."""
    times = np.maximum(times, _LEAST_SCORE)
    nobody = np.zeros(times.shape[-1], np.bool_)
    if latency is None:
        shared = allocate_kernel(times, tasks, nobody, np.empty(0))
    else:
        shared = latency_kernel(times, latency, tasks, nobody, np.empty(0))
    return np.where(
        tasks[..., None] >= EVERYTHING,
        budget * (times < np.inf),
        np.minimum(shared, budget),
    )


class Choice(NamedTuple):
    """Which race of ``race_allocation``, and what it costs on average."""

    fastest: int
    """Workers in the race."""
    tasks: int
    """Tasks shared out among them, before the cap of B each; ``EVERYTHING``: B each."""
    round_time: float
    """Expected round time, in units of time."""
    worker_time: float
    """Expected worker time of a round, in units of time."""
    stride: int
    """Length of the steps with which the search has to go on; 0 if it is done."""

    def total(self, price: float) -> float:
        """Return the expected cost of a round: round time + price * worker time."""
        return self.round_time + price * self.worker_time


class RaceSearch:
    """Chooses how many of the fastest workers race, and for how many tasks.

    The race costs least: expected round time + price * expected worker time. The numbers of workers
    and of tasks are searched on scales that grow by 6 % and at least 1, the tasks from exactly B to
    B for every worker, step by step, with long steps first. At price 0 no race costs less than that
    of all workers with B tasks each; of those that cost at most ``1 + tolerance`` times as much, it
    takes the one with the least worker time. Ours.

    Args:
        times: (n, S) equally likely task times of each worker.
        scores: (n,) estimated task times, which rank the workers and share out the tasks: see
            ``race_allocation``.
        budget: Results that end a round, B.
        price: What a unit of worker time costs, in units of round time.
        tolerance: At price 0, the share by which a race may cost more than the cheapest.
        replicates: Rounds to play with each candidate, see ``race_costs``.
        factors: (n, F) where the times are uncertain, see ``race_costs``.
        least_workers: Workers that have to be in the race, from 1 to n.
        latency: (n, L) equally likely latencies of each worker, see ``race_costs``; their means
            count where the tasks are shared out.
        ranking: (n,) what ranks the workers, least first; by default the scores.

    Example:
        >>> from ata_gym import scenario
        >>> example = scenario("icml2025-cifar100")
        >>> times = slice_means(example.pool, 64)
        >>> RaceSearch(times, times.mean(axis=1), example.budget, price=0.1).search()[:2]
        (5, 30)
    """

    def __init__(
        self,
        times: ArrayLike,
        scores: ArrayLike,
        budget: int,
        price: float,
        *,
        tolerance: float = 0.0,
        replicates: int = 256,
        factors: Floats | None = None,
        least_workers: int = 1,
        latency: Floats | None = None,
        ranking: ArrayLike | None = None,
    ) -> None:
        if ranking is None:
            ranking = scores
        ranked = np.asarray(ranking, np.float64)
        count = max(1, int((ranked < np.inf).sum()))
        order = np.argsort(ranked, kind="stable")[:count]
        self._times = np.asarray(times, np.float64)[order]
        self._scores = np.asarray(scores, np.float64)[order]
        if latency is None:
            self._latency = None
        else:
            self._latency = latency[order]
        if factors is None:
            self._factors = np.ones((len(order), 1))
        else:
            self._factors = factors[order]
        self._budget = budget
        self._price = price
        self._tolerance = tolerance
        self._replicates = replicates
        self._workers = _scale(min(least_workers, len(order)), len(order))
        self._tasks = [*_scale(budget, 4 * budget), EVERYTHING]
        self._last = len(self._workers) - 1, len(self._tasks) - 1
        self._choices: dict[Place, Choice] = {}

    def search(self) -> Choice:
        """Search from the best of every second number of workers and of tasks, on few rounds."""
        # the ends of both scales are always among them
        scales = [sorted({*range(0, end, 2), end}) for end in self._last]
        every_second = list(product(*scales))
        rough = self._play(every_second, min(_ROUGH_ROUNDS, self._replicates))
        best = min(rough, key=lambda place: rough[place].total(self._price))
        return self._search_from(best, STRIDE, None)

    def search_from(
        self,
        fastest: int,
        tasks: int,
        stride: int = STRIDE,
        most_races: int | None = None,
    ) -> Choice:
        """Search from a race, such as an earlier choice.

        Args:
            fastest: Workers in this race.
            tasks: Tasks shared out among them.
            stride: Length of the first steps on the scales.
            most_races: The search ends early when it has played so many races, but has at least
                played the races around its start.
        """
        position = _nearest(fastest, self._workers), _nearest(tasks, self._tasks)
        return self._search_from(
            position, max(stride, 1), most_races
        )  # a negative one would never end

    def _search_from(self, position: Place, stride: int, most_races: int | None) -> Choice:
        """Search by the cost; at price 0, by the worker time of races that are short enough."""
        if self._price > 0.0:
            position, stride = self._walk(
                lambda choice: (choice.total(self._price), 0.0),
                position,
                stride,
                most_races,
            )
        else:
            # the race of all workers with B tasks each: no round is shorter
            self._choices |= self._play([self._last], self._replicates)
            position, stride = self._walk(self._frugal, position, stride, most_races)
        return self._choices[position]._replace(stride=stride)

    def _walk(
        self, loss: Loss, position: Place, step: int, most_races: int | None
    ) -> tuple[Place, int]:
        """Go to the best of the eight places around, by steps that become shorter.

        The place is returned, and the step with which the search has to go on; 0 if it is done.
        """
        choices = self._choices
        # each pass goes to a better one of finitely many places, or shortens the step
        while step:
            steps = np.array(list(product((-step, 0, step), repeat=2)))
            around = {(i, j) for i, j in np.clip(position + steps, 0, self._last).tolist()}
            choices |= self._play(sorted(around - choices.keys()), self._replicates)
            best_place = min(around, key=lambda place: (loss(choices[place]), place))
            # ties go to the lower place, so that no place is met twice; never true where extreme
            # times make a cost no number
            if (loss(choices[best_place]), best_place) < (loss(choices[position]), position):
                position = best_place
            else:
                step //= STRIDE
            if most_races is not None and len(choices) >= most_races:
                break
        return position, step

    def _frugal(self, choice: Choice) -> tuple[float, float]:
        """Return by how much a race is too long, and its worker time."""
        limit = (1.0 + self._tolerance) * self._choices[self._last].round_time
        return max(choice.round_time - limit, 0.0), choice.worker_time

    def _play(self, places: list[Place], rounds: int) -> dict[Place, Choice]:
        """Play races, by their places; the costs of each are returned."""
        if not places:
            return {}
        size = np.array([self._workers[i] for i, _ in places])
        tasks = np.array([self._tasks[j] for _, j in places])
        inside = np.arange(size.max()) < size[:, None]
        fastest = slice(int(size.max()))
        if self._latency is None:
            latency = None
            mean_latency = None
        else:
            latency = self._latency[fastest]
            mean_latency = latency.mean(axis=1)
        races = _share_out(
            np.where(inside, self._scores[fastest], np.inf),
            tasks,
            self._budget,
            mean_latency,
        )
        costs = race_costs(
            self._times[fastest],
            races,
            self._budget,
            rounds,
            self._factors[fastest],
            latency,
        )
        rows = zip(
            places,
            size.tolist(),
            tasks.tolist(),
            *(column.tolist() for column in costs),
            strict=True,
        )
        return {place: Choice(m, number, time, work, 0) for place, m, number, time, work in rows}


class Race(NamedTuple):
    """A race and what it costs on average, in units of time."""

    allocation: Ints
    """(n,) tasks for each worker."""
    round_time: float
    """Expected round time."""
    worker_time: float
    """Expected worker time of a round."""


def best_race(pool: Pool, budget: int, price: float, replicates: int = 1024) -> Race:
    """Find the race of least expected cost where the distributions are known.

    The cost is round time + price * worker time. The search is ``RaceSearch`` with the workers
    ranked in three ways: by their mean times, by their times per result in a race as long as all
    workers together need, and by their times per result in a race twice as long. The best of the
    three is returned. Where workers pay a latency, each of the three is searched with the workers
    ranked in two ways, by the time of a first result and by ``time_with_latency`` in the race of
    all workers. Tasks count as independent, tasks of traces too.

    Args:
        pool: The workers.
        budget: Results that end a round.
        price: What a unit of worker time costs, in units of round time.
        replicates: Rounds to play with each candidate.

    Raises:
        ValueError: If the budget is no whole number of at least 1 or too large to play rounds, or
            the price is negative.

    Example:
        >>> from ata_gym import scenario
        >>> example = scenario("icml2025-cifar100")
        >>> race = best_race(example.pool, example.budget, price=0.05)
        >>> race.allocation[:9]
        array([14,  7,  4,  3,  2,  2,  1,  1,  0])
    """
    budget = whole_number("budget", budget)
    price = non_negative("price", price)
    means = checked_pool(pool).mean()
    pool, unit = rescaled(pool, float(means.min()))
    times = slice_means(pool, _SLICES)
    latency = None
    mean_latency = None
    if pool.latency is not None:
        latency = slice_means(pool.latency, _SLICES)
        mean_latency = latency.mean(axis=1)
    all_workers = np.full((1, pool.n), budget)
    end = float(race_costs(times, all_workers, budget, _SLICES, latency=latency).round_time[0])
    races = []
    all_scores = [times.mean(axis=1), time_per_result(times, end), time_per_result(times, 2 * end)]
    for scores in all_scores:
        rankings = [scores]
        if mean_latency is not None:
            rankings = [scores + mean_latency, time_with_latency(scores, mean_latency, end)]
        for ranking in rankings:
            search = RaceSearch(
                times,
                scores,
                budget,
                price,
                replicates=replicates,
                latency=latency,
                ranking=ranking,
            )
            choice = search.search()
            allocation = race_allocation(
                scores, choice.fastest, choice.tasks, budget, mean_latency, ranking
            )
            races.append(Race(allocation, choice.round_time * unit, choice.worker_time * unit))
    return min(races, key=lambda race: race.round_time + price * race.worker_time)


def time_per_result(times: ArrayLike, until: float) -> Floats:
    """Compute the time that workers spend per result if tasks are cancelled after t, (n,).

    It is E min(X, t) / P(X <= t). Without an end it is the mean; with one, a worker that is mostly
    fast and seldom very slow gets the small value that it has in a race.

    Args:
        times: (n, S) equally likely task times; a worker none of whose times is at most t gets
            infinity.
        until: The time t.

    Example:
        >>> time_per_result([[1.0, 9.0], [4.0, 4.0]], until=5.0)
        array([6., 4.])
    """
    table = np.asarray(times, np.float64)
    time_spent = np.minimum(table, until).mean(axis=1)
    chance = (table <= until).mean(axis=1)
    return np.asarray(
        np.divide(time_spent, chance, out=np.full_like(time_spent, np.inf), where=chance > 0)
    )


def time_with_latency(scores: Floats, latency: Floats, until: Floats | float) -> Floats:
    """Compute the time per result in a round until t, with the latency before the first, (..., n).

    A worker gives (t - c) / s results, and t over this number is its time per result. Workers whose
    latency takes the whole round come after all others, by c + s.

    Args:
        scores: (..., n) times per result s without the latency; infinite for workers that get no
            tasks.
        latency: (..., n) latencies c.
        until: The time t; its shape broadcasts with (..., n).

    Example:
        >>> time_with_latency(np.array([1.0, 2.0]), np.array([6.0, 0.0]), until=10.0)
        array([2.5, 2. ])
    """
    spare = until - latency
    late = 2.0**100 * (scores + latency)
    return np.divide(scores * until, spare, out=late, where=spare > 0.0)


def _scale(start: int, end: int) -> list[int]:
    """Return whole numbers from ``start`` to ``end``, which grow by 6 % and at least 1."""
    numbers = [start]
    while numbers[-1] < end:
        larger = max(numbers[-1] + 1, round(numbers[-1] * _GROWTH))
        numbers.append(min(end, larger))
    return numbers


def _nearest(number: int, scale: list[int]) -> int:
    """Return the place of the nearest number of a scale."""
    return min(range(len(scale)), key=lambda place: abs(scale[place] - number))
