"""Dispatch with the distributions of each round known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.changes import Conditions
from ata_gym.theory.simulated.slices import known_sample
from ata_gym.typing import Floats, Ints
from ata_policies.dispatch.learner import choose_shadow, pace
from ata_policies.dispatch.rules import at_work, by_margin
from ata_policies.observations import Observation
from ata_policies.policy import DispatchPolicy, Setting, State

_SLICES, _REPLICATES = 64, 1024


class Known(NamedTuple):
    """What is known of the round."""

    times: Floats
    """(E, n, S) equally likely task times of each worker; infinite: it is away."""
    mean: Floats
    """(E, n) time per result."""
    order: Ints
    """(E, n) the workers, fastest first."""


class DispatchDynamicOracle(DispatchPolicy):
    """The rule of ``dispatch-oracle`` under the distributions of each round. Ours.

    The shadow price is chosen once, for the workers as they are without changes. Noise in common and outliers are left
    out; workers that are away start nothing.
    """

    source = "ours"
    constants = "64 slices, 1024 replicates"
    knows = "the distributions, of each round"
    priced = True
    nonstationary = True
    privileged = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.pool = setting.known_pool("dispatch-dynamic-oracle")
        self.times = known_sample(self.pool, _SLICES)
        self.by_round = np.array([family == "trace-by-round" for family in self.pool.families])
        self.shadow = np.array(choose_shadow(self.times, setting.budget, setting.price, _REPLICATES))

    def first_plan(self, rows: int) -> Known:
        """Nothing is known yet."""
        shape = (rows, self.setting.n)
        return Known(np.zeros((*shape, _SLICES)), np.zeros(shape), np.zeros(shape, np.int64))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Not used: it acts on the conditions of the round."""
        raise TypeError("a dynamic oracle acts on privileged information: call act_knowing")

    def act_knowing(self, state: State, seen: Observation, conditions: Conditions) -> tuple[Ints, State]:
        """Look at the conditions where a round begins, then apply the rule."""
        fresh = np.flatnonzero(self.begins(seen))
        if fresh.size:
            plan = Known._make(part.copy() for part in state.plan)
            who, mean = conditions.distribution[fresh], conditions.means(self.pool)[fresh]
            times = self.times[who] * conditions.factor[fresh, :, None]
            times = np.where(self.by_round[who][..., None], mean[..., None], times)
            plan.times[fresh] = np.where(conditions.dies[fresh, :, None] == 0.0, np.inf, times)
            plan.mean[fresh] = pace(plan.times[fresh], self.setting.budget)
            plan.order[fresh] = np.argsort(plan.mean[fresh], axis=1, kind="stable")
            state = state._replace(plan=plan)
        known: Known = state.plan
        ones = np.ones(self.setting.n)
        return by_margin(*known, ones, self.shadow, *at_work(seen)).astype(np.int64), state
