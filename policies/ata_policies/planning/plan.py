"""Plans in five steps.

What is known, where to search, the search, who is tried, and when the next plan is due.
"""

from typing import Any, NamedTuple

import numpy as np

from ata_gym.theory.allocation.beta_rule import beta_kernel
from ata_gym.typing import Floats, Ints, Mask
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.retries import first_of
from ata_policies.beliefs.moments import LatencyBelief
from ata_policies.planning.exploration import explore
from ata_policies.planning.knowledge import Candidates, choose_candidates, learn_rows
from ata_policies.planning.local_search import MOVES, SearchResult, local_search

# the least number of workers of the second start, as a share of the workers in use so far
_LEAST_SHARE = 0.4
_LONGEST = 0.2  # the longest time between two plans, as a part of the rounds that count
# the next plan is made after this part of the rounds in which a worker becomes known much better
_TRIAL_PART = 0.25


class Problem(NamedTuple):
    """What the plans of E rows are made for."""

    budget: int
    prices: Floats
    """(n,) what a unit of each worker's time costs."""
    usual_price: float
    """The median of the prices, which counts where no particular worker is meant."""
    weight: float
    """Tasks that the other workers' shapes count for in a worker's own."""
    rounds_left: Floats
    """(E,) for how many rounds things stay as they are."""
    memory: Floats
    """(E,) how many rounds count."""
    awaited: Mask
    """(E, n) workers whose last trial is not known yet: they are not tried meanwhile."""


def make_plans(
    belief: DistributionBelief,
    latency: LatencyBelief,
    rows: Any,
    available: Mask,
    probes: Mask,
    last: Ints,
    problem: Problem,
    draws: Floats,
) -> tuple[Ints, Ints, Ints]:
    """Plan for some rows of a belief.

    Args:
        belief: What has been learned, of all rows.
        latency: What has been learned of latencies, of all rows.
        rows: The E rows to plan for.
        available: (E, n) the workers that may get tasks; at least one of each row has a result.
        probes: (E, n) workers that get a task each, except that the workers in use get at least
            half of the tasks.
        last: (E, n) the best allocation of the last plan, from which the search begins.
        problem: What the plans are made for.
        draws: (E, n + 2) uniform from 0 to 1.

    Returns:
        The tasks, (E, n); the best allocation, without the tasks that are done for the sake of
        learning, (E, n); and the number of rounds between the next round and the next plan, (E,).
    """
    knowledge = learn_rows(belief, latency, rows, problem.weight)
    candidates = choose_candidates(knowledge, available, last, problem.budget)
    result = search(candidates, last, problem.budget, problem.prices, draws[:, 0])
    allocation, rounds = explore(
        knowledge,
        candidates,
        result,
        available & ~problem.awaited,
        problem.prices,
        problem.usual_price,
        problem.rounds_left,
        draws[:, 2:],
    )
    # half to all of the longest time between two plans, but less where a worker, tried or in use,
    # is hardly known
    longest = _LONGEST * problem.memory * (1.0 + draws[:, 1]) / 2.0
    pause = np.minimum(longest, _TRIAL_PART * rounds)
    # a search that was cut short goes on in the next round
    pause = np.where(result.moves < MOVES, np.maximum(pause.astype(np.int64) - 1, 0), 0)
    probed = probes & available & ~problem.awaited & (allocation == 0)
    for e in np.flatnonzero(probed.any(axis=1)):
        pause[e] = 0
        _probe(
            allocation[e],
            knowledge.next_mean()[e],
            knowledge.latencies.mean[e],
            np.flatnonzero(probed[e])[: (problem.budget + 1) // 2],
        )
    return allocation, candidates.members.scatter(result.allocation), pause


def search(
    candidates: Candidates, last: Ints, budget: int, prices: Floats, draw: Floats
) -> SearchResult:
    """Search from the last allocation, and from the beta rule on the k fastest workers.

    The better result is returned. The number k is drawn, from 0.4 to 1.4 times the workers in use.
    Where there is no last allocation, the search begins from the beta rule on all workers.

    Args:
        candidates: The workers that may get tasks.
        last: (E, n) the allocation of the last plan.
        budget: Tasks to share out.
        prices: (n,) what a unit of each worker's time costs.
        draw: (E,) uniform from 0 to 1, by which k is drawn.
    """
    members = candidates.members
    start = members.take(last) * members.present
    # the last allocation is a start only if all its workers are still there
    begun = start.sum(axis=1) == budget
    used = np.count_nonzero(start, axis=1)
    number = np.count_nonzero(members.present, axis=1)
    fastest = np.minimum((used * (_LEAST_SHARE + draw)).astype(np.int64) + 1, number)
    scores = np.where(members.present, candidates.mean_latency + candidates.mean, np.inf)
    fast = first_of(scores, np.where(begun, fastest, number))
    # the beta rule gives no task where the mean is infinite
    nobody = np.zeros(fast.shape, np.bool_)
    by_rule = beta_kernel(
        np.where(fast, candidates.mean, np.inf),
        candidates.spread,
        candidates.mean_latency,
        budget,
        nobody,
        np.zeros(fast.shape),
    )
    starts = np.stack([np.where(begun[:, None], start, by_rule), by_rule], axis=1)
    return local_search(
        candidates.times,
        starts,
        prices[members.workers],
        latency=candidates.latency,
        doubt=candidates.doubt,
    )


def _probe(allocation: Ints, mean: Floats, latency: Floats, probed: Ints) -> None:
    """Give each ``probed`` worker of a row a task of the worker that needs the longest time."""
    for worker in probed:
        time = np.where(allocation > 0, latency + allocation * mean, -1.0)
        # a task that was just given to a probed worker stays with it
        time[probed] = -1.0
        allocation[np.argmax(time)] -= 1
        allocation[worker] += 1
