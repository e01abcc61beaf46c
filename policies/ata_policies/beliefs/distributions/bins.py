"""What is known of each worker's whole distribution: a belief from finished and cancelled tasks, and samples of it."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.ranges import FINITE, Counts, Size, Squares, Times, Within, last_worker
from ata_gym.utils.validation import LARGEST_COUNT
from ata_policies.beliefs.distributions.life_table import slices
from ata_policies.beliefs.distributions.observing import (
    CLOCK,
    FORCE,
    GAINS,
    HORIZONS,
    MASS,
    RESULTS,
    ROW,
    SETTLED,
    SINCE,
    SPREAD,
    TRACKS,
    Places,
    observe_round,
)

BINS = 32  # bins of task times per worker, each sqrt 2 times as wide as the one before; together a range of 65,536
SLOTS = 1024  # workers whose times are counted in bins, at most
TRIES = 2000.0  # rounds between two tries of workers out of use, at first
_SEEN_BEYOND = 8.0  # a slice rests on so many times the results that lie beyond it
_TRUST = 16.0  # results after the first with which a worker's own distribution counts as much as that of all workers


def _last_slot(size: Size) -> int:
    return min(size.n, SLOTS) - 1


_LARGEST = {
    SINCE: LARGEST_COUNT,
    CLOCK: LARGEST_COUNT,
    SETTLED: LARGEST_COUNT,
    RESULTS: LARGEST_COUNT,
    FORCE: len(HORIZONS) - 1,
}
_MOST_OF_ROW = tuple(_LARGEST.get(place, FINITE) for place in range(ROW))
_LEAST_OF_ROW = tuple(-FINITE if GAINS <= place < SPREAD else 0.0 for place in range(ROW))


class DistributionBelief(NamedTuple):
    """Results and cancelled tasks of each worker that count, in moments and in bins; what is past may count less.

    **What is kept.** Moments of all workers. In addition results and cancelled tasks in bins of time, bin b from
    ``anchor * 2 ** ((b - 16) / 2)`` on, the first and the last bin open; and the memories below. With more than 1,024
    workers only so many have these, the fastest by ``mean``; the others have the common shape, and are not watched. The
    belief never grows, and a round costs what copying it costs, and a little for each worker with news.

    **Memories.** Four of them, h = all, 256, 32 and 6 rounds with news of the worker, each hold discounted results d_h
    and their time x_h, so that the level m_h = x_h / d_h (with one pseudo-result at the level of the longest) predicts
    the worker's next round. For d results of time x the loss is the quasi-likelihood of gamma times,

        l_h = (d ln m_h + x / m_h) / phi,

    where phi is the dispersion of the worker, E[(x / m - d)^2] / E[d], from its own predictions and those of the row. A
    time counts at most 5 m, so that none is a change alone. A task cancelled at age c counts as time E[X | X > c] - m
    without a result: the expected loss is that of the whole task then, whatever c was; c itself for exponential times.
    A worker counts less, by (2 share - 1)+, if only a share of its tasks is finished.

    **Forgetting.** Of the row the sum over workers and rounds of l_all - l_h, 256 rounds long, says which memory
    predicts best. A shorter one comes into force when it is better by 12 than that in force. Then all that counts of a
    worker is cut to what it remembers, and discounted as it is; workers without news fade as h / (h + age), to 4
    results. If all is stationary, a short memory loses 1 / (2 h) per round and worker, and nothing is ever forgotten.

    **Restarts.** Of each worker max(0, ...) of the same sum, against the memory in force (CUSUM), restarts it at 12,
    from what the better memory remembers; the row's sums lose what it added to them. It is the logarithm of a
    likelihood ratio, so that false alarms come once in e^12 h rounds or so. If more restart within 10 rounds than a
    third of the workers with results, and at least two or one of at most two, everybody begins anew. A worker idle for
    100 rounds starts anew by the results of one round, at 3. One that has restarted fades without news as
    32 / (32 + age), since what has changed may change back.

    Ours; related are Herbster and Warmuth, "Tracking the best expert", 1998 (mixing predictors), Garivier and Moulines,
    2011 (discounting), Liu, Lee and Shroff, AAAI 2018 (restarts), and Bifet and Gavaldà, "Learning from time-changing
    data with adaptive windowing", SDM 2007 (a memory as long as the data allow).
    """

    counts: Counts  # (E, n) results that count, K_i
    totals: Times  # (E, n) their times added up
    deviations: Squares  # (E, n) their squared deviations from their mean added up
    busy: Times  # (E, n) time of the results and of the cancelled tasks that count, added up
    cancellations: Counts  # (E, n) cancelled tasks that count
    anchor: Times  # (E, n) where the worker's bin 16 begins: its first time above 0; 0 before it
    last: Counts  # (E, n) the row's round in which the worker last gave a result or had a task cancelled; 0: never
    slot: Annotated[Places, Within(-1, _last_slot)]  # (E, n) where the worker's numbers in slots are, or -1
    owner: Annotated[Places, Within(-1, last_worker)]  # (E, slots) whose slot it is, or -1
    bins: Times  # (E, slots, 3, bins) results and cancelled tasks by time, and the results' times in units of anchor
    tracks: Times  # (E, slots, 14) what the memories of the worker hold
    row: Annotated[Floats, Within(_LEAST_OF_ROW, _MOST_OF_ROW)]  # (E, 9) what is known of the row

    @classmethod
    def empty(cls, rows: int, n: int) -> DistributionBelief:
        """Nothing seen yet."""
        slots = min(n, SLOTS)
        slot, owner = (np.full((rows, size), -1, np.int32) for size in (n, slots))
        if slots == n:
            slot = owner = np.tile(np.arange(n, dtype=np.int32), (rows, 1))
        bins, tracks, row = np.zeros((rows, slots, 3, BINS)), np.zeros((rows, slots, TRACKS)), np.zeros((rows, ROW))
        counts, totals, deviations, busy, cancellations, anchor, last = np.zeros((7, rows, n))
        moments = counts, totals, deviations, busy, cancellations, anchor, last
        return cls(*moments, slot, owner, bins=bins, tracks=tracks, row=row)

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats) -> DistributionBelief:
        """Return the belief after some results and cancelled tasks; the arguments are those of ``Belief.observe``."""
        with np.errstate(all="ignore"):  # squares and ratios of extreme times
            return DistributionBelief(*observe_round(*self, worker, duration, elapsed))

    def rows(self, which: Any) -> DistributionBelief:
        """The belief of some rows only; ``which`` is any index of the row axis that keeps it."""
        return DistributionBelief(*(part[which] for part in self))

    @property
    def since(self) -> Floats:
        """Rounds since everything last began anew, shape (E,)."""
        since: Floats = self.row[:, SINCE]
        return since

    @property
    def reach(self) -> Floats:
        """Rounds that what counts reaches back, shape (E,).

        At most as many as since a worker last began anew, and as the memory in force remembers.
        """
        horizon = np.array(HORIZONS)[self.row[:, FORCE].astype(np.int64)]
        reach: Floats = np.minimum(self.row[:, SETTLED], horizon)
        return reach

    def idle(self) -> Floats:
        """Rounds since each worker last gave a result or had a task cancelled, shape (E, n); infinite if never."""
        return np.where(self.last > 0.0, self.row[:, CLOCK, None] - self.last, np.inf)

    def stale(self) -> Mask:
        """Which workers are out of use and due for another try, shape (E, n): they may have changed since.

        After t rounds since everything began anew, the last moment of tries is the last multiple of 2,000, and from
        round 20,000 on the last of 20,000 * 1.1 ** k. Workers without news since half an interval before it are due.
        So they are due together, which is cheaper than one by one; each of them until it is tried, or the interval is
        over. Workers never tried are not among them.
        """
        rounds = np.maximum(self.since, 1.0)[:, None]
        power = np.floor(np.log(np.maximum(rounds / (10.0 * TRIES), 1.0)) / np.log(1.1))
        early = rounds < 10.0 * TRIES
        moment = np.where(early, TRIES * np.floor(rounds / TRIES), 10.0 * TRIES * 1.1**power)
        interval = np.where(early, TRIES, moment / 11.0)
        due: Mask = (self.idle() >= 0.5 * interval + rounds - moment) & ~self.untried()
        return due

    def mean(self) -> Floats:
        """Time spent per result, shape (E, n): the mean, if no task was cancelled; NaN for a worker never tried.

        A worker without a result counts as if its first came now.
        """
        known = np.where(self.untried(), np.nan, self.busy)
        return known / np.maximum(self.counts, 1.0)

    def untried(self) -> Mask:
        """Which workers have never finished a task, nor had one cancelled, shape (E, n).

        Those of whom nothing counts any more are among them.
        """
        never: Mask = (self.counts == 0.0) & (self.busy == 0.0)
        return never

    def trust(self, share: Floats | float = 1.0) -> Floats:
        """How much a worker's own distribution counts beside that of all workers, shape (E, n), from 0 to 1.

        With shares (size,) of its results, how much what rests on such a share of them counts, (E, n, size).
        """
        mass = np.take_along_axis(self.tracks[:, :, MASS], np.maximum(self.slot, 0), 1)
        later = np.where(self.slot >= 0, np.maximum(mass - 1.0, 0.0), 0.0)
        later = np.multiply.outer(later, share)
        return later / (later + _TRUST)

    def of(self, workers: Ints) -> DistributionBelief:
        """The belief about some workers only, in the order of ``workers``, (E, m), as if there were no others.

        >>> seen = DistributionBelief.empty(1, 3)
        >>> seen = seen.observe(np.array([[0, 2]]), np.array([[3.0, 5.0]]), np.zeros((1, 3)))
        >>> seen.of(np.array([[2, 1]])).mean()
        array([[ 5., nan]])
        """
        slot = np.take_along_axis(self.slot, workers, 1)
        there = slot >= 0
        from_slot = np.maximum(slot, 0)
        bins = np.take_along_axis(self.bins, from_slot[:, :, None, None], 1) * there[:, :, None, None]
        tracks = np.take_along_axis(self.tracks, from_slot[:, :, None], 1) * there[:, :, None]
        places = np.broadcast_to(np.arange(workers.shape[1], dtype=np.int32), workers.shape)
        moments = {name: np.take_along_axis(getattr(self, name), workers, 1) for name in self._fields[:7]}
        return self._replace(**moments, slot=places, owner=places, bins=bins, tracks=tracks)


def own_sample(belief: DistributionBelief, size: int) -> Floats:
    """Means of equally likely slices of each worker's own estimated distribution, shape (E, n, size), increasing.

    The chance of each bin is the life table's (Kaplan-Meier's in bins; Cutler and Ederer, 1958): a share

        h_b = d_b / (r_b - c_b / 2)

    of the tasks that outlast the bins before b ends in b, with d_b results and c_b cancelled tasks in the bin and r_b
    tasks that got so far. Within a bin, times are uniform around the exact mean of its results: as wide as the bin,
    times a factor at most 1 that gives the results of all bins together their exact variance. Tasks that outlast all
    results go on for an exponential time, of mean ``belief.mean()``, from the last time seen (the lower end of its
    bin). Without cancelled tasks the mean of the sample is the mean of the results. Ours, save the life table.

    Workers never tried get NaN.
    """
    return slices_of_mean(belief, belief.mean(), size)


def slices_of_mean(belief: DistributionBelief, mean: Floats, size: int) -> Floats:
    """As :func:`own_sample`, for tails of other means, shape (E, n)."""
    n = belief.counts.shape[1]
    if belief.owner.shape[1] < n:
        belief = belief.of(np.broadcast_to(np.arange(n), belief.counts.shape))
    out = np.empty((*belief.counts.shape, size))
    with np.errstate(all="ignore"):
        slices(belief.bins, belief.counts, belief.totals, belief.deviations, belief.anchor, mean, out)
    return out


def sample(belief: DistributionBelief, size: int) -> Floats:
    """Means of equally likely slices of each worker's distribution, shape (E, n, size), increasing along a worker.

    A worker seen rarely borrows the shape (time / mean) of its distribution from the workers of its row. With K_i
    results, own slices q_i of mean m_i, and the slices e of the exponential distribution of mean 1,

        t_i(s) = s (K_i - 1)+ / (s (K_i - 1)+ + 16),
        common = (e / 17 + sum_i t_i(1) q_i / m_i) / (1 / 17 + sum_i t_i(1)),
        sample_i ~ t_i(s) q_i / m_i + (1 - t_i(s)) common,   s = min(1, 8 (1 - level)),

    slice by slice, at the mean m_i. Few results lie beyond a high level, so the longest slices borrow most: a rare huge
    time does not give a worker a long tail of its own. e counts for one worker of two results. Workers never tried get
    NaN, as they have no distribution yet. Ours.

    >>> seen = DistributionBelief.empty(1, 3)
    >>> times = np.array([[3.0, 5.0, 4.0, 12.0]])
    >>> seen = seen.observe(np.array([[0, 0, 0, 1]]), times, np.zeros((1, 3)))
    >>> sample(seen, 4).mean(axis=2)
    array([[ 4., 12., nan]])
    """
    own = own_sample(belief, size)
    shape, common = own_shapes(own, belief.trust())
    trust = belief.trust(np.minimum(1.0, _SEEN_BEYOND * (1.0 - (np.arange(size) + 0.5) / size)))
    blended = np.sort(trust * shape + (1.0 - trust) * common[:, None, :], axis=2)
    distribution: Floats = (own.mean(axis=2, keepdims=True) / blended.mean(axis=2, keepdims=True)) * blended
    return distribution


def own_shapes(own: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """The workers' own shapes q_i / m_i, and what they have in common, shape (E, size), if they have these weights."""
    mean = own.mean(axis=2, keepdims=True)
    shape = np.divide(own, mean, out=np.ones_like(own), where=mean > 0.0)
    prior = 1.0 / (1.0 + _TRUST)
    total = prior * exponential_sample(own.shape[2]) + (weight[:, :, None] * shape).sum(axis=1)
    return shape, total / (prior + weight.sum(axis=1))[:, None]


def exponential_sample(size: int) -> Floats:
    """Means of ``size`` equally likely slices of the exponential distribution of mean 1, shape (size,), increasing.

    >>> exponential_sample(2).round(4)  # 1 - ln 2 and 1 + ln 2
    array([0.3069, 1.6931])
    """
    above = 1.0 - np.arange(size + 1) / size
    areas = above - above * np.log(np.where(above > 0.0, above, 1.0))
    return np.asarray(size * -np.diff(areas))
