"""Who is tried for the sake of what is learned: workers that could gain more than their trial costs."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from ata_gym.simulation.keys import permutations
from ata_gym.theory.allocation.beta_rule import beta_kernel
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import helper, kernel
from ata_policies.beliefs.distributions.retries import first_of
from ata_policies.beliefs.distributions.tails import members, picked
from ata_policies.planning.fewer_tasks import Reduced, remove_tasks
from ata_policies.planning.knowledge import BETA, IDLE, Candidates, Knowledge, value_of_trying
from ata_policies.planning.local_search import MOVES, Search, local_search

_TRIAL_TIMES = 4  # the stream of keys for the possible times of trials: no other use of ``permutations`` has it
_shuffled = lru_cache(maxsize=16)(permutations)
_CONSIDERED = 256  # workers at which is looked closely: those of the least quantile of what their mean may be
_OPTIMISM = 2.0  # standard deviations of that quantile below what is expected
_LARGEST = 600.0  # the largest logarithm of a mean that may be drawn: its exponential is finite


class _Prospects(NamedTuple):
    """The workers at which is looked closely: j at most; a row with fewer is filled up."""

    workers: Ints  # (E, j)
    there: Mask  # (E, j) which places are theirs
    tasks: Floats  # (E, j) how many tasks tell what they are worth, at least 1
    value: Floats  # (E, j) what they could gain per round, for each of these tasks
    order: Ints  # (E, j) the most valuable first, over what their task is expected to take


def explore(
    known: Knowledge, candidates: Candidates, found: Search, there: Mask, prices: Floats, left: Floats, draws: Floats
) -> tuple[Ints, Floats]:
    """Choose which idle workers that are ``there``, (E, n), get a task in the coming round for what is learned.

    The allocation with these tasks is returned, (E, n), and after how many rounds one of these workers, or of those in
    use, is known much better, (E,).

    A worker of mean M gains G_k (1 - M / u_k)+ per round if it takes k of the B tasks of the allocation found
    (``remove_tasks``, without doubt: G_k is gained if it needs no time, and u_k is the limit). What it gains for each
    task of its trial is the greatest over k of

        v = G_k E[(1 - M / u_k)+] / l,   l = max(1, 1 / (c max(s^2, r - 1 - ln r))),   r = max(1, m / u_k),

    where m is its expected mean, s the deviation of its logarithm, and c the shape of its times. After l tasks it is
    known twice as well, or the likelihood tells a worker of mean m from one at the limit, as in a sequential test
    (Wald, 1945). Several workers gain no more than the whole cost V of a round, V (1 - prod_i (1 - v_i / V)), or, where
    nearly all have never been tried, what such workers would gain together (``gain_together``); and both are less by
    the factor prod_j (1 - v_j / V) over those in use, which become known without a trial. The best prefix of them is
    tried together, since a round waits only once for the slowest: with N rounds ``left``, (E,), that of greatest

        N * what they gain - E[cost of a round with them] + E[cost without].

    Workers are ordered by their value over what their task is expected to take; or those never tried come first, if
    that is better. Equal ones come in the order of the ``draws``, (E, n), and of those never tried B are considered.
    The ``prices``, (n,), are those of a unit of each worker's time; where nobody in particular is meant, their median.

    What this costs over many rounds is not proved. With gamma times of two workers the regret stays below (ln N)^2
    up to a coefficient of variation of 1.4; from about 1.8 on it is linear, as some rows stay at the slower worker
    (``python -m docs.linear_regret``). Of very many workers most are never tried, as in many-armed bandits (Wang,
    Audibert and Munos, 2008). Ours, after the knowledge gradient (Frazier, Powell and Dayanik, 2008).
    """
    used, new = candidates.members.among_all(found.allocation) > 0, there & (known.seen.evidence == 0.0)
    budget, rows = np.int64(found.allocation[0].sum()), np.arange(len(there))
    asked = first_of(np.where(new, draws, np.inf), budget)
    number = asked.sum(axis=1)
    usual, own = float(np.median(prices)), prices[candidates.members.workers]
    reduced = remove_tasks(candidates.times, candidates.shapes[:, -1], found.allocation, own, usual)
    prospects = _prospects(known, reduced, (there & ~used & ~new) | asked, draws)  # without those in use
    by_use, tasks, of = _prospects(known, reduced, used, draws), found.allocation, candidates.members.of
    rest = np.prod(1.0 - np.minimum(by_use.value / reduced.cost[:, :1], 1.0), axis=1)
    soon = _tasks_to_know(of(known.shapes), of(known.posterior.spread)) / np.maximum(tasks, 1)
    soon = np.where(tasks > 0, soon, np.inf).min(axis=1)
    together = np.zeros(rows.size)
    for row in np.flatnonzero(number > 1).tolist():
        together[row] = gain_together(known, candidates, found, own, usual, new[row], row)
    newest = picked(new, picked(prospects.workers, prospects.order)) & prospects.there
    place = picked(prospects.order, np.argsort(~newest, axis=1, kind="stable"))
    place = np.stack([prospects.order, place], axis=1)[:, :, :budget]
    workers, size = picked(prospects.workers, place), prospects.there.sum(axis=1)
    size = np.stack([size, np.where(number > 1, size, 0)], axis=1)
    value, cost = picked(prospects.value, place), reduced.cost[:, :1, None]
    gains = rest[:, None, None] * _gains(value, picked(new, workers), cost, together, number)
    costs = _costs(known, candidates, reduced, workers, size, prices[workers])
    first = np.minimum(reduced.removed, place.shape[2]) - 1
    net = left[:, None, None] * gains[:, :, first] - costs + cost
    net = np.where((net > 0.0) & (reduced.removed > 0), net, 0.0)
    which, level = np.divmod(net.reshape(rows.size, -1).argmax(axis=1), reduced.removed.size)
    trial = np.arange(place.shape[2]) < reduced.removed[level][:, None]
    allocation, (e, j) = candidates.members.among_all(reduced.allocation[rows, level]), np.nonzero(trial)
    allocation[e, workers[e, which[e], j]] = 1
    needed = np.where(trial, picked(prospects.tasks, place[rows, which]), np.inf)
    return allocation, np.minimum(soon, needed.min(axis=1))


def gain_together(
    known: Knowledge, candidates: Candidates, found: Search, own: Floats, usual: float, untried: Mask, row: int
) -> float:
    """What workers never tried, (n,), B at most, would gain together for each of their tasks, if all were tried.

    They are quantiles of the population, at the ``usual`` price; ``own`` are those of the candidates, (E, m). Each
    alone may gain nothing where several workers are about as busy as the busiest.
    """
    budget, used = found.allocation[row].sum(), found.allocation[row] > 0
    number = min(budget, untried.sum())
    levels = (np.arange(number) + 0.5) / number
    mean = np.exp(np.interp(levels, np.cumsum(known.population.share[row]), known.population.place[row]))
    mean = mean[mean < found.cost[row]][:IDLE]
    if mean.size == 0:
        return 0.0
    shape, worker = candidates.shapes[row, -1], untried.argmax()
    times = np.concatenate([candidates.times[row, used], mean[:, None] * shape])
    spread = np.append(candidates.spread[row, used], BETA * mean * shape.std())
    nobody = np.zeros(len(times), np.bool_)
    start = beta_kernel(times.mean(axis=1), spread, budget, nobody, np.zeros(len(times)))
    doubt = np.append(candidates.doubt[row, used], np.zeros(mean.size))
    paid = np.append(own[row, used], np.full(mean.size, usual))
    together = local_search(times, start, paid, doubt=doubt, moves=MOVES // 2)
    needed = _tasks_to_know(known.shapes[row, worker], known.posterior.spread[row, worker])
    return float(max(found.cost[row] - together.cost, 0.0) / needed)


def _prospects(known: Knowledge, reduced: Reduced, which: Mask, draws: Floats) -> _Prospects:
    among = members(which)
    optimism = among.of(known.posterior.location) - _OPTIMISM * among.of(known.posterior.spread)
    near = np.lexsort((among.of(draws), np.where(among.there, optimism, np.inf)))[:, :_CONSIDERED]
    workers, there = picked(among.workers, near), among.there[:, :_CONSIDERED]
    seen, posterior = known.of(workers)
    limit, mean = reduced.limit[:, 1:, None], posterior.mean()
    gain = (reduced.cost[:, :1] - reduced.cost[:, 1:])[:, :, None]
    gain = gain * value_of_trying(known.population, seen, reduced.limit[:, 1:])
    ratio = np.maximum(mean[:, None] / np.where(limit > 0.0, limit, np.inf), 1.0)
    needed = _tasks_to_know(picked(known.shapes, workers)[:, None], posterior.spread[:, None], ratio)
    values = np.where((gain > 0.0) & (limit > 0.0) & there[:, None], gain / needed, 0.0)
    value, level = values.max(axis=1), values.argmax(axis=1)[:, None]
    tasks = np.where(value > 0.0, np.take_along_axis(needed, level, 1)[:, 0], 1.0)
    order = np.argsort(np.where(there, -value / mean, np.inf), axis=1, kind="stable")
    return _Prospects(workers, there, tasks, value, order)


def _tasks_to_know(shapes: Floats, spread: Floats, ratio: Floats | float = 1.0) -> Floats:
    """The tasks after which workers are known twice as well, or told from those whose mean is less by a ratio r."""
    apart = np.maximum(spread**2, ratio - 1.0 - np.log(ratio))
    return np.asarray(np.maximum(1.0 / (shapes * np.maximum(apart, 1e-12)), 1.0))


def _gains(value: Floats, new: Mask, cost: Floats, together: Floats, number: Ints) -> Floats:
    """What the first 1, 2, ... of some workers gain per round; all those that are new gain so much ``together``."""
    gains = cost * (1.0 - np.cumprod(1.0 - np.minimum(value / cost, 1.0), axis=2))
    so_far, number = np.cumsum(new, axis=2), number[:, None, None]
    all_new = np.maximum(gains, together[:, None, None] * so_far / np.maximum(number, 1))
    return np.where((number > 1) & (2.0 * so_far >= number), all_new, gains)


def _costs(
    known: Knowledge, candidates: Candidates, reduced: Reduced, workers: Ints, number: Ints, prices: Floats
) -> Floats:  # the expected cost of a round without k of the tasks and with a trial of the first k of the workers
    size, place = candidates.times.shape[2], picked(candidates.members.place, workers)
    shuffled = _shuffled(_TRIAL_TIMES, 1 << (2 * workers.shape[2]).bit_length(), size)
    quantiles = ndtri((np.arange(size) + 0.5) / size)  # of the normal distribution, equally likely
    drawn = *(picked(part, workers) for part in known.posterior), quantiles, shuffled, candidates.shapes[:, None]
    more = _more(reduced.removed, reduced.round_time[:, None], *drawn, place, prices, number)
    return np.asarray(more + reduced.cost[:, None])


@helper("reassoc", "nsz")
def _wait(round_time: Floats, slowest: Floats) -> float:
    total = 0.0
    for q in range(len(round_time)):
        for s in range(len(slowest)):
            total += max(slowest[s] - round_time[q], 0.0)
    return total / (len(round_time) * len(slowest))


@kernel("(l),(l,q),(j),(j),(s),(k,s),(m,s),(j),(j),()->(l)")
def _more(
    removed: Ints, round_time: Floats, location: Floats, spread: Floats, quantiles: Floats, shuffled: Ints,
    shapes: Floats, place: Ints, prices: Floats, prospects: Ints, out: Floats,
) -> None:  # fmt: skip
    """What the workers of a trial add to the cost; infinite where there are not so many.

    Their means are drawn by their location and spread, and their times by their shape; a place of -1 is the average.
    """
    number, size = min(prospects[0], len(location)), len(quantiles)
    slowest, times, work = np.zeros(size), np.empty((number, size)), np.empty(number)
    for j in range(number):
        for s in range(size):
            mean = math.exp(min(location[j] + spread[j] * quantiles[shuffled[2 * j, s]], _LARGEST))
            times[j, s] = mean * shapes[place[j], shuffled[2 * j + 1, s]]
        work[j] = prices[j] * times[j].mean()
    for level in range(len(removed)):
        out[level] = math.inf
        if removed[level] <= number:
            for j in range(removed[level - 1], removed[level]):
                for s in range(size):
                    slowest[s] = max(slowest[s], times[j, s])
            out[level] = _wait(round_time[level], slowest) + work[: removed[level]].sum()
