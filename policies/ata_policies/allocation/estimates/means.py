"""The plain mean of the times seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ata_gym.typing import Floats, Ints, Keys
from ata_policies.allocation.estimates.estimate import Estimate, plain_means
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.moments import Belief


@dataclass(frozen=True)
class Mean(Estimate):
    """The mean of the times that count: certainty equivalence, where nothing else explores.

    A worker that looks slow is never tried again, so that bad luck in the first tasks of a fast one is never repaired.
    """

    source = "the textbook rule"
    assumes = "finite means"

    def scores(self, belief: Belief, rounds: Ints | Floats, keys: Keys, kept: Any) -> Scores:
        """The means."""
        del rounds, keys, kept
        return Scores(plain_means(belief))
