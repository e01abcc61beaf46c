"""The policies that learn nothing: UTA, OFTA and GTA (Maranjyan et al., ICML 2025)."""

from __future__ import annotations

import numpy as np

from ata_gym.theory.allocation.proxy_loss import allocate, proxy_optimal
from ata_gym.typing import Ints
from ata_policies.policy import AllocationPolicy, Setting, State


class Uta(AllocationPolicy):
    """Uniform: floor(B / n) tasks each, the remainder to a uniformly random subset, drawn afresh each round."""

    source = "Maranjyan et al., ATA, ICML 2025"
    learns = False
    constants = "none"
    assumes = "nothing"

    def allocate(self, state: State) -> Ints:
        """Equal scores of 0 are split evenly."""
        return allocate(np.zeros_like(state.belief.totals), self.setting.budget, state.round_keys())


class Ofta(AllocationPolicy):
    """Optimal fixed: minimises the proxy loss max a_i mu_i under the true means, every round."""

    source = "Maranjyan et al., ATA, ICML 2025"
    learns = False
    constants = "none"
    knows = "the means"
    assumes = "nothing"

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.fixed = proxy_optimal(setting.known_pool("ofta"), setting.budget)

    def allocate(self, state: State) -> Ints:
        """The same allocation in every row."""
        return np.tile(self.fixed, (len(state.round), 1))


class Gta(AllocationPolicy):
    """Greedy: every worker keeps computing until the first B results are in (Rennala SGD's collection)."""

    env_id = "ata_gym/TaskRace-v0"
    source = "Tyurin and Richtárik, 2023; Maranjyan et al., ATA, ICML 2025"
    learns = False
    constants = "none"
    assumes = "nothing"

    def allocate(self, state: State) -> Ints:
        """B tasks for everybody."""
        return np.full(state.belief.totals.shape, self.setting.budget, np.int64)
