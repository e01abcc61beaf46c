"""Dispatch with the distributions of each round known."""

from __future__ import annotations

import numpy as np

from ata_gym.changes import Conditions
from ata_gym.theory.simulated.slices import known_sample
from ata_gym.typing import Ints
from ata_policies.dispatch.oracles import DispatchOracle
from ata_policies.dispatch.rules import Workers, at_work, by_margin
from ata_policies.observations import Observation
from ata_policies.policy import Setting, State

_SLICES = 64


class DispatchDynamicOracle(DispatchOracle):
    """The rule of ``dispatch-oracle`` under the distributions of each round. Ours.

    The shadow price is chosen once, for the workers as they are without changes. Noise in common and outliers are left
    out; workers that are away start nothing.
    """

    knows = "the distributions, of each round"
    nonstationary = True
    privileged = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.pool = setting.known_pool("dispatch-dynamic-oracle", dynamic=True)
        self.times = known_sample(self.pool, _SLICES)
        self.by_round = np.array([family == "trace-by-round" for family in self.pool.families])

    def first_plan(self, rows: int) -> Workers:
        """Nothing is known yet."""
        return Workers.of(np.full((rows, self.setting.n, _SLICES), np.inf), self.setting.budget)

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Not used: it acts on the conditions of the round."""
        raise TypeError("a dynamic oracle acts on privileged information: call act_knowing")

    def act_knowing(self, state: State, seen: Observation, conditions: Conditions) -> tuple[Ints, State]:
        """Look at the conditions where a round begins, then apply the rule."""
        fresh = np.flatnonzero(self.begins(seen))
        if fresh.size:
            who, mean = conditions.distribution[fresh], conditions.means(self.pool)[fresh]
            times = self.times[who] * conditions.factor[fresh, :, None]
            times = np.where(self.by_round[who][..., None], mean[..., None], times)
            now = Workers.of(np.where(np.isinf(mean)[..., None], np.inf, times), self.setting.budget)
            plan = Workers._make(part.copy() for part in state.plan)
            for old, new in zip(plan, now, strict=True):
                old[fresh] = new
            state = state._replace(plan=plan)
        known: Workers = state.plan
        there = np.isfinite(known.mean)
        return by_margin(known, self.shadow, *at_work(seen)).astype(np.int64) * there, state
