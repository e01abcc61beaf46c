"""Beliefs that notice changes of a worker: Page-Hinkley's test, CUSUM and likelihood ratios.

Liu, Lee and Shroff, "A change-detection based framework for piecewise-stationary multi-armed bandit
problem", AAAI 2018; Besson, Kaufmann et al., "Efficient change-point detection for tackling
piecewise-stationary bandits", JMLR 2022 (formulas recalled). Two things are ours. Workers out of
use have a test of their own. Times are relative to the mean, so that one threshold fits all
workers, and clipped, so that an outlier is no change.
"""

import math
from typing import Annotated, NamedTuple, Self, TypeAlias

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import copy_rows, kernel
from ata_gym.utils.ranges import Counts, NonNegative, Squares, Times, Within
from ata_policies.beliefs.moments import Moments, Totals, learn_shapes

_FINEST = 2
"""GLR looks back over at least 2^2 tasks."""
_SCALES = 9
"""The powers of two over which GLR looks back: from 2^2 to 2^10 tasks."""
_WEIGHT = 5.0
"""Tasks that the other workers' shapes count for."""
_SURPRISING = 3.0
"""The log likelihood ratio at which a short task of a worker out of use outweighs its past."""
_DEVIATIONS = 6.0
"""Standard deviations above the mean that a task counts for at most."""
_STEP = 0.34
"""The share of the threshold by which a task may move a statistic: an alarm takes three."""
_ROUNDS_TOGETHER = 10.0
"""Alarms within so many rounds are one event."""

# the columns of the marks of Page-Hinkley's test and CUSUM
_RISE = 0
_FALL = 1
_TASKS = 2
_FIXED_MEAN = 3
_Memory: TypeAlias = Annotated[Floats, Within(1.0, math.inf)]


class DetectorConstants(NamedTuple):
    """The constants of a detector, each of shape (E,).

    Infinite ``frozen``, ``memory`` and ``refresh`` mean never.
    """

    threshold: Times
    """The statistic at which an alarm is raised."""
    up: Times
    """The relative drift upwards that raises no alarm, for CUSUM and Page-Hinkley."""
    down: Times
    """The same downwards."""
    frozen: NonNegative
    """The tasks since the last alarm after which CUSUM's reference mean is fixed."""
    least: Counts
    """The tasks of a worker before it is watched, and its times are clipped."""
    clip: Times
    """A time is clipped at 1 + clip means.

    It is clipped at 6 standard deviations above the mean if they are less, but not below 1 + up
    means.
    """
    memory: _Memory
    """A worker's task counts 1 - 1 / memory times as much with each later one."""
    share: NonNegative
    """The share of workers with a task whose alarms together make all workers start anew.

    All start anew if more than this share raise an alarm.
    """
    refresh: NonNegative
    """The rounds after which workers out of use are tried again."""


_USUAL = {
    "up": 0.5,
    "down": 0.25,
    "least": 20.0,
    "clip": 4.0,
    "share": 0.0,
    "frozen": math.inf,
    "memory": math.inf,
    "refresh": math.inf,
}
"""The constants of a detector that it does not replace; it has a threshold of its own."""


class MonitoredMoments(NamedTuple):
    """Moments of the task times since the last alarm, and the memory of a detector."""

    counts: Counts
    """(E, n) tasks seen, of which old ones count less."""
    totals: Times
    """(E, n) their clipped times added up, likewise."""
    deviations: Squares
    """(E, n) the squared deviations of these from their mean added up, likewise."""
    marks: Times
    """(E, n, k) the numbers that the detector remembers."""
    idle: Counts
    """(E, n) rounds since the worker's last result."""
    since_alarm: NonNegative
    """(E, n) rounds since the worker's last alarm; infinite before, and once all start anew."""
    rounds_since: Counts
    """(E,) rounds since all workers started anew."""
    alarms: Counts
    """(E, n) alarms so far."""
    constants: DetectorConstants
    """The detector's constants."""

    @classmethod
    def empty(cls, rows: int, n: int, **constants: float) -> Self:
        """Return a belief in which nothing is known.

        Args:
            rows: Rows E.
            n: Workers.
            constants: Values in place of the detector's own, by name, for all rows.
        """
        size, own_constants = cls.defaults()
        values = {**_USUAL, **own_constants, **constants}
        detector = DetectorConstants(
            *(np.full(rows, values[name]) for name in DetectorConstants._fields),
        )
        counts, totals, deviations, idle, alarms = np.zeros((5, rows, n))
        marks = np.zeros((rows, n, size))
        since_alarm = np.full((rows, n), np.inf)
        return cls(
            counts,
            totals,
            deviations,
            marks,
            idle,
            since_alarm,
            np.zeros(rows),
            alarms,
            detector,
        )

    @classmethod
    def defaults(cls) -> tuple[int, dict[str, float]]:
        """Return the size of the detector's marks, and its constants that are not the usual."""
        raise NotImplementedError

    def look(
        self,
        worker: Ints,
        duration: Floats,
        clipped: Floats,
        shapes: Floats,
    ) -> tuple[Floats, Mask]:
        """Return the marks after a round, (E, n, k), and which workers raise an alarm, (E, n).

        Args:
            worker: (E, R) whose result each one is; -1 means no result.
            duration: (E, R) the task times.
            clipped: (E, R) the clipped task times.
            shapes: (E, n) the shape of each worker's times, see ``learn_shapes``.
        """
        raise NotImplementedError

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> Self:
        """Return the belief after a round, see ``Belief.observe``; cancelled tasks do not count.

        A worker that raises an alarm starts anew with this round's results. So does a worker out of
        use whose task is surprisingly short. At an alarm all workers start anew if the workers that
        have raised one within 10 rounds are more than the ``share`` of the workers with results in
        this round.
        """
        constants = self.constants
        shapes = learn_shapes(self._moments(), _WEIGHT)
        clip = shapes, constants.least, constants.clip, constants.up, worker, duration
        clipped = _clipped(self.counts, self.totals, *clip)
        marks, alarm = self.look(worker, duration, clipped, shapes)
        restarted = alarm | _surprising(
            self.counts,
            self.totals,
            self.idle,
            shapes,
            constants.refresh,
            worker,
            duration,
        )
        # an observation without results is from a reset: there is no round before the first
        played = (worker[:, 0] >= 0)[:, None]
        belief = self._replace(
            since_alarm=np.where(restarted, 0.0, self.since_alarm + played),
            alarms=self.alarms + alarm,
        )
        tasks, _ = Totals.empty(*restarted.shape).observe(worker, duration)
        if restarted.any():
            recent_alarms = (belief.since_alarm < _ROUNDS_TOGETHER).sum(axis=1)
            many = recent_alarms > constants.share * (tasks > 0).sum(axis=1)
            all_restart = (alarm.any(axis=1) & many)[:, None]
            belief = belief.forgetting(restarted | all_restart)._replace(
                since_alarm=np.where(all_restart, np.inf, belief.since_alarm),
                rounds_since=np.where(all_restart[:, 0], 0.0, self.rounds_since),
            )
            # the results of this round are the first of workers that start anew: count them again
            clipped = _clipped(belief.counts, belief.totals, *clip)
            marks, _ = belief.look(worker, duration, clipped, shapes)
        kept_share = (1.0 - 1.0 / constants.memory[:, None]) ** tasks
        counts, totals, deviations = belief._moments().scaled(kept_share).observe(worker, clipped)
        return belief._replace(
            counts=counts,
            totals=totals,
            deviations=deviations,
            marks=marks,
            idle=np.where(tasks > 0, 0.0, self.idle + played),
            rounds_since=belief.rounds_since + played[:, 0],
        )

    def _moments(self) -> Moments:
        """Return the moments alone."""
        return Moments(self.counts, self.totals, self.deviations)

    def forgetting(self, workers: Mask) -> Self:
        """Return the belief in which nothing is known of some workers, a mask of shape (E, n)."""
        counts, totals, deviations = (np.where(workers, 0.0, part) for part in self._moments())
        marks = np.where(workers[:, :, None], 0.0, self.marks)
        return self._replace(counts=counts, totals=totals, deviations=deviations, marks=marks)

    def untried(self) -> Mask:
        """Return which workers have never finished a task, or are to be tried again, (E, n).

        Every ``refresh`` rounds, workers without a task for half as long are tried again, all in
        one round if they are at most B: a round lasts as long as its slowest worker, so it is
        cheaper to try them together.
        """
        refresh = self.constants.refresh[:, None]
        due = self.idle >= 0.5 * refresh + self.rounds_since[:, None] % refresh
        return np.asarray(due | (self.counts == 0))


class PageHinkley(MonitoredMoments):
    """Page-Hinkley's two-sided test on the relative times z = x / mean - 1 of a worker's tasks.

    Each task changes two statistics,

        up <- max(up + z - up drift, 0),    down <- max(down - z - down drift, 0),

    and an alarm is raised once one of them is at least threshold / shape. The mean is the mean of
    earlier rounds. The shape, 1 / (coefficient of variation)^2 of the worker's times, makes false
    alarms equally rare for times of any spread: 48 is 12 where the coefficient is 0.5. A task adds
    at most 0.34 threshold / shape, so that a single task is no change. Ours.
    """

    @classmethod
    def defaults(cls) -> tuple[int, dict[str, float]]:
        """Return the size of the marks and the constants.

        Marks are the two statistics, the tasks since the last alarm, and the mean once it is fixed.
        """
        return 4, {"threshold": 48.0}

    def look(
        self,
        worker: Ints,
        duration: Floats,
        clipped: Floats,
        shapes: Floats,
    ) -> tuple[Floats, Mask]:
        constants = self.constants
        marks, alarm = _cusum(
            self.counts,
            self.totals,
            self.marks,
            shapes,
            constants.threshold,
            constants.up,
            constants.down,
            constants.frozen,
            constants.least,
            worker,
            duration,
        )
        return marks, alarm


class Cusum(PageHinkley):
    """CUSUM: Page-Hinkley's test against a mean that is fixed once it rests on ``frozen`` tasks.

    Because of the fixed mean, it also notices slow changes.
    """

    @classmethod
    def defaults(cls) -> tuple[int, dict[str, float]]:
        return 4, {"threshold": 48.0, "frozen": 200.0}


class Glr(MonitoredMoments):
    """The generalised likelihood ratio (GLR) of gamma times for two means in turn against one.

    With t tasks of mean m since the last alarm, of which the first s have mean m_1 and the others
    m_2,

        max over s of shape (s ln(m / m_1) + (t - s) ln(m / m_2)) >= threshold + 1.5 ln t

    raises an alarm. The left side is s kl(m_1, m) + (t - s) kl(m_2, m) of Besson and Kaufmann with
    the kl of gamma times, and beta = ln(3 t^1.5 / delta). In a stream, s is the last but one
    multiple of 2^j up to t, j = 2 to 10, so that 2^j <= t - s < 2^(j + 1), and a single task is no
    change. The test is made once a round.
    """

    @classmethod
    def defaults(cls) -> tuple[int, dict[str, float]]:
        """Return the size of the marks and the constants; delta is 1e-5.

        Marks are the totals at the last two multiples of each power of two, and then the number of
        tasks and their total.
        """
        return 2 * _SCALES + 2, {"threshold": math.log(3e5)}

    def look(
        self,
        worker: Ints,
        duration: Floats,
        clipped: Floats,
        shapes: Floats,
    ) -> tuple[Floats, Mask]:
        marks, alarm = _glr(
            self.marks,
            shapes,
            self.constants.threshold,
            self.constants.least,
            worker,
            clipped,
        )
        return marks, alarm


@kernel("(n),(n),(n),(),(),(),(b),(b)->(b)")
def _clipped(
    count: Floats,
    total: Floats,
    shape: Floats,
    least: Floats,
    clip: Floats,
    up: Floats,
    worker: Ints,
    duration: Floats,
    out: Floats,
) -> None:
    """Clip the times of workers with at least ``least`` tasks, see ``DetectorConstants.clip``."""
    for b in range(len(worker)):
        i = worker[b]
        out[b] = duration[b]
        if i >= 0 and count[i] >= least[0]:
            limit = min(max(_DEVIATIONS / math.sqrt(shape[i]), up[0]), clip[0])
            out[b] = min(duration[b], (1.0 + limit) * total[i] / count[i])


@kernel("(n),(n),(n),(n),(),(b),(b)->(n)")
def _surprising(
    count: Floats,
    total: Floats,
    idle: Floats,
    shape: Floats,
    refresh: Floats,
    worker: Ints,
    duration: Floats,
    out: Mask,
) -> None:
    """Find the workers out of use with a task so short that their past counts no more."""
    out[:] = False
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0 and idle[i] >= 0.5 * refresh[0] and 0.0 < duration[b] * count[i] < total[i]:
            k = count[i]
            ratio = duration[b] * count[i] / total[i]
            # the log likelihood ratio of gamma times for a mean of its own, against one mean of all
            gain = shape[i] * ((k + 1.0) * math.log((k + ratio) / (k + 1.0)) - math.log(ratio))
            if gain >= _SURPRISING:
                out[i] = True


@kernel("(n),(n),(n,k),(n),(),(),(),(),(),(b),(b)->(n,k),(n)")
def _cusum(
    count: Floats,
    total: Floats,
    marks: Floats,
    shape: Floats,
    threshold: Floats,
    up: Floats,
    down: Floats,
    frozen: Floats,
    least: Floats,
    worker: Ints,
    duration: Floats,
    new_marks: Floats,
    alarm: Mask,
) -> None:
    """Update the marks of ``PageHinkley`` by the results of a round."""
    copy_rows(marks, new_marks)
    alarm[:] = False
    # the mean is fixed as it was before the round
    for i in range(len(count)):
        if marks[i, _FIXED_MEAN] == 0.0 and marks[i, _TASKS] >= frozen[0]:
            new_marks[i, _FIXED_MEAN] = total[i] / count[i]
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_marks[i, _TASKS] += 1.0
        if i >= 0 and count[i] >= least[0]:
            if new_marks[i, _FIXED_MEAN] > 0.0:
                mean = new_marks[i, _FIXED_MEAN]
            else:
                mean = total[i] / count[i]
            if mean > 0.0:
                z = duration[b] / mean - 1.0
            else:
                z = 0.0
            limit = threshold[0] / shape[i]
            new_marks[i, _RISE] = max(new_marks[i, _RISE] + min(z - up[0], _STEP * limit), 0.0)
            new_marks[i, _FALL] = max(new_marks[i, _FALL] + min(-z - down[0], _STEP * limit), 0.0)
            if max(new_marks[i, _RISE], new_marks[i, _FALL]) >= limit:
                alarm[i] = True


@kernel("(n,k),(n),(),(),(b),(b)->(n,k),(n)")
def _glr(
    marks: Floats,
    shape: Floats,
    threshold: Floats,
    least: Floats,
    worker: Ints,
    duration: Floats,
    new_marks: Floats,
    alarm: Mask,
) -> None:
    """Update the marks of ``Glr`` by the results of a round, and test for two means in turn."""
    # marks 2 j and 2 j + 1 are the totals at the last two multiples of 2^(j + 2)
    n, k = marks.shape
    scales = k // 2 - 1
    tasks_mark = k - 2
    total_mark = k - 1
    copy_rows(marks, new_marks)
    alarm[:] = False
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_marks[i, tasks_mark] += 1.0
            new_marks[i, total_mark] += duration[b]
            t = np.int64(new_marks[i, tasks_mark])
            # a multiple of a power of two is a multiple of all lower ones
            j = 0
            while j < scales and t & ((1 << (j + _FINEST)) - 1) == 0:
                new_marks[i, 2 * j] = new_marks[i, 2 * j + 1]
                new_marks[i, 2 * j + 1] = new_marks[i, total_mark]
                j += 1
    for i in range(n):
        t = np.int64(new_marks[i, tasks_mark])
        total = new_marks[i, total_mark]
        if t == marks[i, tasks_mark] or t < least[0] or total <= 0.0:
            continue
        limit = (threshold[0] + 1.5 * math.log(t)) / shape[i]
        for j in range(scales):
            s = ((t >> (j + _FINEST)) - 1) << (j + _FINEST)
            if s < 1:
                break
            head = new_marks[i, 2 * j]
            tail = total - head
            if head <= 0.0 or tail <= 0.0:
                continue
            mean = total / t
            ratio = s * math.log(mean * s / head) + (t - s) * math.log(mean * (t - s) / tail)
            if ratio >= limit:
                alarm[i] = True
