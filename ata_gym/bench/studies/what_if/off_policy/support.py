"""Which part of the answer for a policy rests on tasks that were not in the log."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from ata_gym.bench.logs import Log
from ata_gym.bench.studies.what_if.fixed_costs import changes_slowly
from ata_gym.bench.studies.what_if.ways import logged_tasks, task_times
from ata_gym.typing import Floats, Mask

_ROUNDING = 1e-9
"""The excess over the tasks of the log that is rounding."""
_LEAST_PART = 0.05
"""The part of the tasks of a policy from which on a worker bears its answer."""
_FEWEST_STEPS = 10
"""The least number of steps in which the log must have a worker that bears an answer."""
_LONG_GAP = 10
"""The steps in a row without a worker from which on its last time may not be its time."""
_LEVEL = 0.025
"""How often steady workers are taken for changing ones, one of them or more."""


class Support(NamedTuple):
    """How many tasks of a policy are not in the log, step by step."""

    tasks: Floats
    """(steps,): the tasks that the policy begins."""
    not_in_log: Floats
    """(steps,): its tasks for a worker beyond the worker's own in this step of the log."""
    time_not_in_log: Floats
    """(steps,): the worker time of these."""
    from_other_steps: Floats
    """(steps,): its tasks for workers that have no task in this step of the log."""


def support(log: Log, tasks: Floats, budget: int) -> Support:
    """Return how many tasks of a policy are not in the log.

    A worker did m of the B tasks of a step, and the policy gives it a: min(a, m) tasks are in the
    log, and max(a - m, 0) are not. Where both allocations have B tasks, the part that is not in
    the log is the total variation distance between a / B and m / B. A task that is not in the log
    takes the mean time of the worker's tasks in that step, or, if it has none, in its last step.

    Args:
        log: The times of the job.
        tasks: The tasks that the policy begins, (steps, workers), in the first steps of the log.
        budget: The number B of tasks of a step.

    Example:
        >>> log = Log("job", ["a", "b"], np.array([[2.0, 6.0]]), np.array([[3.0, 1.0]]))
        >>> support(log, np.array([[2.0, 2.0]]), 4)._asdict()["not_in_log"]
        array([1.])
    """
    log = log.part(slice(len(tasks)))
    beyond = tasks - logged_tasks(log, budget)
    beyond = np.where(beyond > _ROUNDING, beyond, 0.0)
    return Support(
        tasks.sum(axis=1),
        beyond.sum(axis=1),
        (beyond * task_times(log, budget)).sum(axis=1),
        (tasks * ~log.present).sum(axis=1),
    )


def cannot_bear(log: Log, tasks: Floats) -> str:
    """Return why a log cannot bear the answer for a policy, as a clause; empty if it can.

    It cannot where at least 5 % of the policy's tasks are of a worker in steps in which the log has
    no task of it, and the log has the worker in fewer than 10 steps; or where these steps follow
    each other, 10 or more, and the worker's times change with time: neighbours are alike by more
    than chance among all workers (Bonferroni).

    Args:
        log: The times of the job.
        tasks: The tasks that the policy begins, (steps, workers), in the first steps of the log.
    """
    log = log.part(slice(len(tasks)))
    present = log.present
    missing = np.where(present, 0.0, tasks)
    errors = -float(ndtri(_LEVEL / len(log.workers)))
    for place in np.argsort(-missing.sum(axis=0)).tolist():
        worker = log.workers[place]
        there = present[:, place]
        part = missing[:, place].sum() / tasks.sum()
        # All later workers have fewer such tasks.
        if part < _LEAST_PART:
            break
        if there.sum() < _FEWEST_STEPS:
            return (
                f"{100 * part:.0f} % of its tasks are of worker {worker} in other steps than the"
                f" {there.sum()} in which the log has it"
            )
        in_gap = _in_long_gap(there)
        gap_part = missing[in_gap, place].sum() / tasks.sum()
        times = log.task_times[there, place]
        if gap_part >= _LEAST_PART and changes_slowly(times, errors):
            return (
                f"{100 * gap_part:.0f} % of its tasks are of worker {worker}, whose times change,"
                f" in {in_gap.sum()} steps that are in gaps of {_LONG_GAP} or more without it"
            )
    return ""


def _in_long_gap(there: Mask) -> Mask:
    """Which steps, (steps,), are in a long row of steps without a worker."""
    bordered = np.concatenate([[True], there, [True]]).astype(int)
    edges = np.flatnonzero(np.diff(bordered))
    in_gap = np.zeros_like(there)
    for start, end in edges.reshape(-1, 2).tolist():
        in_gap[start:end] = end - start >= _LONG_GAP
    return in_gap
