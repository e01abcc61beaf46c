"""What is known of the latencies of workers: what each pays in a round before its first task."""

from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import ndtri

from ata_gym.simulation.keys import permutations
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.ranges import Counts, Squares, Times
from ata_policies.beliefs.availability import results_of
from ata_policies.beliefs.distributions.tails import picked

_ORDER = 5
"""The stream of keys for the order of latencies: no other use of ``permutations`` has it."""
_LEVELS = 8
"""Latencies for which it is worked out below which mean a newcomer is of use."""
_LARGEST = 2.0**400
"""The longest latency, in units near the least mean: squares must not overflow."""


class LatencyBelief(NamedTuple):
    """Moments of the latencies of n workers in E rows, of the rounds that count."""

    counts: Counts
    """(E, n) rounds with a latency of the worker."""
    totals: Times
    """(E, n) these latencies added up."""
    squares: Squares
    """(E, n) their squared deviations from the worker's mean."""

    @classmethod
    def empty(cls, rows: int, n: int) -> Self:
        """Return the belief of rows that have seen nothing of n workers."""
        return cls(*np.zeros((3, rows, n)))

    def take_rows(self, rows: Any) -> Self:
        """Return some rows of the belief."""
        return type(self)(*(field[rows] for field in self))

    def observe(self, latency: Floats, paid: Mask, memory: Floats | float = np.inf) -> Self:
        """Return the belief after a round.

        Args:
            latency: (E, n) the latencies of the round.
            paid: (E, n) which workers have paid theirs in full; the others tell nothing.
            memory: (E,), or one, how many rounds of a worker count, at least 1. With m rounds the
                past counts 1 - 1 / m of what it did, as in ``beliefs.distributions``.

        Example:
            >>> belief = LatencyBelief.empty(1, 2)
            >>> for latency in ([2.0, 0.0], [4.0, 0.0]):
            ...     belief = belief.observe(np.array([latency]), np.array([[True, False]]))
            >>> belief.mean(), belief.variation()
            (array([[3., 3.]]), array([0.47140452]))
        """
        discount = np.broadcast_to(1.0 - 1.0 / np.asarray(memory), len(latency))[:, None]
        counts = discount * self.counts
        totals = discount * self.totals
        gap = latency - totals / np.where(counts > 0.0, counts, 1.0)
        # Welford's update, with the weight of what counts of the past
        squares = discount * self.squares + gap**2 * (counts / (counts + 1.0))
        return type(self)(
            np.where(paid, counts + 1.0, self.counts),
            np.where(paid, totals + latency, self.totals),
            np.where(paid, squares, self.squares),
        )

    def known(self) -> tuple[Floats, Floats]:
        """Return expected mean latencies, (E, n), and their standard deviations; 0 without any.

        A worker's mean of K rounds is mixed with the mean m of all workers of its row, which has
        the weight of s^2 / t^2 rounds (the best linear predictor). Here s^2 is the variance of a
        worker's latencies, and t^2 that of the workers' means beyond what s^2 explains, by the
        method of moments. A worker without a latency has m.
        """
        seen = self.counts > 0.0
        counts = np.where(seen, self.counts, 1.0)
        number = np.maximum(seen.sum(axis=1, keepdims=True), 1)
        mean = self.totals / counts
        centre = mean.sum(axis=1, keepdims=True) / number
        within = self._variance()[:, None] / counts
        squares = (np.where(seen, mean - centre, 0.0) ** 2).sum(axis=1, keepdims=True)
        explained = np.where(seen, within, 0.0).sum(axis=1, keepdims=True) / number
        between = np.maximum(squares / np.maximum(number - 1, 1) - explained, 0.0)
        # the best estimate of what the workers share: each mean by its precision
        variance = between + within
        weight = np.where(seen, 1.0 / np.where(variance > 0.0, variance, 1.0), 0.0)
        total = weight.sum(axis=1, keepdims=True)
        centre = (weight * mean).sum(axis=1, keepdims=True) / np.where(total > 0.0, total, 1.0)
        # workers that are alike, as far as their latencies tell, share all that is known
        share = between / np.where(between > 0.0, variance, 1.0)
        share = np.where(within > 0.0, share, 1.0)
        expected = np.where(seen, share * mean + (1.0 - share) * centre, centre)
        doubt = np.where(seen, share * within, between)
        return np.asarray(expected), np.asarray(np.sqrt(doubt))

    def mean(self) -> Floats:
        """Return expected mean latencies, (E, n), see ``known``."""
        return self.known()[0]

    def variation(self) -> Floats:
        """Return the coefficient of variation of the latencies of a worker, (E,), in all alike."""
        seen = self.counts > 0.0
        mean = self.totals / np.where(seen, self.counts, 1.0)
        ratios = self.squares / np.where(mean > 0.0, mean**2, np.inf)
        degrees = np.maximum(self.counts - 1.0, 0.0).sum(axis=1)
        return np.asarray(np.sqrt(ratios.sum(axis=1) / np.maximum(degrees, 1.0)))

    def _variance(self) -> Floats:
        """Return the variance of the latencies of a worker, (E,), pooled over the workers."""
        degrees = np.maximum(self.counts - 1.0, 0.0).sum(axis=1)
        return np.asarray(self.squares.sum(axis=1) / np.maximum(degrees, 1.0))


class Latencies(NamedTuple):
    """What is known of the latencies of the n workers of E rows."""

    mean: Floats
    """(E, n) their expected means."""
    spread: Floats
    """(E, n) the standard deviations of what is known of the means."""
    shape: Floats
    """(E, S) equally likely latencies of a worker, over their mean, in no order."""

    @classmethod
    def from_belief(cls, belief: LatencyBelief, exponent: Ints, size: int) -> Self:
        """Return them as log-normal, with the coefficient of variation that all workers show.

        Args:
            belief: What was learned.
            exponent: (E, 1) they are in the unit 2**exponent.
            size: The number S of equally likely latencies.
        """
        mean, spread = (np.ldexp(moment, -exponent) for moment in belief.known())
        deviation = np.sqrt(np.log1p(belief.variation() ** 2))[:, None]
        shape = np.exp(deviation * _normal_quantiles(size))
        return cls(
            np.minimum(mean, _LARGEST),
            np.minimum(spread, _LARGEST),
            shape / shape.mean(axis=1, keepdims=True),
        )

    def of(self, workers: Ints) -> Floats:
        """Return equally likely latencies of some workers, (E, m, S)."""
        return np.asarray(picked(self.mean, workers)[:, :, None] * self.shape[:, None])

    def levels(self) -> Floats:
        """Return mean latencies from each row's least to its largest, evenly spaced, (E, J).

        They are one where all workers of each row have the same.
        """
        least = self.mean.min(axis=1)
        largest = self.mean.max(axis=1)
        if (least == largest).all():
            return np.asarray(least[:, None])
        return np.linspace(least, largest, _LEVELS, axis=1)

    def at_workers(self, by_level: Floats, workers: Ints) -> Floats:
        """Return values of some workers, (E, L, m), from values at the levels of latency.

        Args:
            by_level: (E, L, J) the values; between two levels they are interpolated.
            workers: (E, m) the workers.
        """
        number = by_level.shape[2]
        if number == 1:
            return np.broadcast_to(by_level, (*by_level.shape[:2], workers.shape[1]))
        levels = self.levels()
        width = levels[:, -1:] - levels[:, :1]
        # a row in which all are alike has equal values at all levels
        place = (picked(self.mean, workers) - levels[:, :1]) / np.where(width > 0.0, width, 1.0)
        place *= number - 1
        below = np.minimum(place.astype(np.int64), number - 2)[:, None]
        part = place[:, None] - below
        low = np.take_along_axis(by_level, below, axis=2)
        high = np.take_along_axis(by_level, below + 1, axis=2)
        return np.asarray(low + part * (high - low))


def with_latency_spread(
    worker: Ints, duration: Floats, elapsed: Floats, latency: Floats
) -> tuple[Floats, Floats]:
    """Return durations and elapsed times that hold the latencies, as if whole shares were timed.

    A worker's latency is spread evenly over its results of the round. A worker without a result has
    it in its elapsed time.

    Args:
        worker: (E, R) whose result each one is; -1 means no result.
        duration: (E, R) the task time of each result.
        elapsed: (E, n) how long each worker's cancelled task had run.
        latency: (E, n) what each worker has paid in the round.

    Example:
        >>> worker = np.array([[0, 0, 1]])
        >>> duration = np.array([[1.0, 2.0, 5.0]])
        >>> latency = np.array([[4.0, 1.0, 3.0]])
        >>> with_latency_spread(worker, duration, np.zeros((1, 3)), latency)
        (array([[3., 4., 6.]]), array([[0., 0., 3.]]))
    """
    counts = results_of(worker, latency.shape[1])
    per_result = latency / np.maximum(counts, 1)
    added = np.take_along_axis(per_result, np.maximum(worker, 0), axis=1)
    duration = np.where(worker >= 0, duration + added, duration)
    return duration, np.where(counts > 0, elapsed, elapsed + latency)


def paid_in_full(worker: Ints, elapsed: Floats) -> Mask:
    """Return which workers have begun a task, (E, n), so that they have paid their latency.

    Args:
        worker: (E, R) whose result each one is; -1 means no result.
        elapsed: (E, n) how long each worker's cancelled task had run.
    """
    return np.asarray((elapsed > 0.0) | (results_of(worker, elapsed.shape[1]) > 0.0))


@lru_cache(maxsize=8)
def _normal_quantiles(size: int) -> Floats:
    """Return equally likely normal deviations in a random order, (size,), the same in each call."""
    return np.asarray(ndtri((permutations(_ORDER, 1, size)[0] + 0.5) / size))
