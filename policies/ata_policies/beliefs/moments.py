"""Counts, totals and squared deviations of the task times seen, and shapes that follow."""

from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from scipy.special import log_ndtr

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import copy, kernel
from ata_gym.utils.ranges import FINITE, Counts, Squares, Times, Within


def mean_times(counts: Floats, totals: Floats, unknown: float = np.nan) -> Floats:
    """Return totals over counts, elementwise; ``unknown`` where there are no counts."""
    return np.divide(totals, counts, out=np.full_like(totals, unknown), where=counts > 0)


class Totals(NamedTuple):
    """Counts and totals of the task times seen, each of shape (E, n)."""

    counts: Annotated[Floats, Within(0.0, FINITE)]
    """K_i, tasks seen, of which a prior may have any number."""
    totals: Times
    """Their times added up."""

    @classmethod
    def empty(cls, rows: int, n: int) -> Self:
        return cls(*np.zeros((2, rows, n)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> "Totals":
        """Return the belief after a step, see ``Belief.observe``; cancelled tasks do not count.

        Example:
            >>> worker = np.array([[0, 0, 1]])
            >>> duration = np.array([[2.0, 4.0, 5.0]])
            >>> Totals.empty(1, 2).observe(worker, duration).mean()
            array([[3., 5.]])
        """
        return Totals(*_observe(self.counts, self.totals, worker, duration))

    def mean(self) -> Floats:
        return mean_times(self.counts, self.totals)

    def untried(self) -> Mask:
        return np.equal(self.counts, 0)


class Exposure(NamedTuple):
    """Results, and the time spent on them and on cancelled tasks, each of shape (E, n).

    Time spent over results estimates a mean task time from censored tasks too: it is the maximum
    likelihood estimate for exponential times, and without cancelled tasks the plain mean.
    """

    counts: Counts
    """Results K_i."""
    busy: Times
    """Time of the results and of the cancelled tasks, added up."""

    @classmethod
    def empty(cls, rows: int, n: int) -> Self:
        return cls(*np.zeros((2, rows, n)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats) -> "Exposure":
        """Return the belief after a step, see ``Belief.observe``.

        Example:
            >>> worker = np.array([[0, 0]])
            >>> duration = np.array([[2.0, 4.0]])
            >>> elapsed = np.array([[0.0, 5.0]])
            >>> Exposure.empty(1, 2).observe(worker, duration, elapsed)
            Exposure(counts=array([[2., 0.]]), busy=array([[6., 5.]]))
        """
        counts, busy = _observe(self.counts, self.busy, worker, duration)
        return Exposure(counts, busy + elapsed)

    def mean(self) -> Floats:
        """Return the time spent per result, (E, n); NaN for a worker without one."""
        return mean_times(self.counts, self.busy)

    def untried(self) -> Mask:
        """Return which workers have never finished a task, nor had one cancelled, (E, n)."""
        return np.asarray((self.counts == 0) & (self.busy == 0.0))


class Moments(NamedTuple):
    """Counts, totals and squared deviations of the task times seen, each of shape (E, n).

    Deviations are updated as in B. P. Welford, "Note on a method for calculating corrected sums of
    squares and products", Technometrics 1962: a total of squares would lose the variance of times
    that vary little.
    """

    counts: Counts
    """K_i, tasks seen."""
    totals: Times
    """Their times added up."""
    deviations: Squares
    """Their squared deviations from their mean added up."""

    @classmethod
    def empty(cls, rows: int, n: int) -> Self:
        return cls(*np.zeros((3, rows, n)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> "Moments":
        """Return the belief after a step, see ``Belief.observe``; cancelled tasks do not count.

        Example:
            >>> worker = np.array([[0, 0, 1]])
            >>> duration = np.array([[2.0, 4.0, 5.0]])
            >>> Moments.empty(1, 2).observe(worker, duration).deviations
            array([[2., 0.]])
        """
        return Moments(*_observe_deviations(*self, worker, duration))

    def scaled(self, share: Floats) -> "Moments":
        """Return the belief if worker i's tasks counted ``share[..., i]`` times as much."""
        # some may have overflowed, and infinity times 0 is not a number
        deviations = np.zeros_like(self.deviations)
        np.multiply(share, self.deviations, out=deviations, where=share > 0.0)
        return Moments(share * self.counts, share * self.totals, deviations)

    def merged(self) -> "Moments":
        """Return the moments of all groups of tasks together; groups lie along the last axis.

        The formulas are from Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm
        for computing sample variances", 1979.
        """
        return Moments(*_merged(*self))

    def mean(self) -> Floats:
        return mean_times(self.counts, self.totals)

    def untried(self) -> Mask:
        return np.equal(self.counts, 0)


@kernel("(n),(n),(b),(b)->(n),(n)")
def _observe(
    count: Floats,
    total: Floats,
    worker: Ints,
    duration: Floats,
    new_count: Floats,
    new_total: Floats,
) -> None:
    """Add the results of a step."""
    copy(count, new_count)
    copy(total, new_total)
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_count[i] += 1.0
            new_total[i] += duration[b]


@kernel("(n),(n),(n),(b),(b)->(n),(n),(n)")
def _observe_deviations(
    count: Floats,
    total: Floats,
    deviation: Floats,
    worker: Ints,
    duration: Floats,
    new_count: Floats,
    new_total: Floats,
    new_deviation: Floats,
) -> None:
    """Add the results of a step, and update the squared deviations by Welford's formula."""
    copy(count, new_count)
    copy(total, new_total)
    copy(deviation, new_deviation)
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            count_before = new_count[i]
            x = duration[b]
            new_count[i] = count_before + 1.0
            if count_before > 0.0:
                gap = x - new_total[i] / count_before
                new_deviation[i] += gap * gap * (count_before / new_count[i])
            new_total[i] += x


@kernel("(k),(k),(k)->(),(),()")
def _merged(
    count: Floats,
    total: Floats,
    deviation: Floats,
    all_counts: Floats,
    all_totals: Floats,
    all_deviations: Floats,
) -> None:
    """Join groups of tasks; the distance of two groups' means adds to the squared deviations."""
    tasks = 0.0
    time = 0.0
    squares = 0.0
    for j in range(len(count)):
        if count[j] > 0.0:
            if tasks > 0.0:
                gap = total[j] / count[j] - time / tasks
                squares += gap * gap * (tasks * count[j] / (tasks + count[j]))
            squares += deviation[j]
            tasks += count[j]
            time += total[j]
    all_counts[0] = tasks
    all_totals[0] = time
    all_deviations[0] = squares


def learn_shapes(belief: Moments, weight: float) -> Floats:
    """Estimate the shape of each worker's times, (E, n), shrunk to the shapes of the others.

    The shape is 1 / (coefficient of variation)^2. With K_i tasks of mean m_i and q_i their summed
    squared deviations from m_i, over m_i^2:

        common = (1 + sum_i q_i) / (1 + sum_i (K_i - 1)),
        shape_i = (w + K_i - 1) / (w common + q_i),

    where the sums are over workers with at least one task. So one pseudo-task has an exponential
    time (shape 1), and w pseudo-tasks have times like the times of the others. Ours; the method of
    moments. In the example, q = 0.5 and common = 1.5 / 3.

    Args:
        belief: The moments of the times seen.
        weight: The number w of pseudo-tasks, above 0.

    Example:
        >>> belief = Moments.empty(1, 2).observe(np.array([[0, 0, 0]]), np.array([[1.0, 2.0, 3.0]]))
        >>> learn_shapes(belief, 1.0)
        array([[3., 2.]])
    """
    return np.asarray(_shapes(belief.counts, belief.totals, belief.deviations, weight))


@kernel("(n),(n),(n),()->(n)")
def _shapes(count: Floats, total: Floats, deviation: Floats, weight: Floats, out: Floats) -> None:
    """Compute the shapes of ``learn_shapes``; ``out`` holds q_i until the common shape is known."""
    spread = 1.0
    tasks = 1.0
    for i in range(len(count)):
        has_time = 0.0 < total[i] < np.inf
        ratio = count[i] / (total[i] if has_time else 1.0)
        relative = ratio * ratio * deviation[i]
        # q_i is at most K_i (K_i - 1); it is larger, or not a number, where squares have overflowed
        limit = count[i] * max(count[i] - 1.0, 0.0)
        if not relative <= limit:
            relative = limit
        if has_time:
            out[i] = relative
        else:
            out[i] = 0.0
        spread += out[i]
        tasks += max(count[i] - 1.0, 0.0)
    common = spread / tasks
    for i in range(len(count)):
        out[i] = (weight[0] + max(count[i] - 1.0, 0.0)) / (weight[0] * common + out[i])


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
        worker's latencies, and t^2 the variance of the workers' means beyond what s^2 explains, by
        the method of moments. A worker without a latency has m.
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
        """Return the coefficient of variation of the latencies of a worker, (E,), in all alike.

        Its square is their variance over the mean of their squared means, so that a worker with
        hardly any latency, which may vary by much more than its mean, has little weight.
        """
        seen = self.counts > 0.0
        mean = self.totals / np.where(seen, self.counts, 1.0)
        degrees = np.maximum(self.counts - 1.0, 0.0)
        expected = (degrees * mean**2).sum(axis=1)
        squares = self.squares.sum(axis=1)
        return np.asarray(np.sqrt(squares / np.where(expected > 0.0, expected, np.inf)))

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
    # Far out both probabilities vanish, but not the difference of their logarithms.
    log_ratio = log_ndtr(spread - place) - log_ndtr(-place)
    beyond = mean * np.exp(log_ratio)
    return np.maximum(np.where(known, beyond, mean), time)
