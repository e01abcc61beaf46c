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
from ata_gym.utils.compiled import inlined, kernel
from ata_policies.beliefs.distributions.retries import first_of, smallest
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
from ata_policies.planning.trial_choice import TrialTimes, choose_trial, tasks_to_know

# the stream of keys for the possible times of trials: no other use of ``permutations`` has it
_TRIAL_TIMES = 4
_shuffled = lru_cache(maxsize=16)(permutations)
# workers that are considered closely, the ones with the least optimistic means: so many for each
# task of the budget, within these limits
_CONSIDERED_PER_TASK = 4
_LEAST_CONSIDERED = 64
_MOST_CONSIDERED = 256
# an optimistic mean is so many standard deviations below the expected logarithm of the mean
_OPTIMISM = 2.0
# where what is known of a prospect is noted, see ``_Prospects``
_VALUE = 0
_SHARE = 1
_TASKS = 2


class _Prospects(NamedTuple):
    """The workers that are considered closely: j at most; a row with fewer is filled up.

    They come in the order of their value over the expected time of a task, greatest first.
    """

    number: Ints
    """(E,) how many places hold such a worker; these come first."""
    workers: Ints
    """(E, j) their indices."""
    value: Floats
    """(E, j) what a worker could gain per round, for each of its ``tasks`` if it is not young."""
    share: Floats
    """(E, j) the share of a task in all of them if it is young, else 1."""
    tasks: Floats
    """(E, j) how many tasks tell what a worker is worth, at least 1."""


def explore(
    knowledge: Knowledge,
    candidates: Candidates,
    result: SearchResult,
    available: Mask,
    prices: Floats,
    usual_price: float,
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
    tried B are considered.

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
        usual_price: The price where no particular worker is meant.
        rounds_left: (E,) the number N of rounds to come.
        draws: (E, n) uniform from 0 to 1.

    Returns:
        The allocation with these tasks, (E, n), and after how many rounds one of the tried workers,
        or of the workers in use, is known much better, (E,).
    """
    members = candidates.members
    used = members.scatter(result.allocation) > 0
    untried = available & (knowledge.estimates.evidence == 0.0)
    budget = np.int64(result.allocation[0].sum())
    # of the workers never tried, nothing tells one from another: B of them, at random
    sampled = first_of(np.where(untried, draws, np.inf), budget)
    number = sampled.sum(axis=1)
    candidate_prices = prices[members.workers]
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
    prospects = _prospects(knowledge, reduced, idle, draws, is_idle=True)
    by_use = _prospects(knowledge, reduced, used, draws, is_idle=False)
    joint_gain = np.zeros(len(number))
    for row in np.flatnonzero(number > 1).tolist():
        joint_gain[row] = gain_together(
            knowledge, candidates, result, candidate_prices, usual_price, untried[row], row
        )
    most = min(int(budget), _MOST_CONSIDERED)
    size = candidates.times.shape[2]
    drawn = TrialTimes(
        knowledge.posterior.location + knowledge.start.coming,
        knowledge.posterior.spread,
        knowledge.latencies.mean,
        prices,
        members.place,
        candidates.shapes,
        knowledge.latencies.shape,
        _quantiles(size),
        _shuffled(_TRIAL_TIMES, 3 * most, size),
    )
    allocation, rounds = choose_trial(
        reduced.removed,
        reduced.round_time,
        reduced.cost,
        reduced.allocation,
        members.workers,
        *prospects,
        by_use.value,
        untried,
        knowledge.shapes,
        *drawn,
        number,
        joint_gain,
        rounds_left,
    )
    return allocation, rounds


def gain_together(
    knowledge: Knowledge,
    candidates: Candidates,
    result: SearchResult,
    candidate_prices: Floats,
    usual_price: float,
    untried: Mask,
    row: int,
) -> float:
    """Return what workers never tried would gain together per round, if all were known.

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
    return float(max(result.cost[row] - joint_search.cost, 0.0))


def _prospects(
    knowledge: Knowledge,
    reduced: Reduced,
    considered: Mask,
    draws: Floats,
    *,
    is_idle: bool,
) -> _Prospects:
    """Value the ``considered`` workers, (E, n), which are idle or in use; see ``explore``."""
    budget = int(reduced.removed[-1])
    closely = min(max(_CONSIDERED_PER_TASK * budget, _LEAST_CONSIDERED), _MOST_CONSIDERED)
    most = min(int(np.count_nonzero(considered, axis=1).max(initial=1)), closely)
    workers = np.empty((len(considered), most), np.int64)
    posterior = knowledge.posterior
    number, location, evidence, late, lost = _fill_considered(
        considered,
        posterior.location,
        posterior.spread,
        *knowledge.estimates,
        knowledge.latencies.spread,
        knowledge.start.tasks,
        draws,
        workers,
    )
    # idle since its next tasks are slow, whatever its mean is later
    young = (lost > 0.0) & is_idle
    # axes (E, k, j) for each number k of tasks above 0
    limit = knowledge.latencies.at_workers(reduced.limit[:, 1:], workers)
    least = knowledge.latencies.at_workers(reduced.least[:, 1:], workers)
    estimates = Estimates(location, evidence)
    values = _values(knowledge, estimates, late, reduced.removed[1:], limit, young)
    ordered = _by_value(
        reduced.cost[:, 0],
        limit,
        least,
        values,
        workers,
        number,
        young,
        *posterior,
        knowledge.shapes,
        knowledge.start.coming,
        knowledge.start.tasks,
        draws,
    )
    return _Prospects(number, *ordered)


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


@lru_cache(maxsize=4)
def _quantiles(size: int) -> Floats:
    """Return equally likely values of the normal distribution, (size,), in increasing order."""
    return np.asarray(ndtri((np.arange(size) + 0.5) / size))


@inlined
def _optimistic(location: float, spread: float) -> float:
    """Return the logarithm of an optimistic mean, by which workers are considered closely."""
    return location - _OPTIMISM * spread


@inlined
def _is_before(rank: Floats, other: Floats) -> bool:
    """Return whether three numbers, of which the first one counts most, are before three others."""
    k = 0
    while k < 2 and rank[k] == other[k]:
        k += 1
    before: bool = rank[k] < other[k]
    return before


@kernel("(n),(n),(n),(n),(n),(n),(n),(n),(j)->(),(j),(j),(j),(j)", (8,))
def _fill_considered(
    considered: Mask,
    location: Floats,
    spread: Floats,
    own_location: Floats,
    own_evidence: Floats,
    late: Floats,
    lost: Floats,
    draws: Floats,
    workers: Ints,
    number: Ints,
    worker_location: Floats,
    worker_evidence: Floats,
    worker_late: Floats,
    worker_lost: Floats,
) -> None:
    """Fill in the considered workers, the most optimistic ones of them, and their number.

    Of equal ones those with the least ``draws`` are taken. The last outputs are what their own
    times say, see ``Estimates``, how their latencies spread, and the tasks that they lose.
    """
    size = len(location)
    values = np.empty(size)
    count = 0
    for i in range(size):
        if considered[i]:
            values[count] = _optimistic(location[i], spread[i])
            count += 1
    threshold = math.inf
    last_draw = math.inf
    if count > len(workers):
        threshold = smallest(values[:count], len(workers) - 1)
        room = len(workers)
        ties = 0
        for i in range(size):
            if considered[i]:
                value = _optimistic(location[i], spread[i])
                room -= value < threshold
                if value == threshold:
                    values[ties] = draws[i]
                    ties += 1
        last_draw = smallest(values[:ties], room - 1)
    number[0] = 0
    for i in range(size):
        if considered[i] and number[0] < len(workers):
            value = _optimistic(location[i], spread[i])
            if value < threshold or (value == threshold and draws[i] <= last_draw):
                workers[number[0]] = i
                number[0] += 1
    workers[number[0] :] = 0
    for p in range(len(workers)):
        worker_location[p] = own_location[workers[p]]
        worker_evidence[p] = own_evidence[workers[p]]
        worker_late[p] = late[workers[p]]
        worker_lost[p] = lost[workers[p]]


@kernel("(),(l,j),(l,j),(l,j),(j),(),(j),(n),(n),(n),(n),(n),(n),(n)->(j),(j),(j),(j)")
def _by_value(
    cost: Floats,
    limit: Floats,
    least: Floats,
    values: Floats,
    considered: Ints,
    number: Ints,
    young: Mask,
    location: Floats,
    spread: Floats,
    mean: Floats,
    shapes: Floats,
    coming: Floats,
    lost: Floats,
    draws: Floats,
    workers: Ints,
    value: Floats,
    share: Floats,
    tasks: Floats,
) -> None:
    """Fill in the fields of ``_Prospects``; see ``explore`` for the formulas.

    Up to ``young`` arrays are over numbers k of tasks and the ``number`` of workers in
    ``considered``, the others over all workers.
    """
    count = number[0]
    size = len(considered)
    order = np.empty(size, np.int64)
    # by what workers are ordered: what comes first decides
    rank = np.empty((size, 3))
    found = np.empty((size, 3))
    for p in range(size):
        workers[p] = 0
        value[p] = 0.0
        share[p] = tasks[p] = 1.0
    for p in range(count):
        i = considered[p]
        best = 0.0
        gain = 0.0
        needed = 1.0
        for level in range(len(limit)):
            level_gain = (cost[0] - least[level, p]) * values[level, p]
            if level_gain > 0.0 and limit[level, p] > 0.0:
                ratio = max(mean[i] / limit[level, p], 1.0)
                level_needed = tasks_to_know(shapes[i], spread[i], ratio)
                if young[p]:
                    # the tasks that are lost come first, and those that tell are short
                    level_needed = max(lost[i] + level_needed * math.exp(-coming[i]), 1.0)
                if level_gain / level_needed > best:
                    best = level_gain / level_needed
                    gain = level_gain
                    needed = level_needed
        if young[p]:
            found[p, _VALUE] = gain
            found[p, _SHARE] = 1.0 / needed
        else:
            found[p, _VALUE] = best
            found[p, _SHARE] = 1.0
        found[p, _TASKS] = needed
        next_mean = mean[i] * math.exp(coming[i])
        rank[p, 0] = -found[p, _VALUE] * found[p, _SHARE] / next_mean
        rank[p, 1] = _optimistic(location[i], spread[i])
        rank[p, 2] = draws[i]
        # sorted by insertion
        place = p
        while place > 0 and _is_before(rank[p], rank[order[place - 1]]):
            order[place] = order[place - 1]
            place -= 1
        order[place] = p
    for p in range(count):
        workers[p] = considered[order[p]]
        value[p] = found[order[p], _VALUE]
        share[p] = found[order[p], _SHARE]
        tasks[p] = found[order[p], _TASKS]
