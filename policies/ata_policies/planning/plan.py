"""A plan in five steps: what is known, where to search, the search, who is tried, and when the next one is due."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.planning.exploration import Trials, explore
from ata_policies.planning.knowledge import choose_candidates, learn_row
from ata_policies.planning.local_search import MOVES, search

_LONGEST = 0.2  # the longest time between two plans, as a part of the rounds that count
_TRIAL_PART = 0.25  # the next plan is made after this part of the rounds in which a worker becomes known much better


class Problem(NamedTuple):
    """What a plan is made for."""

    budget: int
    price: float
    weight: float  # tasks that the other workers' shapes count for in a worker's own
    rounds_left: float  # for how many rounds things stay as they are
    memory: float  # how many rounds count


class Plan(NamedTuple):
    """What n workers do until the next plan."""

    allocation: Ints  # (n,) tasks
    best: Ints  # (n,) the tasks without what is done for the sake of learning
    pause: int  # rounds between the next one and the next plan


def make_plan(
    belief: DistributionBelief, row: int, there: Mask, probes: Mask, last: Ints, problem: Problem, draws: Floats
) -> Plan:
    """Plan for the workers of a row that are ``there``, (n,), at least one of which has a result.

    Of these, workers of the ``probes``, (n,), get a task, except that those in use get at least half of the tasks.
    The search begins from ``last``, (n,), the best allocation of the last plan. The ``draws``, (n + 2,), are uniform
    from 0 to 1.
    """
    known = learn_row(belief.rows(slice(row, row + 1)), problem.weight)
    candidates = choose_candidates(known, there, last, problem.budget)
    found = search(candidates, last[candidates.workers], problem.budget, problem.price, draws[0])
    trials = explore(known, candidates, found, there, problem.price, problem.rounds_left, draws[2:])
    best, allocation = np.zeros_like(last), trials.allocation.copy()
    best[candidates.workers] = found.allocation
    allocation[trials.workers] += 1
    probed = np.flatnonzero(probes & there & (allocation == 0))[: (problem.budget + 1) // 2]
    if probed.size:
        return Plan(_with_probes(allocation, known.posterior.mean(), probed), best, 0)
    return Plan(allocation, best, _pause(trials, problem.memory, draws[1]) if found.moves < MOVES else 0)


def _with_probes(allocation: Ints, mean: Floats, probed: Ints) -> Ints:
    """The allocation (n,), in which each worker ``probed`` does one task of those that would take longest."""
    for worker in probed:
        time = np.where(allocation > 0, allocation * mean, -1.0)
        time[probed] = -1.0
        allocation[np.argmax(time)] -= 1
        allocation[worker] += 1
    return allocation


def _pause(trials: Trials, memory: float, draw: float) -> int:
    """Half to all of the longest time between two plans, but less where a worker, tried or in use, is hardly known."""
    pause = _LONGEST * memory * (1.0 + draw) / 2.0
    return max(int(min(pause, _TRIAL_PART * trials.rounds)) - 1, 0)
