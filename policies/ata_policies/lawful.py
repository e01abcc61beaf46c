"""The expected cost of a round itself: a learner of whole laws that minimises it, and the oracle that knows them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.concave import allocate_by_cost
from ata_gym.planning import due, simulate
from ata_gym.priced import best_allocation, beta_candidates
from ata_gym.simulation import Floats, Ints
from ata_policies.beliefs import Moments
from ata_policies.laws import LawBelief, sample
from ata_policies.policy import AllocationPolicy, Observation, Setting, State
from ata_policies.shapes import learn_shapes
from ata_policies.thompson import draw_means

_ROUGH, _FINE, _EARLY = 64, 256, 500
"""Slices of a law and rounds played with a candidate: to screen and before round 500, and later."""
_GAIN = 0.08
"""A candidate must gain this part of the cost / sqrt(rounds played): less may be luck."""
_STEPS = 8
_BUSIEST, _SLOWEST, _SOONEST, _IDLE, _KEPT = 5, 3, 6, 4, 12
_MARGIN = 0.02
_LEAST, _MOST = 1e-2, 1e2


class Plan(NamedTuple):
    """What turns draws of the means into an allocation, for E rows."""

    factor: Floats
    """(E, n) multiplies the costs of a worker's tasks."""
    solved: Ints
    """(E,) the round in which it was made; 0 before the first."""


class Solution(NamedTuple):
    """What a search found, for n workers."""

    allocation: Ints
    """(n,)"""
    useful: Floats
    """(n,) the share of its task times at which an idle worker would be worth a task; 1 where it has one."""


def search(times: Floats, spread: Floats, budget: int, price: float) -> Solution:
    """Search for the allocation of least round time + price * worker time, by simulation on sampled task times.

    First the beta rule on the m fastest workers, for several m and beta; then single tasks move, while that gains: away
    from the workers that a round is likely to wait for, or the slowest, and to those that are done soonest, or idle.

    When would an idle worker be useful? The cost is taken as linear between its task times and times of 0; it is
    convex, so the share is rather too small. Workers too slow to be tried would be useful where they are as fast as
    those that were.

    Parameters
    ----------
    times
        (n, S) equally likely task times of each worker.
    spread
        (n,) beta standard deviations of a task time, by which the search begins and orders the workers.
    budget, price
        The setting's.

    Examples
    --------
    Two tasks of the first worker take 20, one of each takes 24, and 10 if the other took no time: 10 = (24 - 10) 0.71.

    >>> times = np.array([[9.0, 10.0, 11.0], [22.0, 24.0, 26.0]])
    >>> found = search(times, times.std(axis=1), budget=2, price=0.0)
    >>> found.allocation, found.useful.round(2)
    (array([2, 0]), array([1.  , 0.71]))
    """
    n, size = times.shape
    mean, enough = times.mean(axis=1), 1.0 - _GAIN / size**0.5
    order = np.argsort(mean, kind="stable")
    with_free = np.concatenate([times, np.zeros((1, size))])  # and a worker that needs no time
    best = allocate_by_cost(mean, spread, budget)
    value = simulate(times, best[None], budget, size).total(price).min()
    candidates = beta_candidates(mean, times.std(axis=1), budget)
    for step in range(_STEPS):
        values = simulate(times, candidates, budget, size).total(price)
        if values.min() < value * enough:
            best, value = candidates[values.argmin()], values.min()
        elif step > 0:
            break
        own, more = (tasks * mean + spread * np.sqrt(tasks) for tasks in (best, best + 1))
        used, idle = np.flatnonzero(best), order[best[order] == 0][:_IDLE]
        late = [used[np.argsort(-by[used], kind="stable")[:most]] for by, most in ((own, _BUSIEST), (mean, _SLOWEST))]
        soon = used[np.argsort(more[used], kind="stable")[:_SOONEST]]
        moves = _moves(np.append(best, 0), np.unique(np.concatenate(late)), np.concatenate([soon, idle, [n]]))
        rough = simulate(with_free, moves.reshape(-1, n + 1), budget, _ROUGH).total(price).reshape(moves.shape[:2])
        order_of_moves = np.argsort(rough[:, :-1], axis=None, kind="stable")[:_KEPT]
        candidates = moves[:, :-1, :n].reshape(-1, n)[order_of_moves]
    useful = np.ones(n)
    if idle.size:
        now = simulate(times, best[None], budget, _ROUGH).total(price)
        free = rough[:, -1:]
        gained, cost = np.maximum(now - free, 0.0), np.maximum(rough[:, soon.size : -1] - free, 1e-300)
        useful[idle] = np.minimum(gained / cost, 1.0).max(axis=0)
        others = order[best[order] == 0][_IDLE:]
        useful[others] = (useful[idle] * mean[idle]).max() / np.maximum(mean[others], 1e-300)
    return Solution(best, useful)


def _moves(allocation: Ints, givers: Ints, takers: Ints) -> Ints:
    """One task moved from each giver to each taker, shape (givers, takers, n)."""
    moves = np.tile(allocation, (givers.size, takers.size, 1))
    moves[np.arange(givers.size), :, givers] -= 1
    moves[:, np.arange(takers.size), takers] += 1
    return moves


def correct(solution: Solution, mean: Floats, spread: Floats, budget: int) -> Floats:
    """Factors on the workers' costs with which the beta rule gives the allocation found, shape (n,).

    Worker i's j-th task costs f_i (j mean_i + spread_i sqrt(j)). There is a level that all tasks handed out stay below
    and all others exceed, by 2 % at least; f_i is the nearest to 1 that does it. An idle worker's first task reaches
    the level where the worker is fast enough to be useful.

    >>> mean, spread = np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.0, 2.0])
    >>> solution = Solution(np.array([5, 1, 0]), np.array([1.0, 1.0, 0.5]))
    >>> factor = correct(solution, mean, spread, 6)
    >>> allocate_by_cost(mean, spread, 6), allocate_by_cost(factor * mean, factor * spread, 6)
    (array([4, 2, 0]), array([5, 1, 0]))
    """
    tasks, tiny = solution.allocation, 1e-300
    used = tasks > 0
    own, more = (a * mean + spread * np.sqrt(a) for a in (tasks, tasks + 1))
    level = 0.5 * (own[used].max() + more[used].min())
    factor = np.ones(len(mean))
    if (tasks != allocate_by_cost(mean, spread, budget)).any():
        below, above = level * (1.0 - _MARGIN) / np.maximum(own, tiny), level * (1.0 + _MARGIN) / np.maximum(more, tiny)
        factor = np.maximum(np.minimum(factor, below), above)
    at_use = level / np.maximum(more * np.maximum(solution.useful, _LEAST), tiny)
    corrected: Floats = np.clip(np.where(used, factor, at_use), _LEAST, _MOST)
    return corrected


class Lawful(AllocationPolicy):
    """Learns each worker's whole law and minimises the expected round time + price * worker time itself. Ours.

    Its belief counts task times in bins (``LawBelief``). Whenever a plan is ``due`` (the rounds have grown by 1.15) it
    samples the laws and searches for the best allocation by playing rounds with them (``search``). The plan is kept as
    factors f_i on the costs of the beta rule (``correct``), so that between the searches each round can explore: with
    means m_i and shapes c_i drawn and learned as in ``thompson-gamma``, worker i's j-th task costs

        f_i (j m_i + 1.5 m_i sqrt(j / c_i)),

    and the B cheapest tasks are handed out. For expected means that is the allocation found; an idle worker gets a task
    where its draw is small enough to make it useful.

    A search costs some 8 ms per row, and they come 25 times in 2,000 rounds and 67 times in 750,000. So with 51 workers
    and 8 rows a round costs 25 times ATA's on average over 2,000 rounds, 10 times over 10,000, and 3 times in the long
    run. With hundreds of workers it stays above 10 times: their laws are copied every round.

    Parameters
    ----------
    weight
        Tasks that the other workers' shapes count for in a worker's own, above 0.
    """

    source = "ours"
    constants = "beta 1.5, weight 5, plans at rounds growing by 1.15"
    assumes = "task times do not depend on each other; finite means"
    priced = True
    beta = 1.5

    def __init__(self, setting: Setting, *, weight: float = 5.0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        if not 0.0 < weight < np.inf:
            raise ValueError(f"weight must be a finite number above 0, not {weight!r}")
        self.weight = float(weight)

    def first_belief(self, rows: int) -> LawBelief:
        """Whole laws."""
        return LawBelief.empty(rows, self.setting.n)

    def first_plan(self, rows: int) -> Plan:
        """The beta rule as it is."""
        return Plan(np.ones((rows, self.setting.n)), np.zeros(rows, np.int64))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Make the plan again where it is due, then allocate."""
        del seen
        again = np.flatnonzero(due(state.round, state.plan.solved))
        if again.size:
            factor, solved = state.plan.factor.copy(), state.plan.solved.copy()
            for e in again.tolist():
                factor[e], solved[e] = self._solve(state.belief.rows([e]), int(state.round[e])), state.round[e]
            state = state._replace(plan=Plan(factor, solved))
        return self.allocate(state), state

    def _solve(self, belief: LawBelief, round: int) -> Floats:
        """The factors of a row, shape (n,); 1 for workers never tried."""
        factor = np.ones(self.setting.n)
        tried = ~belief.untried()[0]
        if tried.any():
            times = sample(belief, _ROUGH if round < _EARLY else _FINE)[0, tried]
            mean = times.mean(axis=1)
            spread = self.beta * mean / np.sqrt(self._shapes(belief)[0, tried])
            solution = search(times, spread, self.setting.budget, self.setting.price)
            factor[tried] = correct(solution, mean, spread, self.setting.budget)
        return factor

    def _shapes(self, belief: LawBelief) -> Floats:
        return learn_shapes(Moments(belief.counts, belief.busy, belief.squares), self.weight)

    def allocate(self, state: State) -> Ints:
        """Draw the means, and allocate by the costs of the plan."""
        belief, keys, shapes = state.belief, state.round_keys(), self._shapes(state.belief)
        means = draw_means(belief.counts, belief.busy, shapes, keys) * state.plan.factor
        spread = self.beta * means / np.sqrt(shapes)
        return allocate_by_cost(means, spread, self.setting.budget, keys, belief.untried())


class Oracle(AllocationPolicy):
    """The fixed allocation of least expected round time + price * worker time, by branch and bound. Ours.

    A learner's yardstick among policies that allocate exactly B tasks before the round; see
    ``ata_gym.priced.best_allocation`` for how exact it is. It knows the laws.
    """

    source = "ours"
    constants = "none"
    knows = "the laws"
    assumes = "task times do not depend on each other"
    priced = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        if setting.pool is None:
            raise ValueError("the oracle knows the workers' laws: it needs an env whose pool is known")
        self.fixed = best_allocation(setting.pool, setting.budget, setting.price).allocation

    def allocate(self, state: State) -> Ints:
        """The same allocation in every row."""
        return np.tile(self.fixed, (len(state.round), 1))
