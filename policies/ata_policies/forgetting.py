"""What learners that forget have in common: windows, discounts, and those that start anew."""

from __future__ import annotations

from ata_gym.allocation import allocate
from ata_gym.simulation import Ints
from ata_policies.ata import score
from ata_policies.beliefs import Belief
from ata_policies.policy import AllocationPolicy, State


class RecentBound(AllocationPolicy):
    """ATA's bounds on what is remembered, with a confidence of the rounds that are.

    The belief says how many with ``recent(round)``.
    """

    absolute: float
    relative: float

    def allocate(self, state: State) -> Ints:
        """Minimise the proxy loss under the bounds."""
        belief = state.belief
        scores = score(Belief(belief.counts, belief.totals), belief.recent(state.round), self.absolute, self.relative)
        return allocate(scores, self.setting.budget, state.round_keys(), belief.untried())
