"""A belief about each worker's whole distribution, from finished and cancelled tasks."""

import math
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import kernel
from ata_gym.utils.ranges import FINITE, Counts, Squares, Times, Within, last_worker
from ata_gym.utils.validation import LARGEST_COUNT
from ata_policies.beliefs.distributions.adjustments.age import SlowStart, find_slow_starts
from ata_policies.beliefs.distributions.arrays import (
    HORIZONS,
    MEMORIES,
    ROW,
    SLOT,
    Places,
)
from ata_policies.beliefs.distributions.observing import observe_round

BINS = 32
"""Bins of task times per worker, each sqrt 2 times as wide as the one before.

Together they cover times that differ by a factor of 65,536.
"""
SLOTS = 1024
"""Workers whose times are counted in bins, at most."""
RETRIED_EVERY = 2000.0
"""Rounds between two tries of workers out of use, at first."""
TRUST = 16.0
"""Results after the first with which a worker's own distribution has half of the weight.

The distribution of all workers has the other half.
"""

# the largest and the least values that a state may have, by place in the arrays
_COUNTS = (
    ROW.since,
    ROW.clock,
    ROW.settled,
    ROW.results,
    ROW.events,
    ROW.alarm,
    ROW.factors,
    ROW.confirmed,
    ROW.refuted,
    ROW.differences,
)
_LARGEST_IN_ROW = dict.fromkeys(_COUNTS, LARGEST_COUNT)
_LARGEST_IN_ROW |= {ROW.force: len(HORIZONS) - 1, ROW.returns: 1}
_MOST_OF_ROW = tuple(_LARGEST_IN_ROW.get(place, FINITE) for place in range(ROW.size))
_LARGEST_IN_TRACK = dict.fromkeys(
    (*range(SLOT.results, 2 * MEMORIES, 2), SLOT.mass, SLOT.age, SLOT.probes, SLOT.suspect_results),
    LARGEST_COUNT,
)
_LARGEST_IN_TRACK |= {SLOT.kept_share: 1, SLOT.counted_share: 1}
_MOST_OF_TRACK = tuple(_LARGEST_IN_TRACK.get(place, FINITE) for place in range(SLOT.size))
_SIGNED_IN_ROW = (
    *range(ROW.gains, ROW.spread),
    *range(ROW.products + 1, ROW.deviations),
    *range(ROW.gram, ROW.predicted),
    *range(ROW.weights, ROW.returns),
)
_LEAST_OF_ROW = tuple(-FINITE if place in _SIGNED_IN_ROW else 0.0 for place in range(ROW.size))
_SIGNED_IN_TRACK = (
    SLOT.deviation,
    SLOT.deviation_before,
    *range(SLOT.first_logs, SLOT.size),
)
_LEAST_OF_TRACK = tuple(-FINITE if place in _SIGNED_IN_TRACK else 0.0 for place in range(SLOT.size))


_HORIZONS = np.array(HORIZONS)

_MOST_CHANGES = 0.05
"""Changes that lasted, in a round of a row whose levels do not move, at most."""


class DistributionBelief(NamedTuple):
    """Results and cancelled tasks of each worker that count, in moments and in bins of time.

    Old results and tasks may count less.

    **Contents.** Moments of all workers; results and cancelled tasks in bins of time, where bin b
    begins at ``anchor * 2 ** ((b - 16) / 2)`` and the first and the last bin are open; and the
    memories below. Of more than 1,024 workers only the 1,024 fastest by ``mean`` have bins and
    memories; the others have the common shape, and are not watched.

    **Memories.** Four memories, of h = all, 16, 4 and 1 rounds with feedback of the worker, each
    hold discounted results d_h and their time x_h. The level m_h = (x_h + m) / (d_h + 1), with one
    more result at the level m of the longest memory, predicts the worker's next round. For d
    results of time x the loss is the quasi-likelihood of gamma times,

        l_h = (d ln m_h + x / m_h) / phi,

    where phi is the dispersion of the worker, E[(x / m - d)^2] / E[d], from the predictions of its
    own and of the row. Where two memories a and b are compared, the lesser counts of l_a - l_b and
    of the same difference for Poisson times, (d (m_a - m_b) - x ln(m_a / m_b)) / (m_a phi): so
    neither few long times nor many short ones are a change by themselves. A time counts at most
    5 m, so that no single time is a change. A task cancelled at age c counts as time
    E[X | X > c] - m without a result: so the expected loss is the loss of the whole task, whatever
    c was. A worker of whose tasks only a share is finished counts
    (2 share - 1)+ as much.

    **The memory in force.** It is the memory that predicted best: the sum of phi l_h over the
    workers of a row, discounted over 256 rounds, is least. A shorter memory must be better than the
    longest by ln(20 n) times the mean squared error of a logarithm, or by 12 times where tasks are
    cancelled. Without a change the former happens in about one row of 20 n. What counts of each
    worker is what this memory holds, d_h + 1 results of mean m_h; how times vary around their level
    is known from all of them. So nothing is lost if a longer memory predicts better later. If
    nothing changes, a short memory loses 1 / (2 h) per round and worker.

    **Levels that return.** A fifth prediction is learned from the row itself
    (``adjustments.persistence``). The logarithm of the next level over the level of
    the longest memory is a weighted sum of the shorter memories' logarithms, with weights by least
    squares over all workers. So a trend goes on, and what was a passing deviation shrinks. A worker
    without feedback returns to its longest memory as the correlation of levels from round to round
    says, and is known less and less: so it is tried again. This prediction counts where it was
    better than every memory, and by the same lead.

    **Restarts.** A test for a single worker sums l_all - l_h, for 16 and 4 rounds, against the
    memory in force and never below 0 (CUSUM). At 12 it restarts the worker from what the better
    memory holds; the row's sums lose its part. False alarms come about once in e^12 h rounds.
    All workers begin anew if within 10 rounds enough restart or become suspects: more than a
    third of the workers with feedback in the last round, and at least three or all that there are.

    **A common factor.** What the times of all workers of a round have in common is divided out of
    them first (``adjustments.common_factor``): a change of all is no change. All times here are
    thus as long as usual, in the mean over up to 256 rounds.

    **Age.** The times of the first 64 results of each worker are kept by age. First results that
    were far slower than later ones no longer count, and how much faster workers get with age is
    learned from all of them (``adjustments.age``).

    **Suspects.** A single round that is very unlike the others acts at once (``suspects.judge``).
    The worker is believed to be as fast as in this round, with the evidence of its results. What
    was known of it is kept aside, until a result is nearer to it. The worker is probed in the next
    round, or later where a probe is long, so that a probe takes at most half of the time since
    then. With each probe in vain the next one comes after twice as many rounds. After 8 results the
    new level is the usual one. Changes are expected as often as they were seen, and once in 50,000
    rounds of a worker at first.

    Ours; related are Herbster and Warmuth, "Tracking the best expert", 1998 (mixing predictors),
    Garivier and Moulines, 2011 (discounting), Liu, Lee and Shroff, AAAI 2018 (restarts), and Bifet
    and Gavaldà, "Learning from time-changing data with adaptive windowing", SDM 2007 (a memory as
    long as the data allow).
    """

    counts: Counts
    """(E, n) results that count, K_i."""
    totals: Times
    """(E, n) their times added up."""
    deviations: Squares
    """(E, n) their squared deviations from their mean added up."""
    busy: Times
    """(E, n) time of the results and of the cancelled tasks that count, added up."""
    cancellations: Counts
    """(E, n) cancelled tasks that count."""
    anchor: Times
    """(E, n) where the worker's bin 16 begins; 0 before its first time above 0.

    It is this first time, times a power of 2 if later times would lie beyond the last bin.
    """
    last: Counts
    """(E, n) the row's round in which the worker last gave a result or had a task cancelled.

    0 means never.
    """
    slot: Annotated[Places, Within(-1, lambda size: min(size.n, SLOTS) - 1)]
    """(E, n) the worker's slot, or -1."""
    owner: Annotated[Places, Within(-1, last_worker)]
    """(E, slots) whose slot it is, or -1."""
    bins: Times
    """(E, slots, 3, bins) results and cancelled tasks by time, and the results' times.

    These times are in units of ``anchor``.
    """
    tracks: Annotated[Floats, Within(_LEAST_OF_TRACK, _MOST_OF_TRACK)]
    """(E, slots, 45) what the memories of the worker hold, and whether it is a suspect."""
    row: Annotated[Floats, Within(_LEAST_OF_ROW, _MOST_OF_ROW)]
    """(E, 45) what is known of the row."""

    @classmethod
    def empty(cls, rows: int, n: int) -> Self:
        # where all workers fit, each has a slot from the start
        slots = min(n, SLOTS)
        slot, owner = (np.full((rows, size), -1, np.int32) for size in (n, slots))
        if slots == n:
            slot = owner = np.tile(np.arange(n, dtype=np.int32), (rows, 1))
        bins = np.zeros((rows, slots, 3, BINS))
        tracks = np.zeros((rows, slots, SLOT.size))
        counts, totals, deviations, busy, cancellations, anchor, last = np.zeros((7, rows, n))
        moments = counts, totals, deviations, busy, cancellations, anchor, last
        return cls(*moments, slot, owner, bins=bins, tracks=tracks, row=np.zeros((rows, ROW.size)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats) -> "DistributionBelief":
        # so that the first decision does not wait until the kernel is compiled
        if (worker < 0).all() and not elapsed.any():
            return self
        # squares and ratios of extreme times overflow
        with np.errstate(all="ignore"):
            return DistributionBelief(*observe_round(*self, worker, duration, elapsed))

    def take_rows(self, rows: Any) -> "DistributionBelief":
        """Return the belief of some rows only; ``rows`` is any index that keeps the row axis."""
        return DistributionBelief(*(part[rows] for part in self))

    @property
    def since(self) -> Floats:
        """Rounds since everything last began anew, (E,)."""
        return np.asarray(self.row[:, ROW.since])

    @property
    def reach(self) -> Floats:
        """The rounds since a worker last began anew, (E,), at most what the memory reaches back.

        The memory is the memory in force.
        """
        horizon = _HORIZONS[self.row[:, ROW.force].astype(np.int64)]
        return np.asarray(np.minimum(self.row[:, ROW.settled], horizon))

    @property
    def factor(self) -> Floats:
        """How many times longer than usual all workers took in the last round, (E,)."""
        factor = self.row[:, ROW.factor]
        return np.where(factor > 0.0, factor, 1.0)

    def describe(self, row: int) -> str:
        """Return in words how far a row reaches back, and what its workers have in common."""
        text = f"{self.reach[row]:.0f} rounds count"
        if self.factor[row] != 1.0:
            text += f"; in the last round all workers took {self.factor[row]:.2g} times as long"
        return text

    def idle(self) -> Floats:
        """Return the rounds since each worker's last result or cancelled task, (E, n).

        They are infinite for a worker that never had one.
        """
        return np.where(self.last > 0.0, self.row[:, ROW.clock, None] - self.last, np.inf)

    def moves(self) -> Mask:
        """Return in which rows the levels of workers move, (E,).

        They do where a memory shorter than all of the past predicts best, or levels return, or
        changes that lasted came every 20 rounds or more often. Rows whose young workers are known
        to have slow first tasks are left out: their levels only fall.
        """
        row = self.row
        often = row[:, ROW.events] > _MOST_CHANGES * row[:, ROW.clock]
        moves = (row[:, ROW.force] > 0.0) | (row[:, ROW.returns] > 0.0) | often
        if moves.any():
            rows = np.flatnonzero(moves)
            moves[rows] = ~self.take_rows(rows).slow_start().coming.any(axis=1)
        return np.asarray(moves, np.bool_)

    def stale(self) -> Mask:
        """Return which workers are out of use and due for another try, (E, n).

        They may have changed. Tries are due at the multiples of 2,000 rounds since everything began
        anew, and from round 20,000 on at 20,000 * 1.1 ** k. A worker that was tried is due if it
        had no feedback since half an interval before the last of these moments. So workers are due
        together, which is cheaper than one by one.
        """
        due: Mask = _stale(self.last, self.counts, self.busy, self.since, self.row[:, ROW.clock])
        return due & ~self.suspects()

    def suspects(self) -> Mask:
        """Return which workers took far longer, or far less, than usual in their last round.

        The mask has the shape (E, n); a worker's last round is its last round with feedback.
        """
        # of each slot, which is quicker to read than of each worker
        if not (self.tracks[:, :, SLOT.stretch] > 0.0).any():
            return np.zeros(self.slot.shape, np.bool_)
        return np.asarray(self.of_worker(SLOT.stretch) > 0.0)

    def alarmed(self) -> Mask:
        """Return in which rows a worker became a suspect, or ceased to be one, in the last round.

        The mask has the shape (E,).
        """
        clock = self.row[:, ROW.clock]
        return np.asarray((self.row[:, ROW.alarm] == clock) & (clock > 0.0))

    def probes(self) -> Mask:
        """Return which suspects are to be probed in the coming round, (E, n): each when it is due.

        Of workers that became suspects in the same round only the fastest is probed, at first.
        Where it is as usual again, the others are due at once.
        """
        suspects = self.suspects()
        if not suspects.any():
            return self._shares_factor()
        clock = self.row[:, ROW.clock, None]
        due = self.of_worker(SLOT.due)
        hit = self.of_worker(SLOT.suspected)
        probes: Mask = suspects & (due <= clock + 1.0)
        due_together = probes & (due > clock)
        usual_mean = self.mean() / np.where(due_together, self.of_worker(SLOT.stretch), 1.0)
        for row in np.flatnonzero(due_together.any(axis=1)):
            waiting = np.flatnonzero(due_together[row])
            waiting = waiting[np.argsort(usual_mean[row, waiting], kind="stable")]
            # They are sorted by mean, so that the first of each round of suspicion is the fastest.
            _, fastest = np.unique(hit[row, waiting], return_index=True)
            probes[row, waiting] = False
            probes[row, waiting[fastest]] = True
        return probes | self._shares_factor()

    def _shares_factor(self) -> Mask:
        """Return which workers are to show whether they share the factor of their row, (E, n).

        Where the workers in use have a factor above 1 in common, and it is time for a probe, this
        is the fastest of the others, if it would be as fast as one of them without the factor.
        """
        probes = np.zeros(self.counts.shape, np.bool_)
        factor = self.row[:, ROW.factor]
        clock = self.row[:, ROW.clock]
        due = (factor > 1.0) & (self.row[:, ROW.probe_due] <= clock + 1.0)
        if not due.any():
            return probes
        for row in np.flatnonzero(due):
            mean = self.busy[row] / np.maximum(self.counts[row], 1.0)
            idle = (self.last[row] < clock[row]) & (self.counts[row] > 0.0)
            if idle.any():
                worker = np.where(idle, mean, np.inf).argmin()
                slowest = mean[self.last[row] == clock[row]].max()
                probes[row, worker] = mean[worker] < factor[row] * slowest
        return probes

    def level(self, memory: int, usual: Floats) -> Floats:
        """Return the mean task time of each worker by one of the memories, (E, n).

        Args:
            memory: The memory's place in ``HORIZONS``.
            usual: (E, n) mean times that count as one result more.
        """
        results = self.of_worker(SLOT.results + 2 * memory)
        time = self.of_worker(SLOT.time + 2 * memory)
        return np.asarray((time + usual) / (results + 1.0))

    def of_worker(self, column: int, workers: Ints | None = None) -> Floats:
        """Return a number of each worker's slot, (E, n), or of some workers; 0 without a slot."""
        rows = np.arange(len(self.slot))[:, None]
        if workers is None:
            slot = self.slot
        else:
            slot = self.slot[rows, workers]
        # a slot of -1 picks the number of the last slot, which is not used
        return np.where(slot >= 0, self.tracks[rows, slot, column], 0.0)

    def slow_start(self) -> SlowStart:
        """Return how much longer each worker's tasks take while it is young.

        See ``adjustments.age.find_slow_starts``.
        """
        return SlowStart(*find_slow_starts(self.tracks, self.row, self.slot, self.counts))

    def mean(self) -> Floats:
        """Return the time spent per result, (E, n); NaN for workers never tried.

        Where a worker has no result, it is the time spent, as if a first result came now.
        """
        return np.where(self.untried(), np.nan, self.busy) / np.maximum(self.counts, 1.0)

    def untried(self) -> Mask:
        """Return which workers have no finished and no cancelled task that counts, (E, n)."""
        return np.asarray((self.counts == 0.0) & (self.busy == 0.0))

    def trust(self) -> Floats:
        """Return the weight of a worker's own distribution, from 0 to 1, (E, n).

        The rest is the weight of the distribution of all workers.
        """
        later = self.later()
        return later / (later + TRUST)

    def mass(self) -> Floats:
        """Return how many results tell how a worker's times vary, (E, n).

        They include results that no longer tell how long the times are.
        """
        return np.where(self.slot >= 0, self.of_worker(SLOT.mass), self.counts)

    def later(self, workers: Ints | None = None) -> Floats:
        """Return how many results after the first are counted in bins.

        Args:
            workers: (E, m) whose results; the numbers have this shape. None: all workers, (E, n).
        """
        return np.maximum(self.of_worker(SLOT.mass, workers) - 1.0, 0.0)

    def take_workers(self, workers: Ints) -> "DistributionBelief":
        """Return the belief about some workers only, in this order, as if there were no others.

        Args:
            workers: (E, m) which workers.
        """
        slot = np.take_along_axis(self.slot, workers, 1)
        has_slot = slot >= 0
        # a worker without a slot gets the numbers of slot 0, times 0
        from_slot = np.maximum(slot, 0)
        bins = np.take_along_axis(self.bins, from_slot[:, :, None, None], 1)
        bins = bins * has_slot[:, :, None, None]
        tracks = np.take_along_axis(self.tracks, from_slot[:, :, None], 1) * has_slot[:, :, None]
        places = np.broadcast_to(np.arange(workers.shape[1], dtype=np.int32), workers.shape)
        return self._replace(
            counts=np.take_along_axis(self.counts, workers, 1),
            totals=np.take_along_axis(self.totals, workers, 1),
            deviations=np.take_along_axis(self.deviations, workers, 1),
            busy=np.take_along_axis(self.busy, workers, 1),
            cancellations=np.take_along_axis(self.cancellations, workers, 1),
            anchor=np.take_along_axis(self.anchor, workers, 1),
            last=np.take_along_axis(self.last, workers, 1),
            slot=places,
            owner=places,
            bins=bins,
            tracks=tracks,
        )


@kernel("(n),(n),(n),(),()->(n)")
def _stale(
    last: Floats,
    counts: Floats,
    busy: Floats,
    since: Floats,
    clock: Floats,
    out: Mask,
) -> None:
    """Find the workers that are due for another try, see ``DistributionBelief.stale``."""
    rounds = max(since[0], 1.0)
    interval = RETRIED_EVERY
    # the last moment at which tries were due, and the interval before it
    if rounds < 10.0 * RETRIED_EVERY:
        moment = RETRIED_EVERY * math.floor(rounds / RETRIED_EVERY)
    else:
        exponent = math.floor(math.log(rounds / (10.0 * RETRIED_EVERY)) / math.log(1.1))
        moment = 10.0 * RETRIED_EVERY * 1.1**exponent
        interval = moment / 11.0
    for i in range(len(last)):
        if last[i] > 0.0:
            idle = clock[0] - last[i]
        else:
            idle = math.inf
        out[i] = idle >= 0.5 * interval + rounds - moment and (counts[i] > 0.0 or busy[i] > 0.0)
