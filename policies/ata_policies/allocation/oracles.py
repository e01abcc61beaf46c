"""Oracles: the allocation of least cost where the distributions are known, for good or for the coming round."""

from abc import abstractmethod
from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.changes import Conditions
from ata_gym.pools import Pool
from ata_gym.pools.validation import checked_costs
from ata_gym.theory.allocation.proxy_loss import allocate_scores
from ata_gym.theory.optimal.allocation import optimal_allocation
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.ranges import Tasks, Unending, Within
from ata_gym.utils.validation import non_negative
from ata_policies.allocation.baselines import Ofta
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State
from ata_policies.setting import Setting


class DynamicPlan(NamedTuple):
    """The allocation in use, and the conditions that it was made for; each of shape (E, n)."""

    distribution: Annotated[Ints, Within(-1)]  # whose distribution in the pool it had; -1 before the first round
    factor: Unending  # what multiplied its task times
    mean: Unending  # its mean task time, or median where all means are infinite; infinite where it was away
    allocation: Tasks  # tasks


class DynamicAllocation(Policy):
    """Plans a row again whenever its conditions have changed: what oracles of each round's conditions have in common.

    It sees whose distribution each worker has, its factor, who is away when the round starts, and of a trace that is
    replayed by round the times of the round. It does not see what is random in the round: noise in common, which tasks
    are outliers, and who will die.

    Where nobody who is there has a finite mean, the median task times take the place of the means. A pool in which all
    means are infinite is refused.

    - ``tolerance``: a plan is kept while no worker's mean task time differs by more than this share from the one that
      it was made for. Where speeds drift, that saves most of the searches.
    """

    source = "ours"
    constants = "none"
    nonstationary = True
    privileged = True

    def __init__(self, setting: Setting, *, tolerance: float = 0.0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.pool = setting.known_pool("a dynamic oracle", dynamic=True)
        if not np.isfinite(self.pool.mean()).any():
            raise ValueError(
                "every worker of this pool has an infinite mean task time, and a dynamic oracle goes by the means: "
                "play a policy that learns"
            )
        self.tolerance = non_negative("tolerance", tolerance)

    def first_plan(self, rows: int) -> DynamicPlan:
        shape = (rows, self.setting.n)
        return DynamicPlan(np.full(shape, -1), np.ones(shape), np.ones(shape), np.zeros(shape, np.int64))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        raise TypeError("a dynamic oracle acts on privileged information: call act_knowing")

    def act_knowing(self, state: State, seen: Observation, conditions: Conditions) -> tuple[Ints, State]:
        mean = self._means(conditions)
        plan: DynamicPlan = state.plan
        others = (plan.distribution != conditions.distribution) | (np.isinf(plan.mean) != np.isinf(mean))
        others |= self._far(plan.factor, conditions.factor) | self._far(plan.mean, mean)
        again = np.flatnonzero(others.any(axis=1) | ~self.legal(plan.allocation.sum(axis=1)))
        if again.size:
            plan = DynamicPlan._make(part.copy() for part in plan)
            now = conditions.distribution[again], conditions.factor[again], mean[again]
            plan.distribution[again], plan.factor[again], plan.mean[again] = now
            for e in again.tolist():
                plan.allocation[e] = self.plan(conditions.row(e), mean[e])
        return plan.allocation.copy(), state._replace(plan=plan)

    def last_action(self, state: State) -> Ints:
        return np.asarray(state.plan.allocation)

    def _means(self, conditions: Conditions) -> Floats:
        """What a plan goes by, (E, n): the means, infinite for workers that are away, or else the medians."""
        mean = conditions.means(self.pool)
        endless = ~np.isfinite(mean).any(axis=1, keepdims=True) & (conditions.dies > 0.0)
        if endless.any():
            mean = np.where(endless, self.pool.median()[conditions.distribution] * conditions.factor, mean)
        return mean

    def _far(self, planned: Floats, now: Floats) -> Mask:
        return np.asarray((now != planned) & ~(np.abs(now - planned) <= self.tolerance * planned))

    def legal(self, tasks: Ints) -> Mask:
        """Whether an allocation may have so many tasks; the first plan has none."""
        return np.equal(tasks, self.setting.budget)

    @abstractmethod
    def plan(self, now: Conditions, mean: Floats) -> Ints:
        """The best allocation of a row under these conditions with these means, shape (n,)."""


class DynamicOfta(DynamicAllocation):
    """OFTA of the current means: minimises the proxy loss max a_i mu_i under the means of the coming round. Ours.

    Workers that are away get nothing. Where nothing changes it is OFTA; on a trace that is replayed by round it knows
    the times of the coming round, and is the best allocation in hindsight.
    """

    knows = "the means, of each round"

    def plan(self, now: Conditions, mean: Floats) -> Ints:
        return allocate_scores(mean, self.setting.budget)


class DynamicOracle(DynamicAllocation):
    """Minimises expected round time + price * worker time under the distributions of the coming round. Ours.

    It is found by branch and bound; see ``optimal_allocation`` for how exact it is. Noise in common and outliers are
    left out. Workers that are away get nothing. A search takes up to seconds, and serves all rounds in which the
    workers have the same distributions and factors in any order; with factors that are new in each round, and no
    tolerance, a round costs a search.
    """

    knows = "the distributions, of each round"
    priced = tells_costs = True

    def plan(self, now: Conditions, mean: Floats) -> Ints:
        """Search for the best allocation of those who are there, in a common order: a kept result serves all orders."""
        setting, costs = self.setting, checked_costs(self.setting.unit_costs, self.setting.n)
        order = np.lexsort((costs, now.factor, now.distribution))
        order = order[now.dies[order] > 0.0]
        there = now._replace(distribution=now.distribution[order], factor=now.factor[order], share=0.0)
        allocation = np.zeros(len(now.distribution), np.int64)
        own, pool = tuple(costs[order].tolist()), there.pool(self.pool)
        if not np.isfinite(pool.mean()).any():
            return allocate_scores(mean, setting.budget)
        allocation[order] = _best(pool, setting.budget, setting.price, own)
        return allocation


@lru_cache(maxsize=1024)
def _best(pool: Pool, budget: int, price: float, unit_costs: tuple[float, ...]) -> Ints:
    return optimal_allocation(pool, budget, price, unit_costs).allocation


class Oracle(Ofta):
    """The fixed allocation of least expected round time + price * worker time, by branch and bound. Ours.

    See ``ata_gym.optimal_allocation`` for how exact it is.
    """

    source = "ours"
    knows = "the distributions"
    assumes = "task times do not depend on each other"
    priced = tells_costs = True

    def best(self) -> Ints:
        setting = self.setting
        pool = setting.known_pool("the oracle")
        return optimal_allocation(pool, setting.budget, setting.price, setting.unit_costs).allocation
