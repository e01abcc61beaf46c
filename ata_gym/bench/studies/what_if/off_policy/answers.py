"""What a log says of each way: its steps, their support, doubly robust estimates, and doubts."""

from typing import NamedTuple

import numpy as np
import polars as pl

from ata_gym.bench.logs import Log
from ata_gym.bench.studies.what_if.off_policy.doubly_robust import round_time, worker_time
from ata_gym.bench.studies.what_if.off_policy.support import cannot_bear, support
from ata_gym.bench.studies.what_if.ways import Way

REPLAY = "replay"
"""What a doubt is of that concerns a way's answer as a whole."""
ESTIMATES = {"round_time": round_time, "worker_time": worker_time}
"""The doubly robust estimates, by the columns of costs."""


class Answer(NamedTuple):
    """What a log says of a way."""

    steps: pl.DataFrame
    """A row for each step that it played.

    The columns are policy, kind, round (the step, counted from 1), round_time, worker_time, those
    of ``Support``, and for each of ``ESTIMATES`` its name with _corrected and _weight after it,
    null where nothing follows from the log.
    """
    doubts: pl.DataFrame
    """A row for each reason why something does not follow: policy, of and reason, where ``of`` is
    ``REPLAY`` or the name of an estimate."""


def answer_of(way: Way, log: Log, budget: int, doubly_robust: bool) -> Answer:
    """Return what a log says of a way.

    Args:
        way: The way.
        log: The times of the job. Its ``rest`` is a part of each step in every way.
        budget: The number B of tasks of a step.
        doubly_robust: Whether its costs are estimated doubly robustly, too.
    """
    count = len(way.round_times)
    rest = np.zeros(count)
    if log.rest is not None:
        rest = log.rest[:count]
    columns = {
        "round": np.arange(1, count + 1),
        "round_time": way.round_times + rest,
        "worker_time": way.worker_times,
        **support(log, way.tasks, budget)._asdict(),
    }
    reasons = {REPLAY: cannot_bear(log, way.tasks)}
    for name, estimate in ESTIMATES.items():
        values = weights = np.full(count, np.nan)
        if doubly_robust:
            corrected = estimate(log, way.tasks, budget)
            reasons[name] = corrected.refusal
            if not corrected.refusal:
                values = corrected.values + (rest if name == "round_time" else 0.0)
                weights = corrected.weights
        columns |= {f"{name}_corrected": values, f"{name}_weight": weights}
    labels = [pl.lit(way.name).alias("policy"), pl.lit(way.kind).alias("kind")]
    steps = pl.DataFrame(columns).fill_nan(None).select(*labels, pl.all())
    doubts = [(way.name, name, reason) for name, reason in reasons.items() if reason]
    schema = {"policy": pl.String, "of": pl.String, "reason": pl.String}
    return Answer(steps, pl.DataFrame(doubts, schema, orient="row"))
