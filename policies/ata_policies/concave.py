"""The beta rule on Thompson's draws: cheap, and close to the least expected round time itself."""

from __future__ import annotations

import numpy as np

from ata_gym.concave import allocate_by_cost
from ata_gym.simulation import Ints
from ata_policies.beliefs import Moments
from ata_policies.policy import AllocationPolicy, Setting, State
from ata_policies.shapes import learn_shapes
from ata_policies.thompson import draw_means


class ThompsonBeta(AllocationPolicy):
    """Thompson sampling with the beta rule: tasks go where mean and spread of the worker's sum of times cost least.

    Each round draws every worker's mean m_i as ``thompson-gamma`` does, with the shape c_i = 1 / CV_i^2 learned from
    the moments of all workers. Worker i's j-th task then costs

        j m_i + beta m_i sqrt(j / c_i),

    and the B cheapest tasks are handed out. The proxy loss is beta = 0. The expected round time is that of a maximum of
    sums: a sum far from its mean by some standard deviations is what a round waits for, and few tasks, or slow workers,
    vary most. Ours. A round costs twice ATA's, with hundreds of workers five times.

    Parameters
    ----------
    beta
        Standard deviations to allow for, at least 0. Good values: 1.15 to 1.75 for the published settings.
    weight
        Tasks that the other workers' shapes count for, above 0.
    """

    source = "ours, after Thompson, 1933"
    constants = "beta 1.5, weight 5"
    assumes = "gamma times, of similar shapes"

    def __init__(self, setting: Setting, *, beta: float = 1.5, weight: float = 5.0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        if not 0.0 <= beta < np.inf:
            raise ValueError(f"beta must be a finite number of at least 0, not {beta!r}")
        if not 0.0 < weight < np.inf:
            raise ValueError(f"weight must be a finite number above 0, not {weight!r}")
        self.beta, self.weight = float(beta), float(weight)

    def first_belief(self, rows: int) -> Moments:
        """Squares are needed too."""
        return Moments.empty(rows, self.setting.n)

    def allocate(self, state: State) -> Ints:
        """Draw the means, and allocate by cost."""
        belief, keys = state.belief, state.round_keys()
        shapes = learn_shapes(belief, self.weight)
        means = draw_means(belief.counts, belief.totals, shapes, keys)
        spread = self.beta * means / np.sqrt(shapes)
        return allocate_by_cost(means, spread, self.setting.budget, keys, belief.untried())
