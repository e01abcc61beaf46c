"""The best race for the price where the distributions are known."""

from __future__ import annotations

import numpy as np

from ata_gym.theory.simulated.races import best_race
from ata_gym.typing import Ints
from ata_policies.policy import AllocationPolicy, Setting, State


class RaceOracle(AllocationPolicy):
    """The best race for the price with the distributions known: E[round time] + price * E[worker time] is least.

    It is found before the first round, by ``ata_gym.theory.simulated.races.best_race``, and kept.

    Parameters
    ----------
    tolerance
        At least 0: of the races that cost at most 1 + tolerance times the least it takes one with less worker time.
    """

    env_id = "ata_gym/TaskRace-v0"
    source = "ours"
    constants = "none"
    knows = "the distributions"
    assumes = "independent times"
    priced = True

    def __init__(self, setting: Setting, *, tolerance: float = 0.0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        pool = setting.known_pool("race-oracle")
        self.fixed = best_race(pool, setting.budget, setting.price, tolerance).allocation

    def allocate(self, state: State) -> Ints:
        """The same race in every row."""
        return np.tile(self.fixed, (len(state.round), 1))
