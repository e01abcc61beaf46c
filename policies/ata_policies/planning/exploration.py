"""Who is tried for the sake of what is learned: workers that could gain more than their trial costs."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from ata_gym.simulation.keys import permutations
from ata_gym.theory.allocation.beta_rule import beta_kernel
from ata_gym.typing import Floats, Ints, Mask
from ata_policies.planning.completion_times import POINTS, Grid, tabulate
from ata_policies.planning.knowledge import BETA, IDLE, Candidates, Knowledge, value_of_trying
from ata_policies.planning.local_search import MOVES, Search, local_search

_HALVINGS = 12  # steps of the search for the means at which a worker is useful, each of which halves an interval
_QUANTILES = 32  # equally likely round times of an allocation
_TRIAL_TIMES = 4  # the stream of keys for the possible times of trials: no other use of ``permutations`` has it
_shuffled = lru_cache(maxsize=16)(permutations)
_CONSIDERED = 256  # workers at which is looked closely: those of the least quantile of what their mean may be
_OPTIMISM = 2.0  # standard deviations of that quantile below what is expected
_LARGEST = 600.0  # the largest logarithm of a mean that may be drawn: its exponential is finite


class Trials(NamedTuple):
    """Workers that are tried together, each with one task, and the allocation of the other tasks."""

    workers: Ints  # (J,) none or more
    allocation: Ints  # (n,) of B - J tasks
    rounds: float  # after which one of the workers, or of those in use, is known much better


class Reduced(NamedTuple):
    """The allocation of m candidates without k of its tasks, for each of L numbers k: 0, 1, 2, 4, ..., and all."""

    removed: Ints  # (L,) k
    allocation: Ints  # (L, m)
    round_time: Floats  # (L, 32) equally likely round times
    cost: Floats  # (L,) expected round time + price * worker time
    limit: Floats  # (L,) the mean below which one worker that did the k tasks would make it cheaper than with all tasks


class _Prospects(NamedTuple):
    """The j workers at which is looked closely."""

    workers: Ints  # (j,)
    location: Floats
    spread: Floats  # (j,) of the logarithms of their means
    tasks: Floats  # (j,) how many tasks tell what they are worth, at least 1
    value: Floats  # (j,) what they could gain per round, for each of these tasks
    untried: Mask  # (j,) whether they were never tried
    order: Ints  # (j,) the most valuable first, over what their task is expected to take


class _Trial(NamedTuple):
    """J workers in the order in which they are tried."""

    place: Ints  # (J,) their places among the prospects
    means: Floats  # (J, S) possible means
    times: Floats  # (J, S) possible task times


def explore(
    known: Knowledge, candidates: Candidates, found: Search, there: Mask, price: float, left: float, draws: Floats
) -> Trials:
    """Choose which idle workers that are ``there``, (n,), get a task in the coming round for what is learned.

    A worker of mean M gains G_k (1 - M / u_k)+ per round if it takes k of the B tasks of the allocation found
    (``remove_tasks``, without doubt: G_k is gained if it needs no time, and u_k is the limit). What it gains for each
    task of its trial is the greatest over k of

        v = G_k E[(1 - M / u_k)+] / l,   l = max(1, 1 / (c max(s^2, r - 1 - ln r))),   r = max(1, m / u_k),

    where m is its expected mean, s the deviation of its logarithm, and c the shape of its times. After l tasks it is
    known twice as well, or the likelihood tells a worker of mean m from one at the limit, as in a sequential test
    (Wald, 1945). Several workers gain no more than the whole cost V of a round, V (1 - prod_i (1 - v_i / V)), or, where
    nearly all have never been tried, what such workers would gain together (``gain_together``); and both are less by
    the factor prod_j (1 - v_j / V) over those in use, which become known without a trial. The best prefix of them is
    tried together, since a round waits only once for the slowest: with N rounds ``left`` the one of greatest

        N * what they gain - E[cost of a round with them] + E[cost without].

    Workers are ordered by their value over what their task is expected to take; or those never tried come first, if
    that is better. Equal ones come in the order of the ``draws``, (n,), and of those never tried B are considered.

    So a worker that would be useful is given up only where its times are about N times likelier if it is slow, which
    happens with a chance of order (ln N)^2 / N (Garivier and Cappé, 2011, theorem 10), and a slow one is tried O(ln N)
    times: where workers do not change, both cost O((ln N)^2). This is an argument, not a proof. Of very many workers
    most are never tried, as in many-armed bandits (Wang, Audibert and Munos, 2008). Ours, after the knowledge gradient
    (Frazier, Powell and Dayanik, 2008).
    """
    budget, used = int(found.allocation.sum()), candidates.workers[found.allocation > 0]
    never, idle = known.seen.evidence == 0.0, there.copy()
    idle[used] = False  # those in use become known without a trial
    tried, untried = np.flatnonzero(idle & ~never), np.flatnonzero(idle & never)
    number = min(budget, untried.size)
    together = gain_together(known, candidates, found, number, price) if number > 1 else 0.0
    if untried.size:
        together /= float(_tasks_to_know(known, untried[:1])[0])
        untried = untried[np.argpartition(draws[untried], min(budget, untried.size - 1))[:budget]]
    reduced = remove_tasks(candidates._replace(doubt=np.zeros_like(candidates.doubt)), found.allocation, price)
    whole = np.zeros((reduced.removed.size, there.size), np.int64)
    whole[:, candidates.workers] = reduced.allocation
    reduced = reduced._replace(allocation=whole)
    prospects = _prospects(known, reduced, np.sort(np.append(tried, untried)), draws)
    rest, soon = _known_by_use(known, reduced, used, draws)
    newest = prospects.order[np.argsort(~prospects.untried[prospects.order], kind="stable")]
    best, chosen = 0.0, Trials(prospects.workers[:0], whole[0], soon)
    for order in [prospects.order, newest] if number > 1 else [prospects.order]:
        trial = _draw_trial(prospects, order[:budget], candidates)
        gains = rest * _gains(prospects, trial.place, float(reduced.cost[0]), together, number)
        for level in range(1, reduced.removed.size):
            k = int(reduced.removed[level])
            if k > trial.place.size:
                break
            net = left * gains[k - 1] - _cost(reduced, level, prospects, trial, price) + float(reduced.cost[0])
            if net > best:
                best, first = net, trial.place[:k]
                chosen = Trials(prospects.workers[first], whole[level], min(soon, float(prospects.tasks[first].min())))
    return chosen


def gain_together(known: Knowledge, candidates: Candidates, found: Search, number: int, price: float) -> float:
    """What so many workers never tried would gain together in a round, if they are quantiles of the population.

    Each alone may gain nothing where several workers are about as busy as the busiest.
    """
    levels = (np.arange(number) + 0.5) / number
    mean = np.exp(np.interp(levels, np.cumsum(known.population.share), known.population.place))
    mean = mean[mean < found.cost][:IDLE]
    if mean.size == 0:
        return 0.0
    used, shape = found.allocation > 0, candidates.shapes().mean(axis=0)
    times = np.concatenate([candidates.times[used], mean[:, None] * shape])
    spread = np.append(candidates.spread[used], BETA * mean * shape.std())
    nobody = np.zeros(len(times), np.bool_)
    start = beta_kernel(times.mean(axis=1), spread, found.allocation.sum(), nobody, np.zeros(len(times)))
    doubt = np.append(candidates.doubt[used], np.zeros(mean.size))
    return max(found.cost - local_search(times, start, price, doubt=doubt, moves=MOVES // 2).cost, 0.0)


def remove_tasks(candidates: Candidates, allocation: Ints, price: float) -> Reduced:
    """Take tasks away, those first without which the rest costs least, and see what a newcomer could gain by them.

    The newcomer's times are distributed as those of the candidates on average, over their mean.

    There are two tasks of time 1 each, and one of time 2. A newcomer is of use if it does the latter in less than 2, or
    all three in less than 2:

    >>> times = np.array([[1.0, 1.0], [2.0, 2.0]])
    >>> reduced = remove_tasks(Candidates(np.arange(2), times, np.zeros(2), np.zeros(2)), np.array([2, 1]), price=0.0)
    >>> reduced.removed, reduced.limit.round(1)
    (array([0, 1, 2, 3]), array([inf, 2. , 1. , 0.7]))
    """
    used = np.flatnonzero(allocation)
    times, doubt, tasks = candidates.times[used], candidates.doubt[used], allocation[used].copy()
    mean, total = times.mean(axis=1), int(tasks.sum())
    removed = np.unique(np.append(np.minimum(1 << np.arange(total.bit_length()), total), [0, total]))
    grid = Grid(0.0, _reach(times, tasks, mean) / (POINTS - 2))
    now, tail = tabulate(times, doubt, tasks, grid)
    fewer, later = tabulate(times, doubt, tasks - 1, grid)
    levels, round_time = np.zeros((removed.size, allocation.size), np.int64), np.empty((removed.size, _QUANTILES))
    products, linear, cost = np.empty((removed.size, POINTS)), np.empty(removed.size), np.empty(removed.size)
    for level, k in enumerate(removed.tolist()):
        while (missing := k - total + int(tasks.sum())) > 0:
            change = later - tail - price * mean - grid.step * (fewer / now) @ now.prod(axis=0)
            order = np.argsort(np.where(tasks > 0, change, np.inf), kind="stable")
            gone = order[: min(missing, int((tasks > 0).sum()))]
            tasks[gone] -= 1
            now[gone], tail[gone] = fewer[gone], later[gone]
            fewer[gone], later[gone] = tabulate(times[gone], doubt[gone], np.maximum(tasks[gone] - 1, 0), grid)
        products[level], worker_time = now.prod(axis=0), float(tasks @ mean)
        linear[level] = grid.step * POINTS + tail.sum() + price * worker_time
        cost[level] = linear[level] - grid.step * products[level].sum()
        round_time[level] = _quantiles(products[level], grid, cost[level] - price * worker_time)
        levels[level, used] = tasks
    under, over = np.zeros(removed.size), cost[0] / np.maximum(removed, 1)
    shape = candidates.shapes().mean(axis=0)
    for _ in range(_HALVINGS):
        middle = 0.5 * (under + over)
        newcomer, beyond = tabulate(middle[:, None] * shape, np.zeros(removed.size), removed, grid)
        value = linear + beyond + price * removed * middle - grid.step * (products * newcomer).sum(axis=1)
        under, over = np.where(value < cost[0], middle, under), np.where(value < cost[0], over, middle)
    return Reduced(removed, levels, round_time, cost, np.where(removed > 0, under, np.inf))


def _reach(times: Floats, tasks: Ints, mean: Floats) -> float:
    """A time that few rounds exceed: the last worker's mean and four standard deviations."""
    reach = float((tasks * mean + 4.0 * (np.sqrt(tasks) * times.std(axis=1))).max())
    return reach if reach > 0.0 else 1.0


def _quantiles(product: Floats, grid: Grid, mean: float) -> Floats:
    """Equally likely round times from their distribution on the grid; the largest makes up for the mean."""
    levels = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    times = grid.low + grid.step * np.searchsorted(product, levels)
    rest = _QUANTILES * mean - times[:-1].sum()
    times[-1] = max(rest, times[-2])
    return np.asarray(times)


def _prospects(known: Knowledge, reduced: Reduced, workers: Ints, draws: Floats) -> _Prospects:
    """Those of the workers (m,) that are likely to be fast."""
    location, spread = known.posterior.location[workers], known.posterior.spread[workers]
    near = np.lexsort((draws[workers], location - _OPTIMISM * spread))[:_CONSIDERED]
    location, spread, near = location[near], spread[near], workers[near]
    own, mean = known.seen.of(near), known.posterior.mean()[near]
    value, tasks = np.zeros(near.size), np.ones(near.size)
    for level in range(1, reduced.removed.size):
        if reduced.limit[level] > 0.0:
            limit = np.full(near.size, reduced.limit[level])
            gain = float(reduced.cost[0] - reduced.cost[level]) * value_of_trying(known.population, own, limit)
            needed = _tasks_to_know(known, near, np.maximum(mean / limit, 1.0))
            tasks, value = np.where(gain > value * needed, (needed, gain / needed), (tasks, value))
    order = np.argsort(-value / mean, kind="stable")
    return _Prospects(near, location, spread, tasks, value, own.evidence == 0.0, order)


def _known_by_use(known: Knowledge, reduced: Reduced, used: Ints, draws: Floats) -> tuple[float, float]:
    """The share of what can be gained that knowing those in use does not gain, and rounds until one is known better."""
    own = _prospects(known, reduced, used, draws)
    rest = np.prod(1.0 - np.minimum(own.value / reduced.cost[0], 1.0))
    return float(rest), float((_tasks_to_know(known, used) / reduced.allocation[0, used]).min())


def _tasks_to_know(known: Knowledge, workers: Ints, ratio: Floats | float = 1.0) -> Floats:
    """The tasks after which workers are known twice as well, or told from those whose mean is less by a ratio r."""
    apart = np.maximum(known.posterior.spread[workers] ** 2, ratio - 1.0 - np.log(ratio))
    return np.asarray(np.maximum(1.0 / (known.shapes[workers] * np.maximum(apart, 1e-12)), 1.0))


def _draw_trial(prospects: _Prospects, order: Ints, candidates: Candidates) -> _Trial:
    """What a trial of these prospects may take."""
    shapes = candidates.shapes_of(prospects.workers[order])
    size, number = shapes.shape[1], 2 * order.size
    shuffled = _shuffled(_TRIAL_TIMES, 1 << number.bit_length(), size)
    quantiles = ndtri((np.arange(size) + 0.5) / size)[shuffled[:number:2]]
    logarithms = prospects.location[order][:, None] + prospects.spread[order][:, None] * quantiles
    means = np.exp(np.minimum(logarithms, _LARGEST))
    return _Trial(order, means, means * np.take_along_axis(shapes, shuffled[1:number:2], axis=1))


def _gains(prospects: _Prospects, place: Ints, cost: float, together: float, number: int) -> Floats:
    """What the first 1, 2, ... of the prospects in these places gain per round; all never tried gain ``together``."""
    gains = cost * (1.0 - np.cumprod(1.0 - np.minimum(prospects.value[place] / cost, 1.0)))
    if number > 1:
        new = np.cumsum(prospects.untried[place])
        gains = np.where(2.0 * new >= number, np.maximum(gains, together * new / number), gains)
    return np.asarray(gains, np.float64)


def _cost(reduced: Reduced, level: int, prospects: _Prospects, trial: _Trial, price: float) -> float:
    """The expected cost of a round with the first k workers of the trial, and without k of the tasks."""
    k = int(reduced.removed[level])
    others = reduced.allocation[level][prospects.workers[trial.place[:k]], None] * trial.means[:k]
    slowest, round_time = (trial.times[:k] + others).max(axis=0), reduced.round_time[level]
    waiting = np.maximum(round_time[:, None], slowest).mean() - round_time.mean()
    return float(reduced.cost[level] + waiting + price * trial.times[:k].mean(axis=1).sum())
