"""What a race does with latencies: who is ranked before whom, and who is known at all."""

from typing import NamedTuple, Self

import numpy as np

from ata_gym.theory.allocation.proxy_loss import allocate_scores, proxy_loss
from ata_gym.typing import Floats, Ints, Mask
from ata_policies.beliefs.distributions.tails import SLICES
from ata_policies.beliefs.moments import LatencyBelief
from ata_policies.planning.completion_times import Latencies
from ata_policies.planning.races.search import time_with_latency


class RaceLatencies(NamedTuple):
    """What is known of the latencies of n workers in E rows."""

    mean: Floats
    """(E, n) their expected means."""
    shape: Floats
    """(E, S) equally likely latencies of a worker, over their mean."""
    seen: Mask
    """(E, n) which workers have spent time in a latency, or paid one of 0."""
    totals: Floats
    """(E, n) their latencies added up."""

    @classmethod
    def from_belief(cls, belief: LatencyBelief) -> Self:
        """Return them as log-normal, as the default of allocation does (``Latencies``)."""
        known = Latencies.from_belief(belief, np.zeros((len(belief.counts), 1), np.int64), SLICES)
        return cls(known.mean, known.shape, belief.counts > 0.0, belief.totals)

    def take_row(self, row: int) -> "RaceLatencies":
        """Return what is known in one row, with a row axis."""
        return RaceLatencies._make(field[row : row + 1] for field in self)

    def until(self, times: Floats, budget: int) -> Floats:
        """Return how long the round of least proxy loss is, (E, 1).

        Args:
            times: (E, n) times per result without the latencies; infinite for workers that get no
                tasks, at least one of each row is not.
            budget: Results that end a round.
        """
        allocation = allocate_scores(times, budget, latency=self.mean)
        return np.asarray(proxy_loss(allocation, times, self.mean)[:, None])

    def ranking(self, times: Floats, until: Floats) -> Floats:
        """Return times per result in a round until a time, latencies included, (E, n).

        Args:
            times: (E, n) times per result without the latencies.
            until: (E, 1) the end of the round (``time_with_latency``).
        """
        ranking = time_with_latency(times, self.mean, until)
        return np.where(self.mean > 0.0, ranking, times)

    def of(self, workers: Ints) -> Floats:
        """Return equally likely latencies of m workers of the first row, (m, S)."""
        return np.asarray(self.mean[0, workers, None] * self.shape[0])
