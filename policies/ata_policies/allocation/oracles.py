"""Oracles: the allocation of least cost where the distributions are known.

They are known for the whole episode, or for the coming round.
"""

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
from ata_gym.utils.ranges import NonNegative, Tasks, Within
from ata_gym.utils.validation import non_negative
from ata_policies.allocation.baselines import Ofta
from ata_policies.beliefs.moments import Totals
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State
from ata_policies.setting import Setting


class DynamicPlan(NamedTuple):
    """The allocation in use, and the conditions that it was made for; each of shape (E, n)."""

    distribution: Annotated[Ints, Within(-1)]
    """Whose distribution in the pool it had; -1 before the first round."""
    factor: NonNegative
    """What multiplied its task times."""
    mean: NonNegative
    """Its mean task time, or median where all means are infinite; infinite where it was away."""
    latency: NonNegative
    """Its mean latency."""
    allocation: Tasks
    """Tasks."""


class DynamicAllocation(Policy[Totals, DynamicPlan]):
    """Plans a row again whenever its conditions have changed: the base of dynamic oracles.

    It sees whose distribution each worker has, its factor, and who is away when the round starts.
    Of a trace that is replayed by round, it sees the times of the round. It does not see what is
    random in the round: noise in common, which tasks are outliers, latencies, and who will die. Of
    latencies it sees the distributions.

    Where no worker that is there has a finite mean, the median task times take the place of the
    means. A pool in which all means are infinite is refused.

    Args:
        tolerance: A plan is kept while no worker's mean task time differs by more than this share
            from the one that it was made for. Where speeds drift, that saves most of the searches.
    """

    source = "ours"
    constants = "none"
    nonstationary = True
    privileged = True
    uses_latency = True

    def __init__(self, setting: Setting, *, tolerance: float = 0.0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.pool = setting.known_pool("a dynamic oracle", dynamic=True)
        if not np.isfinite(self.pool.mean()).any():
            raise ValueError(
                "every worker of this pool has an infinite mean task time, and a dynamic oracle"
                " goes by the means: play a policy that learns",
            )
        self.tolerance = non_negative("tolerance", tolerance)

    def first_plan(self, rows: int) -> DynamicPlan:
        shape = (rows, self.setting.n)
        return DynamicPlan(
            np.full(shape, -1),
            np.ones(shape),
            np.ones(shape),
            np.zeros(shape),
            np.zeros(shape, np.int64),
        )

    def act(
        self, state: State[Totals, DynamicPlan], observation: Observation
    ) -> tuple[Ints, State[Totals, DynamicPlan]]:
        raise TypeError("a dynamic oracle acts on privileged information: call act_knowing")

    def act_knowing(
        self,
        state: State[Totals, DynamicPlan],
        observation: Observation,
        conditions: Conditions,
    ) -> tuple[Ints, State[Totals, DynamicPlan]]:
        mean = self._means(conditions)
        latency = conditions.mean_latency(self.pool)
        plan = state.plan
        changed = (plan.distribution != conditions.distribution) | (
            np.isinf(plan.mean) != np.isinf(mean)
        )
        changed |= self._far(plan.factor, conditions.factor) | self._far(plan.mean, mean)
        changed |= self._far(plan.latency, latency)
        rows = np.flatnonzero(changed.any(axis=1) | ~self.legal(plan.allocation.sum(axis=1)))
        if rows.size:
            # The caller may still have the state of before.
            plan = DynamicPlan._make(part.copy() for part in plan)
            plan.distribution[rows] = conditions.distribution[rows]
            plan.factor[rows] = conditions.factor[rows]
            plan.mean[rows] = mean[rows]
            plan.latency[rows] = latency[rows]
            for row in rows.tolist():
                plan.allocation[row] = self.plan(conditions.row(row), mean[row], latency[row])
        return plan.allocation.copy(), state._replace(plan=plan)

    def last_action(self, state: State[Totals, DynamicPlan]) -> Ints:
        return np.asarray(state.plan.allocation)

    def _means(self, conditions: Conditions) -> Floats:
        """Return what a plan goes by, (E, n): the means, or the medians where no mean is finite.

        A worker that is away has an infinite mean.
        """
        mean = conditions.means(self.pool)
        infinite = ~np.isfinite(mean).any(axis=1, keepdims=True) & (conditions.death_time > 0.0)
        if infinite.any():
            medians = self.pool.median()[conditions.distribution] * conditions.factor
            mean = np.where(infinite, medians, mean)
        return mean

    def _far(self, planned: Floats, current: Floats) -> Mask:
        """Return where a value differs from the plan's by more than the tolerance, (E, n)."""
        # the first comparison is for a mean that stays infinite: inf - inf is not a number
        return np.asarray(
            (current != planned) & ~(np.abs(current - planned) <= self.tolerance * planned),
        )

    def legal(self, tasks: Ints) -> Mask:
        """Return whether an allocation may have so many tasks; the first plan has none.

        Args:
            tasks: (E,) tasks of all workers of a row.
        """
        return np.equal(tasks, self.setting.budget)

    def _least_proxy_loss(self, mean: Floats, latency: Floats) -> Ints:
        """Return the allocation of least proxy loss, (n,)."""
        if self.pool.latency is None:
            return allocate_scores(mean, self.setting.budget)
        return allocate_scores(mean, self.setting.budget, latency=latency)

    @abstractmethod
    def plan(self, conditions: Conditions, mean: Floats, latency: Floats) -> Ints:
        """Return the best allocation of a row, (n,).

        Args:
            conditions: The conditions of the row.
            mean: (n,) what the plan goes by, see the class.
            latency: (n,) mean latencies.
        """


class DynamicOfta(DynamicAllocation):
    """OFTA with the coming round's means: minimises the proxy loss max a_i mu_i under them.

    Mean latencies count. It is ours. Workers that are away get nothing. Where nothing changes it is
    OFTA. On a trace that is replayed by round it knows the times of the coming round, and is the
    best allocation in hindsight.
    """

    knows = "the means, of each round"

    def plan(self, conditions: Conditions, mean: Floats, latency: Floats) -> Ints:
        return self._least_proxy_loss(mean, latency)


class DynamicOracle(DynamicAllocation):
    """Minimises expected round time + price * worker time with the coming round's distributions.

    It is ours. The allocation is found by branch and bound; see ``optimal_allocation`` for how
    exact it is. Noise in common and outliers are left out. Workers that are away get nothing.

    A search takes up to seconds. Its result serves all rounds in which the workers have the same
    distributions and factors in any order. With factors that are new in each round, and no
    tolerance, each round costs a search.
    """

    knows = "the distributions, of each round"
    priced = uses_unit_costs = True

    def plan(self, conditions: Conditions, mean: Floats, latency: Floats) -> Ints:
        """Search for the best allocation of the workers that are there.

        They are put into a common order, so that a kept result serves all orders.
        """
        setting = self.setting
        costs = checked_costs(self.setting.unit_costs, self.setting.n)
        parts = costs, conditions.latency_factor, conditions.factor, conditions.distribution
        order = np.lexsort(parts)
        order = order[conditions.death_time[order] > 0.0]
        present = conditions._replace(
            distribution=conditions.distribution[order],
            factor=conditions.factor[order],
            latency_factor=conditions.latency_factor[order],
            share=0.0,
        )
        allocation = np.zeros(len(conditions.distribution), np.int64)
        unit_costs = tuple(costs[order].tolist())
        pool = present.pool(self.pool)
        if not np.isfinite(pool.mean()).any():
            return self._least_proxy_loss(mean, latency)
        allocation[order] = _best(pool, setting.budget, setting.price, unit_costs)
        return allocation


@lru_cache(maxsize=1024)
def _best(pool: Pool, budget: int, price: float, unit_costs: tuple[float, ...]) -> Ints:
    """Return the optimal allocation, (n,); the last 1,024 results are kept."""
    return optimal_allocation(pool, budget, price, unit_costs).allocation


class Oracle(Ofta):
    """The fixed allocation of least expected round time + price * worker time.

    It is ours. The allocation is found by branch and bound; see ``ata_gym.optimal_allocation`` for
    how exact it is.
    """

    source = "ours"
    knows = "the distributions"
    assumes = "task times do not depend on each other"
    priced = uses_unit_costs = True

    def best(self) -> Ints:
        setting = self.setting
        pool = setting.known_pool("the oracle")
        return optimal_allocation(
            pool,
            setting.budget,
            setting.price,
            setting.unit_costs,
        ).allocation
