"""What a way saves of the time of the same steps as they were, with its interval."""

import numpy as np

from ata_gym.bench.report.statistics import Estimate, estimate
from ata_gym.bench.studies.what_if.answer import LEAST_STEPS
from ata_gym.typing import Floats, Ints

_LOG_PARTS = 10
"""The number of parts of a log, one after the other, over which intervals are taken."""

_STEPS_OF_LIKE_PARTS = 30
"""The steps from which on ten parts that all save enough say so: where all steps are noise of
correlation .8, they do in 3 of 100 logs (``python -m tests.benchmarks.coverage``)."""


def log_parts(steps: int) -> list[Ints]:
    """Return the indices of the steps of each part of a log; one part if the log is short."""
    if steps < LEAST_STEPS:
        return [np.arange(steps)]
    return np.array_split(np.arange(steps), _LOG_PARTS)


def saved(way_times: Floats, logged_times: Floats) -> Estimate:
    """Return the part of the time as it was that a way saves.

    The interval is over the parts of the log, and NaN if they are too few.

    Args:
        way_times: The times of the first steps in the way, (steps,).
        logged_times: Those of the log, or more of them.
    """
    same_steps = logged_times[: len(way_times)]
    part_saved = 1.0 - float(way_times.sum() / same_steps.sum())
    # a ratio of two means: how far each part is from it, linear in the two
    residuals = (1.0 - part_saved) * same_steps - way_times
    by_part = np.array([residuals[part].mean() for part in log_parts(len(way_times))])
    half = float(estimate(by_part / same_steps.mean(), successive=True)[1])
    return Estimate(part_saved, part_saved - half, part_saved + half)


def least_saved(way_times: Floats, logged_times: Floats) -> float:
    """Return what a way saves in the part of the log in which it saves least.

    It is NaN where parts are short, so that one may be like the other by chance.

    Args:
        way_times: The times of the first steps in the way, (steps,).
        logged_times: Those of the log, or more of them.
    """
    if len(way_times) < _STEPS_OF_LIKE_PARTS:
        return np.nan
    return min(
        1.0 - float(way_times[part].sum() / logged_times[part].sum())
        for part in log_parts(len(way_times))
    )
