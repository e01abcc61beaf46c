"""The expected cost of a round itself: a learner of whole distributions that minimises it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.theory.simulated.costs import due
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import real
from ata_policies.allocation.estimates.thompson import draw_means
from ata_policies.allocation.rules import Beta, Round, Scores
from ata_policies.allocation.search import ROUGH, correct, search
from ata_policies.beliefs.distributions.bins import DistributionBelief, sample
from ata_policies.beliefs.moments import Moments, learn_shapes
from ata_policies.observations import LONGEST, Observation
from ata_policies.policy import AllocationPolicy, Setting, State

_FINE, _EARLY = 256, 500
"""Slices of a distribution from round 500 on; before it, as many as screen candidates."""


class CostFactors(NamedTuple):
    """What turns draws of the means into an allocation, for E rows."""

    factor: Floats
    """(E, n) multiplies the costs of a worker's tasks."""
    solved: Ints
    """(E,) the round in which it was made; 0 before the first."""


class DistributionLearner(AllocationPolicy):
    """Learns each worker's whole distribution and minimises the expected round time + price * worker time itself. Ours.

    Its belief counts task times in bins (``DistributionBelief``). Whenever a plan is ``due`` (the rounds have grown by
    1.15) it samples the distributions and searches for the best allocation by playing rounds with them (``search``).
    The plan is kept as factors f_i on the costs of the beta rule (``correct``), so that between the searches each round
    can explore: with means m_i and shapes c_i drawn and learned as in ``thompson-gamma``, worker i's j-th task costs

        f_i (j m_i + 1.5 m_i sqrt(j / c_i)),

    and the B cheapest tasks are handed out. For expected means that is the allocation found; an idle worker gets a task
    where its draw is small enough to make it useful.

    A search costs some 8 ms per row, and they come 25 times in 2,000 rounds and 67 times in 750,000. So with 51 workers
    and 8 rows a round costs 25 times ATA's on average over 2,000 rounds, 10 times over 10,000, and 3 times in the long
    run. With hundreds of workers it stays above 10 times: their distributions are copied every round.

    Parameters
    ----------
    weight
        Tasks that the other workers' shapes count for in a worker's own, above 0.
    """

    belief = DistributionBelief
    source = "ours"
    constants = "beta 1.5, weight 5, plans at rounds growing by 1.15"
    assumes = "task times do not depend on each other; finite means"
    priced = True
    beta = 1.5

    def __init__(self, setting: Setting, *, weight: float = 5.0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.weight = real("weight", weight)

    def first_plan(self, rows: int) -> CostFactors:
        """The beta rule as it is."""
        return CostFactors(np.ones((rows, self.setting.n)), np.zeros(rows, np.int64))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Make the plan again where it is due, then allocate."""
        again = np.flatnonzero(due(state.round, state.plan.solved))
        if again.size:
            factor, solved = state.plan.factor.copy(), state.plan.solved.copy()
            for e in again.tolist():
                factor[e], solved[e] = self._solve(state.belief.rows([e]), int(state.round[e])), state.round[e]
            state = state._replace(plan=CostFactors(factor, solved))
        return self.allocate(state), state

    def _solve(self, belief: DistributionBelief, round: int) -> Floats:
        """The factors of a row, shape (n,); 1 for workers never tried."""
        factor = np.ones(self.setting.n)
        tried = ~belief.untried()[0]
        if tried.any():
            times = sample(belief, ROUGH if round < _EARLY else _FINE)[0, tried]
            mean = times.mean(axis=1)
            spread = self.beta * mean / np.sqrt(self._shapes(belief)[0, tried])
            solution = search(times, spread, self.setting.budget, self.setting.price)
            factor[tried] = correct(solution, mean, spread, self.setting.budget)
        return factor

    def _shapes(self, belief: DistributionBelief) -> Floats:
        return learn_shapes(Moments(*belief[:3]), self.weight)

    def allocate(self, state: State) -> Ints:
        """Draw the means, and allocate by the costs of the plan."""
        belief, keys, shapes = state.belief, state.round_keys(), self._shapes(state.belief)
        means = np.minimum(draw_means(belief.counts, belief.busy, shapes, keys) * state.plan.factor, LONGEST)
        coming = Round(self.setting.budget, state.round, keys, belief.untried(), None)
        return Beta(self.beta).allocate(Scores(means, shapes), coming)
