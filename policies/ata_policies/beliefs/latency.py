"""What is known of the latencies of workers: what each pays in a round before its first task."""

from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import log_ndtr

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.ranges import Counts, Squares, Times
from ata_policies.beliefs.availability import results_of


class LatencyBelief(NamedTuple):
    """Moments of the latencies of n workers in E rows, of the rounds that count."""

    counts: Counts
    """(E, n) rounds with a latency of the worker."""
    totals: Times
    """(E, n) these latencies added up, as long as those that were cut short are expected to be."""
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
            latency: (E, n) the latencies of the round, or the time until they were cut short.
            paid: (E, n) which workers have paid theirs in full. One that was cut short at a time
                t > 0 counts as E[X | X > t], where X is log-normal as far as is known before the
                round; others tell nothing.
            memory: (E,), or one, how many rounds of a worker count, at least 1. With m rounds the
                past counts 1 - 1 / m of what it did, as in ``beliefs.distributions``.

        Example:
            >>> belief = LatencyBelief.empty(1, 2)
            >>> for latency in ([2.0, 0.0], [4.0, 0.0]):
            ...     belief = belief.observe(np.array([latency]), np.array([[True, False]]))
            >>> belief.mean(), belief.variation()
            (array([[3., 3.]]), array([0.47140452]))
        """
        cut = ~paid & (latency > 0.0)
        if cut.any():
            expected = _expected_beyond(latency, self.mean(), self.variation()[:, None])
            latency = np.where(cut, expected, latency)
            paid = paid | cut
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


def _expected_beyond(time: Floats, mean: Floats, variation: Floats) -> Floats:
    """Return E[X | X > t] of log-normal X for times t; where X is 0, or always t or less, t."""
    deviation = np.sqrt(np.log1p(variation**2))
    known = (mean > 0.0) & (deviation > 0.0) & (time > 0.0)
    spread = np.where(known, deviation, 1.0)
    ratio = np.where(known, time, 1.0) / np.where(known, mean, 1.0)
    place = np.log(ratio) / spread + 0.5 * spread
    beyond = mean * np.exp(log_ndtr(spread - place) - log_ndtr(-place))
    return np.maximum(np.where(known, beyond, mean), time)


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
