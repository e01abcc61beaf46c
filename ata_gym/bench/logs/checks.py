"""Which steps of a log bear an answer, and whether its times hold the wait for other workers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask

_LONG_START = 5.0
"""How many times as long as a usual step the steps of a warm-up take, at least."""
_LONG_START_PART = 0.25
"""The largest part of the steps that is a warm-up."""
_LONG_FOR_ALL = 10.0
"""How many times as long as usual a step takes on every worker that is left out."""
_LEAST_PAUSES = 3
"""The least number of such times of one worker, as far apart as each other, that are pauses."""
_CUT_STEP = 0.1
"""The part of its usual time that every worker takes, at most, in a last step that was cut off."""

_ALIKE = 1e-3
"""The spread of a step, as a part of it, below which all workers have one time."""
_ALIKE_PART = 0.9
"""The part of the steps that must be so."""
_NEAR = 0.01
"""The spread of workers, as a part of a step, below which they are near equal."""
_DOUBTFUL = 0.03
"""The spread of workers, as a part of a step, below which it is doubtful whether they differ."""
_RARELY_FAR = 0.02
"""How much more than the median the mean spread is where workers differ much in some steps."""
_DOUBTFUL_COMMON = 1.5
"""How many times as much as workers steps differ, at least, where all may wait for the same."""
_CHANCE = 4.0
"""By how many standard errors the medians of workers differ by chance, at most."""
_COMMON = 3.0
"""The same, where they probably do."""
_LEAST_STEPS = 10
"""The least number of steps by which it is said how much they differ."""
_LEAST_CANCELLING_STEPS = 20
"""The least number of steps by which it is said whether differences cancel."""
_CANCELLING = -0.3
"""The largest correlation of a worker's differences in steps that follow, where they cancel.

It is -0.5 where all do."""
_LARGEST_CANCELLING = 0.06
"""The largest standard deviation of such differences, as a part of a step.

A worker that is slow in turn makes larger ones cancel, too."""
_DEVIATIONS = 3.5
"""The number of standard deviations by which that correlation is below 0, at least."""
_LESS_THAN_EXPECTED = 0.7
"""The largest difference of totals where differences cancel, as a part of that if they do not."""


class Agreement(NamedTuple):
    """How far the times of workers in the same step are the same."""

    holds_wait: bool
    """Whether the times are of whole steps, with the wait, as far as they say anything."""
    finding: str
    """What was seen, as the beginning of a sentence; empty if the times differ."""
    near: bool = False
    """Whether the times are near equal, so that they hold the wait if other columns say so."""


def typical_spread(seconds: Floats) -> float:
    """Return the median over the steps of the spread of the workers, as a part of the longest.

    Args:
        seconds: (steps, workers).

    Example:
        >>> typical_spread(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 1.0]]))
        0.25
    """
    return float(np.median(_spreads(seconds)))


def agreement(seconds: Floats) -> Agreement:
    """Say whether all workers of a step have the same time, as in times of whole steps.

    Workers that wait for each other end their steps together: a time that holds the wait is the
    same on all, though steps differ. Times of a worker's own work differ by more than .1 %, unless
    they are rounded.

    Args:
        seconds: (steps, workers): the times.

    Example:
        >>> step_times = np.random.default_rng(0).gamma(100.0, 0.01, (40, 1))
        >>> agreement(step_times * [1.0, 1.0001]).holds_wait
        True
        >>> agreement(np.random.default_rng(0).gamma(100.0, 0.01, (40, 2)))
        Agreement(holds_wait=False, finding='', near=False)
    """
    longest = seconds.max(axis=1)
    usual = float(np.median(longest))
    spreads = _spreads(seconds)
    if not (seconds > 0).all() or spreads.mean() > np.median(spreads) + _RARELY_FAR:
        return Agreement(False, "")
    alike = float((spreads <= _ALIKE).mean()) >= _ALIKE_PART
    by_step = seconds.mean(axis=1)
    variation = float(np.subtract(*np.quantile(by_step, (0.9, 0.1)))) / usual
    if alike:
        finding = f"the times of all workers are the same within {100 * _ALIKE:g} % in each step"
        return Agreement(variation > 2.0 * _resolution(seconds, usual), finding)
    relative = seconds / by_step[:, None]
    by_worker = np.median(relative, axis=0)
    # the standard deviation of normal differences, from the median over the steps
    freedom = seconds.shape[1] - 1
    variances = (relative / by_worker).var(axis=1, ddof=1)
    below_mean = (1.0 - 2.0 / (9.0 * freedom)) ** 3
    differences = float(np.sqrt(np.median(variances) / below_mean))
    persistent = float(by_worker.max() - by_worker.min())
    between = max(differences, persistent)
    # for a normal distribution, from the first to the last tenth it is 2.56 standard deviations
    common = variation / 2.56
    # workers that wait for each other take the same time in all, up to what chance makes
    by_chance = _CHANCE * differences / float(np.sqrt(len(seconds)))
    doubtful = between <= _DOUBTFUL and common >= _DOUBTFUL_COMMON * between
    doubtful = doubtful and persistent <= _NEAR + by_chance
    if len(seconds) < _LEAST_STEPS:
        return Agreement(False, "")
    if not doubtful:
        return Agreement(False, _cancelling(relative))
    finding = (
        f"the times of all workers are near equal in each step, within"
        f" {100 * typical_spread(seconds):.2g} %, while the steps differ by"
        f" {100 * variation:.3g} %"
    )
    # sequences or batches of other lengths on all workers make such steps, too
    return Agreement(False, finding, between <= _NEAR and common >= _COMMON * between)


def doubt_of(seconds: Floats) -> str:
    """Return why times may hold the wait, as a sentence; empty if they do not.

    Args:
        seconds: (steps, workers): the times.

    Raises:
        ValueError: If the times hold the wait, as far as they say anything.
    """
    holds_wait, finding, _ = agreement(seconds)
    if holds_wait:
        raise ValueError(
            f"{finding}: these times include the wait for the slowest, so that this log cannot say"
            " who it is; record the time of each worker until its gradient is there, before the"
            " all-reduce",
        )
    if not finding:
        return ""
    return (
        f"{finding}: either workers are near equal, or the times include the wait for others. The"
        " time of each worker until its gradient is there, before the all-reduce, would say it."
    )


def usual_steps(
    seconds: Floats,
    steps: Sequence[str],
    unit: str,
) -> tuple[Mask, list[str]]:
    """Return which steps, (steps,), are neither warm-up nor cut off, and remarks on the others.

    The first steps are warm-up where their longest time is over five times the time of a usual
    step. A step that takes over ten times as long as usual on every worker is compilation,
    evaluation or a checkpoint. The last is cut off if every worker takes less than a tenth of its
    usual time. A step that is long on some workers only is none of these.

    Args:
        seconds: (steps, workers): the times.
        steps: The names of the steps.
        unit: The unit of the times, if it is known.
    """
    longest = seconds.max(axis=1)
    usual = float(np.median(longest))
    by_worker = np.median(seconds, axis=0)
    long_start = longest > _LONG_START * usual
    # the number of first steps without a gap
    first = int(np.logical_and.accumulate(long_start).sum())
    if first > _LONG_START_PART * len(seconds) or usual <= 0:
        first = 0
    warmup = np.arange(len(seconds)) < first
    if (by_worker > 0).all():
        paused = (seconds > _LONG_FOR_ALL * by_worker).all(axis=1) & ~warmup
        cut = np.zeros_like(paused)
        cut[-1] = (seconds[-1] < _CUT_STEP * by_worker).all()
    else:
        paused = np.zeros_like(warmup)
        cut = paused
    kept = ~(warmup | paused | cut)
    if kept.all() or kept.sum() < 2:
        return np.ones_like(kept), []
    remarks = []
    reasons = (
        (warmup, "warm-up"),
        (paused, "on every worker, as compilation, evaluation and checkpoints do"),
        (cut, "cut off"),
    )
    for mask, reason in reasons:
        if mask.any():
            remarks.append(_remark(mask, reason, longest, usual, steps, unit))
    return kept, remarks


def regular_pauses(
    seconds: Floats, steps: Sequence[str], workers: Sequence[str], unit: str
) -> list[str]:
    """Return a remark on the workers that alone are long every so many steps.

    A rank that saves checkpoints or evaluates for all is so. That is no work that others can share,
    while a replay of the steps shares all of the time. Where most workers that are often long are
    so at any time, equal distances of some are chance.

    Args:
        seconds: (steps, workers): the times.
        steps: The names of the steps; whole numbers count the steps that were left out, too.
        workers: The names of the workers.
        unit: The unit of the times, if it is known.

    Example:
        >>> seconds = np.ones((9, 2))
        >>> seconds[2::3, 0] = 20.0
        >>> regular_pauses(seconds, "123456789", "ab", "s")[0][:58]
        'Worker a took up to 20 s in steps 3, 6, 9, every 3 steps, '
    """
    usual = np.median(seconds, axis=0)
    long = seconds > _LONG_FOR_ALL * np.where(usual > 0, usual, np.inf)
    # where all are long, it is no matter of one
    long &= ~long.all(axis=1, keepdims=True)
    if all(name.isdecimal() for name in steps):
        numbers = np.array([int(name) for name in steps])
    else:
        numbers = np.arange(len(steps))
    often = np.flatnonzero(long.sum(axis=0) >= _LEAST_PAUSES).tolist()
    regular = []
    for worker in often:
        places = np.flatnonzero(long[:, worker])
        gaps = np.diff(numbers[places])
        if np.diff(places).min() > 1 and np.ptp(gaps) == 0:
            regular.append((worker, places, gaps[0]))
    if not regular or 2 * len(regular) < len(often):
        return []
    worker, places, gap = regular[0]
    unit_text = f" {unit}" if unit else ""
    others = ""
    if len(regular) > 1:
        others = f" {len(regular) - 1} more of {len(workers)} workers pause as regularly."
    return [
        f"Worker {workers[worker]} took up to {seconds[places, worker].max():.3g}{unit_text}"
        f" in steps {_names(steps, places)}, every {gap} steps, where"
        f" {usual[worker]:.3g}{unit_text} is usual, as a rank does that saves checkpoints or"
        " evaluates for all. No other split saves that, and what is said to be saved holds it:"
        f" leave it out of the times.{others}",
    ]


def _names(steps: Sequence[str], places: Ints) -> str:
    """The names of some steps, cut after four."""
    names = ", ".join(steps[place] for place in places[:4].tolist())
    if len(places) > 4:
        names += f" and {len(places) - 4} more"
    return names


def _remark(
    mask: Mask,
    reason: str,
    longest: Floats,
    usual: float,
    steps: Sequence[str],
    unit: str,
) -> str:
    """The sentence on the steps that are left out for one reason."""
    indices = np.flatnonzero(mask)
    times = longest[indices]
    size = f"{times.max():.3g}"
    names = _names(steps, indices)
    if len(indices) > 1:
        subject = f"Steps {names}"
        most = "up to "
        verb = "they are"
    else:
        subject = f"Step {names}"
        most = ""
        verb = "it is"
    unit_text = f" {unit}" if unit else ""
    if reason == "warm-up":
        fault = f"took {most}{size}{unit_text}, as warm-up"
    elif reason == "cut off":
        fault = f"took {size}{unit_text}, as one that was cut off"
    else:
        fault = f"took {most}{size}{unit_text} {reason}"
    return (
        f"{subject} {fault}, where {usual:.3g}{unit_text} is usual:"
        f" {verb} left out; --warmup 0 keeps all steps."
    )


def _spreads(seconds: Floats) -> Floats:
    """(steps,): the difference of the longest and the shortest, as a part of the longest."""
    longest = seconds.max(axis=1)
    with np.errstate(invalid="ignore"):
        spreads: Floats = (longest - seconds.min(axis=1)) / longest
    return np.nan_to_num(spreads)


def _cancelling(relative: Floats) -> str:
    """Say that differences of workers cancel from step to step, as in times of whole steps.

    Workers that leave each step together, at slightly different times, are late in one step by what
    they are early in the next; differences of work are independent, or stay.

    Args:
        relative: (steps, workers): the times, over the time of the step.
    """
    totals = relative.mean(axis=0)
    residuals = relative - totals
    residuals -= residuals.mean(axis=1, keepdims=True)
    variance = float((residuals**2).mean())
    if len(relative) < _LEAST_CANCELLING_STEPS or not 0 < variance < _LARGEST_CANCELLING**2:
        return ""
    follows = float((residuals[1:] * residuals[:-1]).mean()) / variance
    # of independent differences, the totals differ by the root of the number of steps
    expected = np.sqrt(variance / len(relative))
    count = residuals.size - len(residuals)
    significant = follows * np.sqrt(count) < -_DEVIATIONS
    if not significant or follows > _CANCELLING or np.std(totals) > _LESS_THAN_EXPECTED * expected:
        return ""
    return "what a worker is slower than others in a step, it is faster in the next"


def _resolution(seconds: Floats, usual: float) -> float:
    """The least difference of two times, as a part of a usual step; 0 where nothing is rounded."""
    distinct = np.unique(seconds)
    if len(distinct) < 2:
        return 0.0
    least = float(np.diff(distinct).min()) / usual
    # times that are not rounded have small differences by chance
    return least if least > _ALIKE else 0.0
