"""Beliefs that notice a change, worker by worker: Page-Hinkley's test, CUSUM and the generalised likelihood ratio.

Liu, Lee and Shroff, "A change-detection based framework for piecewise-stationary multi-armed bandit problem", AAAI
2018; Besson, Kaufmann et al., "Efficient change-point detection for tackling piecewise-stationary bandits", JMLR 2022
(formulas recalled). Ours are: a test for workers that are out of use, and times that are relative to the mean, so that
one threshold fits all workers, and clipped, so that an outlier is no change.
"""

import math
from typing import Annotated, NamedTuple, Self, TypeAlias

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import kernel
from ata_gym.utils.ranges import Counts, Squares, Times, Unending, Within
from ata_policies.beliefs.moments import Moments, Totals, learn_shapes

_FINEST, _SCALES = 2, 9  # GLR looks back over 2^2 to 2^10 tasks
_WEIGHT = 5.0  # tasks that the other workers' shapes count for
_SURPRISING = 3.0  # the log likelihood ratio at which one short task of a worker out of use outweighs its past
_DEVIATIONS = 6.0  # standard deviations above the mean that a task counts for at most
_STEP = 0.34  # the share of its way to the threshold that a task may move a statistic: it takes three
_TOGETHER = 10.0  # alarms within so many rounds are one event
_Memory: TypeAlias = Annotated[Floats, Within(1.0, math.inf)]


class DetectorConstants(NamedTuple):
    """The constants of a detector, each of shape (E,); infinite ``frozen``, ``memory`` and ``refresh`` mean never."""

    threshold: Times  # the statistic at which an alarm is raised
    up: Times  # the relative drift upwards that raises no alarm, for CUSUM and Page-Hinkley
    down: Times  # the same downwards
    frozen: Unending  # the tasks since the last alarm after which the mean that CUSUM compares with stays as it is
    least: Counts  # the tasks of a worker before it is watched, and its times are clipped
    clip: Times  # a time is clipped at 1 + clip means, or 6 deviations above the mean if that is less, but 1 + up
    memory: _Memory  # a worker's task counts 1 - 1 / memory times as much with each later one
    share: Unending  # all workers start anew if more than this share of those with a task raise an alarm together
    refresh: Unending  # the rounds after which workers out of use are tried again


_USUAL = {"up": 0.5, "down": 0.25, "least": 20.0, "clip": 4.0, "share": 0.0}
_USUAL |= dict.fromkeys(("frozen", "memory", "refresh"), math.inf)


class MonitoredMoments(NamedTuple):
    """Moments of the task times since the last alarm, and the memory of a detector."""

    counts: Counts  # (E, n) tasks seen, of which old ones count less
    totals: Times  # (E, n) their clipped times added up, likewise
    deviations: Squares  # (E, n) the squared deviations of these from their mean added up, likewise
    marks: Times  # (E, n, k) the numbers that the detector remembers
    idle: Counts  # (E, n) rounds since the worker's last result
    since_alarm: Unending  # (E, n) rounds since the worker's last alarm; infinite before, and once all start anew
    rounds_since: Counts  # (E,) rounds since everybody started anew
    alarms: Counts  # (E, n) alarms so far
    constants: DetectorConstants  # the detector's constants

    @classmethod
    def empty(cls, rows: int, n: int, **constants: float) -> Self:
        """Nothing is known; ``constants`` replace the detector's own."""
        size, own = cls.own()
        values = {**_USUAL, **own, **constants}
        detector = DetectorConstants(*(np.full(rows, values[name]) for name in DetectorConstants._fields))
        counts, totals, deviations, idle, alarms = np.zeros((5, rows, n))
        marks, since_alarm = np.zeros((rows, n, size)), np.full((rows, n), np.inf)
        return cls(counts, totals, deviations, marks, idle, since_alarm, np.zeros(rows), alarms, detector)

    @classmethod
    def own(cls) -> tuple[int, dict[str, float]]:
        """The size of the detector's marks, and its constants that are not the usual ones."""
        raise NotImplementedError

    def look(self, worker: Ints, duration: Floats, clipped: Floats, shapes: Floats) -> tuple[Floats, Mask]:
        """The marks after a round, and which workers raise an alarm, shape (E, n)."""
        raise NotImplementedError

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> Self:
        """See ``Belief.observe``; cancelled tasks do not count.

        A worker that raises an alarm starts anew with this round's results; so does a worker out of use whose task is
        surprisingly short. At an alarm everybody starts anew if the workers that have raised one within 10 rounds are
        more than the ``share`` of the workers with results in this round.
        """
        constants, shapes = self.constants, learn_shapes(Moments(*self[:3]), _WEIGHT)
        clip = shapes, constants.least, constants.clip, constants.up, worker, duration
        clipped = _clipped(self.counts, self.totals, *clip)
        marks, alarm = self.look(worker, duration, clipped, shapes)
        anew = alarm | _surprising(self.counts, self.totals, self.idle, shapes, constants.refresh, worker, duration)
        played = (worker[:, 0] >= 0)[:, None]  # there is no round before the first
        kept = self._replace(since_alarm=np.where(anew, 0.0, self.since_alarm + played), alarms=self.alarms + alarm)
        tasks, _ = Totals.empty(*anew.shape).observe(worker, duration)
        if anew.any():
            enough = (kept.since_alarm < _TOGETHER).sum(axis=1) > constants.share * (tasks > 0).sum(axis=1)
            everybody = (alarm.any(axis=1) & enough)[:, None]
            kept = kept.forgetting(anew | everybody)._replace(
                since_alarm=np.where(everybody, np.inf, kept.since_alarm),
                rounds_since=np.where(everybody[:, 0], 0.0, self.rounds_since),
            )
            clipped = _clipped(kept.counts, kept.totals, *clip)
            marks, _ = kept.look(worker, duration, clipped, shapes)
        kept_share = (1.0 - 1.0 / constants.memory[:, None]) ** tasks
        counts, totals, deviations = Moments(*kept[:3]).scaled(kept_share).observe(worker, clipped)
        return kept._replace(
            counts=counts, totals=totals, deviations=deviations, marks=marks,
            idle=np.where(tasks > 0, 0.0, self.idle + played), rounds_since=kept.rounds_since + played[:, 0],
        )  # fmt: skip

    def forgetting(self, workers: Mask) -> Self:
        """The belief in which nothing is known of some workers, a mask of shape (E, n)."""
        counts, totals, deviations = (np.where(workers, 0.0, part) for part in self[:3])
        marks = np.where(workers[:, :, None], 0.0, self.marks)
        return self._replace(counts=counts, totals=totals, deviations=deviations, marks=marks)

    def untried(self) -> Mask:
        """Which workers have never finished a task, or are to be tried again, shape (E, n).

        Every ``refresh`` rounds, workers without a task for half as long are tried again, all in one round if they are
        at most B: a round lasts as long as its slowest worker, so it is cheaper to try them together.
        """
        refresh = self.constants.refresh[:, None]
        due = self.idle >= 0.5 * refresh + self.rounds_since[:, None] % refresh
        return np.asarray(due | (self.counts == 0))


class PageHinkley(MonitoredMoments):
    """Page-Hinkley's test, two-sided, on the relative times z = x / mean - 1 of a worker's tasks.

        up <- max(up + z - up drift, 0),    down <- max(down - z - down drift, 0),

    and an alarm is raised once one of them is at least threshold / shape. The mean is that of earlier rounds. The
    shape, 1 / (coefficient of variation)^2 of the worker's times, makes false alarms equally rare for times of any
    spread: 48 is 12 where the coefficient is 0.5. A task adds at most 0.34 threshold / shape, so that a single task is
    no change. Ours.
    """

    @classmethod
    def own(cls) -> tuple[int, dict[str, float]]:
        """Marks are the two statistics, the tasks since the last alarm, and the frozen mean."""
        return 4, {"threshold": 48.0}

    def look(self, worker: Ints, duration: Floats, clipped: Floats, shapes: Floats) -> tuple[Floats, Mask]:
        known = self.counts, self.totals, self.marks, shapes, *self.constants[:5]  # as far as least
        marks, alarm = _cusum(*known, worker, duration)
        return marks, alarm


class Cusum(PageHinkley):
    """CUSUM: Page-Hinkley's test against a mean that stays as it is once it rests on ``frozen`` tasks.

    So it also notices slow changes.
    """

    @classmethod
    def own(cls) -> tuple[int, dict[str, float]]:
        return 4, {"threshold": 48.0, "frozen": 200.0}


class Glr(MonitoredMoments):
    """The generalised likelihood ratio (GLR) of gamma times: whether two means in turn are likelier than one.

    With t tasks of mean m since the last alarm, of which the first s have mean m_1 and the others m_2,

        max over s of shape (s ln(m / m_1) + (t - s) ln(m / m_2)) >= threshold + 1.5 ln t

    raises an alarm: this is s kl(m_1, m) + (t - s) kl(m_2, m) of Besson and Kaufmann with the kl of gamma times and
    beta = ln(3 t^1.5 / delta). In a stream, s is the last but one multiple of 2^j up to t, j = 2 to 10, so that 2^j <=
    t - s < 2^(j + 1), and a single task is no change. The test is made once a round.
    """

    @classmethod
    def own(cls) -> tuple[int, dict[str, float]]:
        """Marks are totals at the last two multiples of each power, and tasks and total; delta is 1e-5."""
        return 2 * _SCALES + 2, {"threshold": math.log(3e5)}

    def look(self, worker: Ints, duration: Floats, clipped: Floats, shapes: Floats) -> tuple[Floats, Mask]:
        marks, alarm = _glr(self.marks, shapes, self.constants.threshold, self.constants.least, worker, clipped)
        return marks, alarm


@kernel("(n),(n),(n),(),(),(),(b),(b)->(b)")
def _clipped(
    count: Floats, total: Floats, shape: Floats, least: Floats, clip: Floats, up: Floats, worker: Ints,
    duration: Floats, out: Floats,
) -> None:  # fmt: skip
    for b in range(len(worker)):
        i = worker[b]
        out[b] = duration[b]
        if i >= 0 and count[i] >= least[0]:
            most = min(max(_DEVIATIONS / math.sqrt(shape[i]), up[0]), clip[0])
            out[b] = min(duration[b], (1.0 + most) * total[i] / count[i])


@kernel("(n),(n),(n),(n),(),(b),(b)->(n)")
def _surprising(
    count: Floats, total: Floats, idle: Floats, shape: Floats, refresh: Floats, worker: Ints, duration: Floats,
    out: Mask,
) -> None:  # fmt: skip
    out[:] = False
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0 and idle[i] >= 0.5 * refresh[0] and 0.0 < duration[b] * count[i] < total[i]:
            k, ratio = count[i], duration[b] * count[i] / total[i]
            if shape[i] * ((k + 1.0) * math.log((k + ratio) / (k + 1.0)) - math.log(ratio)) >= _SURPRISING:
                out[i] = True


@kernel("(n),(n),(n,k),(n),(),(),(),(),(),(b),(b)->(n,k),(n)")
def _cusum(
    count: Floats, total: Floats, marks: Floats, shape: Floats,
    threshold: Floats, up: Floats, down: Floats, frozen: Floats, least: Floats, worker: Ints, duration: Floats,
    new_marks: Floats, alarm: Mask,
) -> None:  # fmt: skip
    new_marks[:], alarm[:] = marks, False
    for i in range(len(count)):
        if marks[i, 3] == 0.0 and marks[i, 2] >= frozen[0]:
            new_marks[i, 3] = total[i] / count[i]
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_marks[i, 2] += 1.0
        if i >= 0 and count[i] >= least[0]:
            mean = new_marks[i, 3] if new_marks[i, 3] > 0.0 else total[i] / count[i]
            z, limit = duration[b] / mean - 1.0 if mean > 0.0 else 0.0, threshold[0] / shape[i]
            new_marks[i, 0] = max(new_marks[i, 0] + min(z - up[0], _STEP * limit), 0.0)
            new_marks[i, 1] = max(new_marks[i, 1] + min(-z - down[0], _STEP * limit), 0.0)
            if max(new_marks[i, 0], new_marks[i, 1]) >= limit:
                alarm[i] = True


@kernel("(n,k),(n),(),(),(b),(b)->(n,k),(n)")
def _glr(
    marks: Floats, shape: Floats, threshold: Floats, least: Floats, worker: Ints, duration: Floats,
    new_marks: Floats, alarm: Mask,
) -> None:  # fmt: skip
    n, k = marks.shape
    scales, tasks, total = k // 2 - 1, k - 2, k - 1
    new_marks[:], alarm[:] = marks, False
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_marks[i, tasks] += 1.0
            new_marks[i, total] += duration[b]
            t, j = np.int64(new_marks[i, tasks]), 0
            while j < scales and t & ((1 << (j + _FINEST)) - 1) == 0:
                new_marks[i, 2 * j] = new_marks[i, 2 * j + 1]
                new_marks[i, 2 * j + 1] = new_marks[i, total]
                j += 1
    for i in range(n):
        t, whole = np.int64(new_marks[i, tasks]), new_marks[i, total]
        if t == marks[i, tasks] or t < least[0] or whole <= 0.0:
            continue
        limit = (threshold[0] + 1.5 * math.log(t)) / shape[i]
        for j in range(scales):
            s = ((t >> (j + _FINEST)) - 1) << (j + _FINEST)
            if s < 1:
                break
            first = new_marks[i, 2 * j]
            second = whole - first
            if first <= 0.0 or second <= 0.0:
                continue
            mean = whole / t
            if s * math.log(mean * s / first) + (t - s) * math.log(mean * (t - s) / second) >= limit:
                alarm[i] = True
