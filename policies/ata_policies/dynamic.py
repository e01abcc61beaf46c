"""Oracles of a world that changes: what is best under the conditions of the coming round."""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ata_gym.allocation import allocate
from ata_gym.changes import Conditions
from ata_gym.optimal import optimal_allocation
from ata_gym.pools import Pool
from ata_gym.simulation import Floats, Ints
from ata_policies.policy import AllocationPolicy, Observation, Setting, State


class Plan(NamedTuple):
    """The allocation of the last round, and the conditions that it was made for; each of shape (E, n)."""

    law: Ints
    """The worker of the pool whose law each worker had; -1 before the first round."""
    factor: Floats
    """What multiplied its task times."""
    mean: Floats
    """Its mean task time; infinite where it was away."""
    allocation: Ints
    """Tasks."""


class _Dynamic(AllocationPolicy):
    """Plans a row again whenever its conditions have changed.

    It sees whose law each worker has, its factor, who is away when the round starts, and of a trace that is replayed by
    round the times of the round. It does not see the round's luck: noise in common, which tasks are outliers, and who
    will die in the round.
    """

    source = "ours"
    constants = "none"
    assumes = "nothing"
    follows = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        if setting.pool is None:
            raise ValueError("a dynamic oracle knows the workers' laws: it needs an env whose pool is known")
        self.pool = setting.pool

    def first_plan(self, rows: int) -> Plan:
        """None yet."""
        shape = (rows, self.setting.n)
        return Plan(np.full(shape, -1), np.ones(shape), np.ones(shape), np.zeros(shape, np.int64))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Plan the rows whose conditions are others than before."""
        del seen
        plan: Plan = state.plan
        now = self._now(len(plan.law))
        mean, allocation = now.means(self.pool), plan.allocation.copy()
        others = (plan.law != now.law) | (plan.factor != now.factor) | (plan.mean != mean)
        for e in np.flatnonzero(others.any(axis=1)).tolist():
            allocation[e] = self.plan(now.row(e), mean[e])
        return allocation, state._replace(plan=Plan(now.law, now.factor, mean, allocation))

    def _now(self, rows: int) -> Conditions:
        """The conditions of the coming round, with a row axis."""
        if self.setting.now is None:
            return Conditions.unchanged(np.zeros(rows, np.int64), self.setting.n)
        now = self.setting.now()
        if now.law.ndim == 1:
            now = Conditions._make(part[None] if isinstance(part, np.ndarray | np.generic) else part for part in now)
        if len(now.law) != rows:
            raise ValueError(f"an oracle plays the env it was made for, with {len(now.law)} rows, not {rows}")
        return now

    def allocate(self, state: State) -> Ints:
        """As planned."""
        allocation: Ints = state.plan.allocation
        return allocation

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
        del now
        usable = np.isfinite(mean)
        allocation = np.zeros(len(mean), np.int64)
        allocation[usable] = allocate(mean[usable], self.setting.budget)
        return allocation


class DynamicOracle(_Dynamic):
    """Minimises the expected round time under the laws of the coming round, by branch and bound. Ours.

    See ``optimal_allocation`` for how exact it is; noise in common and outliers are left out. Workers that are away get
    nothing. A search takes up to seconds. Its result is kept, and serves all rounds in which the workers have the same
    laws and factors in any order; with factors that are new in each round a round costs a search.
    """

    knows = "the laws, of each round"

    def plan(self, now: Conditions, mean: Floats) -> Ints:
        """Bring the workers into a common order, and search."""
        del mean
        order = np.lexsort((now.factor, now.law))
        order = order[now.dies[order] > 0.0]
        there = now._replace(law=now.law[order], factor=now.factor[order], share=0.0)
        allocation = np.zeros(len(now.law), np.int64)
        allocation[order] = _best(self.pool.under(there), self.setting.budget)
        return allocation


@lru_cache(maxsize=1024)
def _best(pool: Pool, budget: int) -> Ints:
    return optimal_allocation(pool, budget).allocation
