"""Oracles: the allocation of least cost where the distributions are known, for good or for the coming round."""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ata_gym.changes import Conditions
from ata_gym.pools import Pool
from ata_gym.theory.allocation.proxy_loss import allocate
from ata_gym.theory.optimal.allocation import optimal_allocation
from ata_gym.typing import Floats, Ints
from ata_policies.observations import Observation
from ata_policies.policy import AllocationPolicy, Policy, Setting, State


class DynamicPlan(NamedTuple):
    """The allocation of the last round, and the conditions that it was made for; each of shape (E, n)."""

    distribution: Ints
    """The worker of the pool whose distribution each worker had; -1 before the first round."""
    factor: Floats
    """What multiplied its task times."""
    mean: Floats
    """Its mean task time; infinite where it was away."""
    allocation: Ints
    """Tasks."""


class _Dynamic(Policy):
    """Plans a row again whenever its conditions have changed.

    It sees whose distribution each worker has, its factor, who is away when the round starts, and of a trace that is
    replayed by round the times of the round. It does not see what is random in the round: noise in common, which tasks
    are outliers, and who will die in the round.
    """

    source = "ours"
    constants = "none"
    assumes = "nothing"
    nonstationary = True
    privileged = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.pool = setting.known_pool("a dynamic oracle")

    def first_plan(self, rows: int) -> DynamicPlan:
        """None yet."""
        shape = (rows, self.setting.n)
        return DynamicPlan(np.full(shape, -1), np.ones(shape), np.ones(shape), np.zeros(shape, np.int64))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Not used: it acts on the conditions of the coming round."""
        raise TypeError("a dynamic oracle acts on privileged information: call act_knowing")

    def act_knowing(self, state: State, seen: Observation, conditions: Conditions) -> tuple[Ints, State]:
        """Plan the rows whose conditions are others than before."""
        plan: DynamicPlan = state.plan
        mean, allocation = conditions.means(self.pool), plan.allocation.copy()
        distribution, factor = conditions.distribution, conditions.factor
        others = (plan.distribution != distribution) | (plan.factor != factor) | (plan.mean != mean)
        for e in np.flatnonzero(others.any(axis=1)).tolist():
            allocation[e] = self.plan(conditions.row(e), mean[e])
        return allocation, state._replace(plan=DynamicPlan(distribution, factor, mean, allocation))

    @abstractmethod
    def plan(self, now: Conditions, mean: Floats) -> Ints:
        """The best allocation of a row under these conditions with these means, shape (n,)."""


class DynamicOfta(_Dynamic):
    """OFTA of the current means: minimises the proxy loss max a_i mu_i under the means of the coming round. Ours.

    Workers that are away get nothing. Where nothing changes it is OFTA; on a trace that is replayed by round it knows
    the times of the coming round, and is the best allocation in hindsight.
    """

    knows = "the means, of each round"

    def plan(self, now: Conditions, mean: Floats) -> Ints:
        """RAS of the means."""
        usable = np.isfinite(mean)
        allocation = np.zeros(len(mean), np.int64)
        allocation[usable] = allocate(mean[usable], self.setting.budget)
        return allocation


class DynamicOracle(_Dynamic):
    """Minimises the expected round time under the distributions of the coming round, by branch and bound. Ours.

    See ``optimal_allocation`` for how exact it is; noise in common and outliers are left out. Workers that are away get
    nothing. A search takes up to seconds. Its result is kept, and serves all rounds in which the workers have the same
    distributions and factors in any order; with factors that are new in each round a round costs a search.
    """

    knows = "the distributions, of each round"

    def plan(self, now: Conditions, mean: Floats) -> Ints:
        """Bring the workers into a common order, and search."""
        order = np.lexsort((now.factor, now.distribution))
        order = order[now.dies[order] > 0.0]
        there = now._replace(distribution=now.distribution[order], factor=now.factor[order], share=0.0)
        allocation = np.zeros(len(now.distribution), np.int64)
        allocation[order] = _best(there.pool(self.pool), self.setting.budget)
        return allocation


@lru_cache(maxsize=1024)
def _best(pool: Pool, budget: int) -> Ints:
    return optimal_allocation(pool, budget).allocation


class Oracle(AllocationPolicy):
    """The fixed allocation of least expected round time + price * worker time, by branch and bound. Ours.

    A learner's yardstick among policies that allocate exactly B tasks before the round; see
    ``ata_gym.optimal_allocation`` for how exact it is. It knows the distributions.
    """

    source = "ours"
    constants = "none"
    knows = "the distributions"
    assumes = "task times do not depend on each other"
    priced = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        pool = setting.known_pool("the oracle")
        self.fixed = optimal_allocation(pool, setting.budget, setting.price).allocation

    def allocate(self, state: State) -> Ints:
        """The same allocation in every row."""
        return np.tile(self.fixed, (len(state.round), 1))
