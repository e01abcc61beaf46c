"""Who is tried for the sake of learning.

These are workers that could gain more in the rounds left than their trial costs.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from ata_gym.simulation.keys import permutations
from ata_gym.theory.allocation.beta_rule import beta_kernel
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import helper, kernel
from ata_policies.beliefs.distributions.adjustments.age import SlowStart
from ata_policies.beliefs.distributions.retries import first_of
from ata_policies.beliefs.distributions.tails import members, picked
from ata_policies.planning.fewer_tasks import Reduced, remove_tasks
from ata_policies.planning.knowledge import (
    BETA,
    IDLE,
    Candidates,
    Estimates,
    Knowledge,
    value_of_trying,
)
from ata_policies.planning.local_search import MOVES, SearchResult, local_search

# the stream of keys for the possible times of trials: no other use of ``permutations`` has it
_TRIAL_TIMES = 4
_shuffled = lru_cache(maxsize=16)(permutations)
# workers that are considered closely: the ones with the least optimistic means
_MOST_CONSIDERED = 256
# an optimistic mean is so many standard deviations below the expected logarithm of the mean
_OPTIMISM = 2.0
# the largest logarithm of a mean that may be drawn: its exponential is finite
_LARGEST_LOG_MEAN = 600.0


class _Prospects(NamedTuple):
    """The workers that are considered closely: j at most; a row with fewer is filled up."""

    workers: Ints
    """(E, j) their indices."""
    present: Mask
    """(E, j) which places hold such a worker."""
    tasks: Floats
    """(E, j) how many tasks tell what a worker is worth, at least 1."""
    value: Floats
    """(E, j) what a worker could gain per round, for each of these tasks if it is not young."""
    share: Floats
    """(E, j) the share of a task in all of them if it is young, else 1."""
    order: Ints
    """(E, j) places by value over the expected time of a task, greatest first."""


def explore(
    knowledge: Knowledge,
    candidates: Candidates,
    result: SearchResult,
    available: Mask,
    prices: Floats,
    rounds_left: Floats,
    draws: Floats,
) -> tuple[Ints, Floats]:
    """Choose which idle workers get a task in the coming round, for the sake of learning.

    A worker of mean M gains G_k (1 - M / u_k)+ per round if it takes k of the B tasks of the
    allocation found (``remove_tasks``, without doubt: G_k is gained if they need no time beyond its
    latency, and u_k is the limit). What it gains for each task of its trial is the greatest over k
    of

        v = G_k E[(1 - M / u_k)+] / l,
        l = max(1, 1 / (c max(s^2, r - 1 - ln r))),
        r = max(1, m / u_k),

    where m is its expected mean, s the deviation of its logarithm, and c the shape of its times.
    After l tasks it is known twice as well, or the likelihood tells a worker of mean m from one at
    the limit, as in a sequential test (Wald, 1945). The next tasks of a young worker may take f > 1
    times as long as later ones (``SlowStart``). It is fast, and known, after s + l / f of them, of
    which s are lost: for it v is G_k E[(1 - M / u_k)+], and a task is a share 1 / (s + l / f) of
    its trial, where the share of any other is 1.

    Several workers gain no more than the whole cost V of a round, V (1 - prod_i (1 - v_i / V)),
    times the mean of their shares by v_i; or, where nearly all have never been tried,
    what such workers would gain together (``gain_together``); and both are less by the factor
    prod_j (1 - v_j / V) over those in use, which become known without a trial. The best prefix of
    them is tried together, since a round waits only once for the slowest: with N rounds to come,
    the prefix of greatest

        N * what they gain - E[cost of a round with them] + E[cost without].

    Workers are ordered by their value over the expected time of their task; or those never tried
    come first, if that is better. Equal ones come in the order of the ``draws``, and of those never
    tried B are considered. Where no particular worker is meant, the price is the median price.

    What this costs over many rounds is not proved (``python -m docs.linear_regret`` measures it).
    Of very many workers most are
    never tried, as in many-armed bandits (Wang, Audibert and Munos, 2008). Ours, after the
    knowledge gradient (Frazier, Powell and Dayanik, 2008).

    Args:
        knowledge: What is known of the n workers.
        candidates: The workers that the search considered.
        result: What the search found for them.
        available: (E, n) the workers that may get tasks.
        prices: (n,) what a unit of each worker's time costs.
        rounds_left: (E,) the number N of rounds to come.
        draws: (E, n) uniform from 0 to 1.

    Returns:
        The allocation with these tasks, (E, n), and after how many rounds one of the tried workers,
        or of the workers in use, is known much better, (E,).
    """
    used = candidates.members.scatter(result.allocation) > 0
    untried = available & (knowledge.estimates.evidence == 0.0)
    budget = np.int64(result.allocation[0].sum())
    rows = np.arange(len(available))
    # of the workers never tried, nothing tells one from another: B of them, at random
    sampled = first_of(np.where(untried, draws, np.inf), budget)
    number = sampled.sum(axis=1)
    usual_price = float(np.median(prices))
    candidate_prices = prices[candidates.members.workers]
    reduced = remove_tasks(
        candidates.times,
        candidates.shapes[:, -1],
        result.allocation,
        candidate_prices,
        usual_price,
        candidates.latency,
        knowledge.latencies.levels()[:, :, None] * knowledge.latencies.shape[:, None],
    )
    idle = (available & ~used & ~untried) | sampled
    # idle since its next tasks are slow, whatever its mean is later
    young = idle & (knowledge.start.tasks > 0.0)
    prospects = _prospects(knowledge, reduced, idle, young, draws)
    by_use = _prospects(knowledge, reduced, used, young, draws)
    tasks = result.allocation
    take_candidates = candidates.members.take
    # what is left to gain once the workers in use are known, as a share
    remaining_share = np.prod(1.0 - np.minimum(by_use.value / reduced.cost[:, :1], 1.0), axis=1)
    rounds_to_know = _tasks_to_know(
        take_candidates(knowledge.shapes), take_candidates(knowledge.posterior.spread)
    ) / np.maximum(tasks, 1)
    rounds_to_know = np.where(tasks > 0, rounds_to_know, np.inf).min(axis=1)
    joint_gain = np.zeros(rows.size)
    for row in np.flatnonzero(number > 1).tolist():
        joint_gain[row] = gain_together(
            knowledge, candidates, result, candidate_prices, usual_price, untried[row], row
        )
    # two orders side by side, [:, 0] by value and [:, 1] with the workers never tried first; from
    # here on, arrays have the axes (E, order, prefix)
    newest = picked(untried, picked(prospects.workers, prospects.order)) & prospects.present
    place = picked(prospects.order, np.argsort(~newest, axis=1, kind="stable"))
    place = np.stack([prospects.order, place], axis=1)[:, :, :budget]
    workers = picked(prospects.workers, place)
    size = prospects.present.sum(axis=1)
    size = np.stack([size, np.where(number > 1, size, 0)], axis=1)
    value = picked(prospects.value, place)
    cost = reduced.cost[:, :1, None]
    gains = remaining_share[:, None, None] * _gains(
        value, picked(untried, workers), cost, joint_gain, number
    )
    gains *= _shares(value, picked(prospects.share, place))
    costs = _costs(knowledge, candidates, reduced, workers, size, prices[workers])
    # a trial of k workers takes the place of k tasks of the allocation, for each k of ``removed``
    prefix = np.minimum(reduced.removed, place.shape[2]) - 1
    net = rounds_left[:, None, None] * gains[:, :, prefix] - costs + cost
    net = np.where((net > 0.0) & (reduced.removed > 0), net, 0.0)
    order, level = np.divmod(net.reshape(rows.size, -1).argmax(axis=1), reduced.removed.size)
    trial = np.arange(place.shape[2]) < reduced.removed[level][:, None]
    allocation = candidates.members.scatter(reduced.allocation[rows, level])
    e, j = np.nonzero(trial)
    allocation[e, workers[e, order[e], j]] = 1
    needed = np.where(trial, picked(prospects.tasks, place[rows, order]), np.inf)
    return allocation, np.minimum(rounds_to_know, needed.min(axis=1))


def gain_together(
    knowledge: Knowledge,
    candidates: Candidates,
    result: SearchResult,
    candidate_prices: Floats,
    usual_price: float,
    untried: Mask,
    row: int,
) -> float:
    """Return what workers never tried would gain together per task, if all were tried.

    They are B at most, and quantiles of the population. Each alone may gain nothing where several
    workers are about as busy as the busiest.

    Args:
        knowledge: What is known of the workers.
        candidates: The workers that the search considered.
        result: What the search found for them.
        candidate_prices: (E, m) the prices of the candidates' time.
        usual_price: The price of the time of a worker never tried.
        untried: (n,) the workers never tried.
        row: Which of the E rows.
    """
    budget = result.allocation[row].sum()
    used = result.allocation[row] > 0
    number = min(budget, untried.sum())
    levels = (np.arange(number) + 0.5) / number
    mean = np.exp(
        np.interp(
            levels, np.cumsum(knowledge.population.share[row]), knowledge.population.place[row]
        ),
    )
    # one whose task alone takes longer than a round costs is of no use
    mean = mean[mean < result.cost[row]][:IDLE]
    if mean.size == 0:
        return 0.0
    shape = candidates.shapes[row, -1]
    worker = untried.argmax()
    times = np.concatenate([candidates.times[row, used], mean[:, None] * shape])
    newcomer_latency = knowledge.latencies.mean[row, worker] * knowledge.latencies.shape[row]
    latency = np.concatenate(
        [candidates.latency[row, used], np.tile(newcomer_latency, (mean.size, 1))]
    )
    spread = np.append(candidates.spread[row, used], BETA * mean * shape.std())
    nobody = np.zeros(len(times), np.bool_)
    late = latency.mean(axis=1)
    start = beta_kernel(times.mean(axis=1), spread, late, budget, nobody, np.zeros(len(times)))
    doubt = np.append(candidates.doubt[row, used], np.zeros(mean.size))
    paid = np.append(candidate_prices[row, used], np.full(mean.size, usual_price))
    joint_search = local_search(times, start, paid, latency=latency, doubt=doubt, moves=MOVES // 2)
    needed = _tasks_to_know(knowledge.shapes[row, worker], knowledge.posterior.spread[row, worker])
    return float(max(result.cost[row] - joint_search.cost, 0.0) / needed)


def _prospects(
    knowledge: Knowledge, reduced: Reduced, considered: Mask, young: Mask, draws: Floats
) -> _Prospects:
    """Value the ``considered`` workers, (E, n); see ``explore`` for the formulas.

    Those that are ``young``, (E, n), are idle, and their next tasks are slow.
    """
    among = members(considered)
    optimism = among.take(knowledge.posterior.location) - _OPTIMISM * among.take(
        knowledge.posterior.spread
    )
    near = np.lexsort((among.take(draws), np.where(among.present, optimism, np.inf)))[
        :, :_MOST_CONSIDERED
    ]
    workers = picked(among.workers, near)
    present = among.present[:, :_MOST_CONSIDERED]
    estimates, posterior = knowledge.take(workers)
    late = picked(knowledge.latencies.spread, workers)
    mean = posterior.mean()
    # axes (E, k, j) from here on: G_k (1 - M / u_k)+ for each number k of tasks above 0
    limit = knowledge.latencies.at_workers(reduced.limit[:, 1:], workers)
    least = knowledge.latencies.at_workers(reduced.least[:, 1:], workers)
    gain = reduced.cost[:, :1, None] - least
    start = SlowStart(*(picked(field, workers) for field in knowledge.start))
    young = picked(young, workers)
    gain = gain * _values(knowledge, estimates, late, reduced.removed[1:], limit, young)
    ratio = np.maximum(mean[:, None] / np.where(limit > 0.0, limit, np.inf), 1.0)
    needed = _tasks_to_know(
        picked(knowledge.shapes, workers)[:, None],
        posterior.spread[:, None],
        ratio,
    )
    # of a young worker the tasks that are lost come first, and those that tell are short
    young = young[:, None]
    lost = start.tasks[:, None] + needed * np.exp(-start.coming)[:, None]
    needed = np.where(young, np.maximum(lost, 1.0), needed)
    useful = (gain > 0.0) & (limit > 0.0) & present[:, None]
    level = np.where(useful, gain / needed, 0.0).argmax(axis=1)[:, None]
    gain = np.take_along_axis(gain, level, 1)[:, 0]
    needed = np.take_along_axis(needed, level, 1)[:, 0]
    useful = np.take_along_axis(useful, level, 1)[:, 0]
    share = np.where(young[:, 0], 1.0 / needed, 1.0)
    value = np.where(useful, gain / np.where(young[:, 0], 1.0, needed), 0.0)
    tasks = np.where(value > 0.0, needed, 1.0)
    next_mean = mean * np.exp(start.coming)
    rank = np.where(present, -value * share / next_mean, np.inf)
    order = np.argsort(rank, axis=1, kind="stable")
    return _Prospects(workers, present, tasks, value, share, order)


def _values(
    knowledge: Knowledge,
    estimates: Estimates,
    late: Floats,
    removed: Ints,
    limits: Floats,
    idle: Mask,
) -> Floats:
    """Return the ``value_of_trying`` workers that do each number k of ``removed`` tasks, (E, k, j).

    A worker whose mean latency is known with a standard deviation of ``late``, (E, j), is known
    less well: with k tasks of mean M, the time per task has the relative variance late^2 / (k M)^2
    more.
    """
    if not late.any():
        return value_of_trying(knowledge.population, estimates, limits, idle)
    tried = estimates.evidence > 0.0
    values = []
    for level, tasks in enumerate(removed.tolist()):
        added = (late / (tasks * np.exp(estimates.location))) ** 2
        variance = 1.0 / np.where(tried, estimates.evidence, 1.0) + added
        known = estimates._replace(evidence=np.where(tried, 1.0 / variance, 0.0))
        limit = limits[:, level : level + 1]
        values.append(value_of_trying(knowledge.population, known, limit, idle)[:, 0])
    return np.stack(values, axis=1)


def _tasks_to_know(shapes: Floats, spread: Floats, ratio: Floats | float = 1.0) -> Floats:
    """Return how many tasks it takes until workers are known much better.

    They are known twice as well then, or told from workers whose mean is less by the ratio r >= 1.
    """
    divergence = np.maximum(spread**2, ratio - 1.0 - np.log(ratio))
    return np.asarray(np.maximum(1.0 / (shapes * np.maximum(divergence, 1e-12)), 1.0))


def _gains(value: Floats, is_new: Mask, cost: Floats, joint_gain: Floats, number: Ints) -> Floats:
    """Return what the first 1, 2, ... workers of each order gain per round, (E, 2, prefix).

    All workers never tried, ``number`` of them, gain ``joint_gain`` together.
    """
    gains = cost * (1.0 - np.cumprod(1.0 - np.minimum(value / cost, 1.0), axis=2))
    so_far = np.cumsum(is_new, axis=2)
    number = number[:, None, None]
    # a part of the new workers gains in proportion, and counts only if it is at least half of them
    all_new = np.maximum(gains, joint_gain[:, None, None] * so_far / np.maximum(number, 1))
    return np.where((number > 1) & (2.0 * so_far >= number), all_new, gains)


def _shares(value: Floats, share: Floats) -> Floats:
    """Return the mean share of the first 1, 2, ... workers, (E, 2, prefix), by their values."""
    total = np.cumsum(value, axis=2)
    return np.cumsum(value * share, axis=2) / np.where(total > 0.0, total, 1.0)


def _costs(
    knowledge: Knowledge,
    candidates: Candidates,
    reduced: Reduced,
    workers: Ints,
    number: Ints,
    prices: Floats,
) -> Floats:
    """Return the expected cost of a round with a trial, for each order and each k, (E, 2, L).

    It is without k tasks of the allocation, and with a task each for the first k of the
    ``workers``, (E, 2, prefix), of whom there are ``number``, (E, 2).
    """
    size = candidates.times.shape[2]
    place = picked(candidates.members.place, workers)
    # three shuffles for each worker: of what its mean may be, of its times over the mean, and,
    # after those of all workers, of its latencies
    shuffled = _shuffled(_TRIAL_TIMES, 1 << (3 * workers.shape[2]).bit_length(), size)
    quantiles = ndtri((np.arange(size) + 0.5) / size)  # of the normal distribution, equally likely
    location, spread = (picked(field, workers) for field in knowledge.posterior)
    trial = (
        location + picked(knowledge.start.coming, workers),
        spread,
        quantiles,
        shuffled,
        candidates.shapes[:, None],
        picked(knowledge.latencies.mean, workers),
        knowledge.latencies.shape[:, None],
    )
    added_cost = _more(reduced.removed, reduced.round_time[:, None], *trial, place, prices, number)
    return np.asarray(added_cost + reduced.cost[:, None])


@helper("reassoc", "nsz")
def _wait(round_time: Floats, slowest: Floats) -> float:
    """Return how long a round is expected to wait for the slowest worker of a trial."""
    total = 0.0
    for q in range(len(round_time)):
        for s in range(len(slowest)):
            total += max(slowest[s] - round_time[q], 0.0)
    return total / (len(round_time) * len(slowest))


@kernel("(l),(l,q),(j),(j),(s),(k,s),(m,s),(j),(s),(j),(j),()->(l)")
def _more(
    removed: Ints,
    round_time: Floats,
    location: Floats,
    spread: Floats,
    quantiles: Floats,
    shuffled: Ints,
    shapes: Floats,
    latency: Floats,
    latency_shape: Floats,
    place: Ints,
    prices: Floats,
    prospects: Ints,
    out: Floats,
) -> None:
    """Compute what the workers of a trial add to the cost; infinite where there are too few.

    Their means are drawn by their location and spread, and their times by their shape. A place of
    -1 means the last shape, the average of all. Their latencies have these means, and one shape.
    """
    number = min(prospects[0], len(location))
    size = len(quantiles)
    slowest = np.zeros(size)
    times = np.empty((number, size))
    work = np.empty(number)
    for j in range(number):
        for s in range(size):
            mean = math.exp(
                min(location[j] + spread[j] * quantiles[shuffled[2 * j, s]], _LARGEST_LOG_MEAN)
            )
            times[j, s] = mean * shapes[place[j], shuffled[2 * j + 1, s]]
            late = shuffled[2 * len(location) + j, s]
            times[j, s] += latency[j] * latency_shape[late]
        work[j] = prices[j] * times[j].mean()
    for level in range(len(removed)):
        out[level] = math.inf
        if removed[level] <= number:
            # ``slowest`` holds the maximum over the workers of the level before, so that each
            # worker is added once
            for j in range(removed[level - 1], removed[level]):
                for s in range(size):
                    slowest[s] = max(slowest[s], times[j, s])
            out[level] = _wait(round_time[level], slowest) + work[: removed[level]].sum()
