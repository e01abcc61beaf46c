"""A belief that notices a change by the generalised likelihood ratio, worker by worker.

Besson, Kaufmann et al., "Efficient change-point detection for tackling piecewise-stationary bandits", JMLR 2022
(formulas recalled). The likelihood of gamma times and the streaming form are ours.
"""

from __future__ import annotations

import math

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc
from ata_policies.beliefs.change_detection.page_hinkley import MonitoredMoments

_FINEST, _SCALES = 2, 9  # it looks back over 2^2 to 2^10 tasks


class Glr(MonitoredMoments):
    """The generalised likelihood ratio (GLR) of gamma times: whether two means in turn are likelier than one.

    With t tasks of mean m since the last alarm, of which the first s have mean m_1 and the others m_2,

        max over s of shape (s ln(m / m_1) + (t - s) ln(m / m_2)) >= threshold + 1.5 ln t

    raises an alarm: this is s kl(m_1, m) + (t - s) kl(m_2, m) of Besson and Kaufmann with the kl of gamma times and
    beta = ln(3 t^1.5 / delta). In a stream, s is the last but one multiple of 2^j up to t, j = 2 to 10, so that 2^j <=
    t - s < 2^(j + 1), and a single task is no change. From 4 to 2^11 tasks after a change, at least one of these splits
    has only tasks after the change in its second part, and at least a quarter of them. The test is made once a round.
    """

    @classmethod
    def own(cls) -> tuple[int, dict[str, float]]:
        """Totals at the last two multiples of each power, and tasks and total since the last alarm; delta is 1e-5."""
        return 2 * _SCALES + 2, {"threshold": math.log(3e5)}

    def look(self, worker: Ints, duration: Floats, clipped: Floats, shapes: Floats) -> tuple[Floats, Mask]:
        """See the class."""
        marks, alarm = _glr(self.marks, shapes, self.constants.threshold, self.constants.least, worker, clipped)
        return marks, alarm


@gufunc(
    "void(float64[:,:], float64[:], float64[:], float64[:], int64[:], float64[:], float64[:,:], boolean[:])",
    "(n,k),(n),(),(),(b),(b)->(n,k),(n)",
)
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
