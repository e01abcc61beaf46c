"""Doubly robust estimates of what a policy would have cost, where propensities are known.

They are the estimates of Dudik, Langford and Li (Doubly robust policy evaluation and learning, ICML
2011), step by step: a model of the cost, and how far the recorded cost is from it, over the
probability that it was recorded. The model of a step is the last time of each worker before it. It
does not depend on the step's own decision, so that given the steps before, the mean of an estimate
is the mean of the cost where the propensities are right, whatever the model is, and where the model
is right, whatever the propensities are.
"""

from typing import NamedTuple

import numpy as np

from ata_gym.bench.logs import Log
from ata_gym.bench.studies.what_if.ways import logged_tasks, task_times
from ata_gym.typing import Floats, Mask

_LEAST_SIZE = 30.0
"""The least effective number of steps from which an interval is taken; in logs of fewer than twice
as many steps, half of the steps."""
_MOST_ERRORS = 3.0
"""By how many standard errors the mean weight is from 1 by chance, at most."""


class Corrected(NamedTuple):
    """Doubly robust estimates of the steps of a policy."""

    values: Floats
    """(steps,): the estimate of the cost of each step. A single one may be below 0."""
    weights: Floats
    """(steps,): what the recorded costs of each step count for; their mean is 1 where the
    propensities are right and nowhere 0."""
    refusal: str = ""
    """Why nothing follows from them, as a clause; empty if something does."""


def worker_time(log: Log, tasks: Floats, budget: int) -> Corrected:
    """Estimate the worker time of a policy in each step.

    Worker time is a sum over the workers, so that each is corrected where the log has it, as slots
    of slates are (Swaminathan et al., Off-policy evaluation for slate recommendation, NeurIPS
    2017):

        sum_i  a_i that_i + (1{m_i > 0} / p_i) a_i (t_i - that_i)

    with a_i tasks of the policy and m_i of the log, the recorded mean time t_i of a task, that_i
    the mean time in the worker's last step before, and the propensity p_i = P(m_i > 0). A step's
    weight is the mean of the factors over the policy's tasks. A first step counts as it is replayed
    where the log has no step before it.

    Args:
        log: The times of the job, with propensities.
        tasks: The tasks of the policy, (steps, workers), in the first steps of the log.
        budget: The number B of tasks of a step.
    """
    log = log.part(slice(len(tasks)))
    assert log.propensity is not None
    costs, model = _share_costs(log, tasks, budget)
    factors = np.divide(log.present, log.propensity, where=log.present, out=np.zeros_like(tasks))
    factors[_unknown(log)] = 1.0
    values = (model + factors * (costs - model)).sum(axis=1)
    weights = (tasks * factors).sum(axis=1) / tasks.sum(axis=1)
    impossible = (tasks > 0) & (log.propensity == 0.0)
    impossible[_unknown(log)] = False
    if impossible.any():
        step, place = np.argwhere(impossible)[0].tolist()
        refusal = (
            f"in {impossible.any(axis=1).sum()} steps it gives tasks to workers that had none with"
            f" certainty (propensity 0), first to {log.workers[place]} in step"
            f" {log.step_names[step]}"
        )
        return Corrected(values, weights, refusal)
    return Corrected(values, weights, _refusal(weights))


def round_time(log: Log, tasks: Floats, budget: int) -> Corrected:
    """Estimate the time of each step of a policy.

    It is the longest of the workers' times, and no sum over them: propensities of single workers do
    not correct it, and only a step with the policy's very allocation tells its time. So

        max_i a_i that_i + (1{a = m} / q) (max_i a_i t_i - max_i a_i that_i)

    with the propensity q of the allocation m of the log.

    Args:
        log: The times of the job, with propensities.
        tasks: The tasks of the policy, (steps, workers), in the first steps of the log.
        budget: The number B of tasks of a step.
    """
    log = log.part(slice(len(tasks)))
    assert log.allocation_propensity is not None
    costs, model = (shares.max(axis=1) for shares in _share_costs(log, tasks, budget))
    same = np.asarray(np.isclose(tasks, logged_tasks(log, budget)).all(axis=1))
    weights = same / log.allocation_propensity
    weights[_unknown(log)] = 1.0
    refusal = _refusal(weights)
    if refusal:
        refusal = f"it has the allocation of the log in {same.sum()} steps, and {refusal}"
    return Corrected(model + weights * (costs - model), weights, refusal)


def effective_size(weights: Floats) -> float:
    """Return how many steps of weight 1 say as much as these, (sum w)^2 / sum w^2.

    Example:
        >>> effective_size(np.array([1.0, 1.0, 0.0, 0.0]))
        2.0
    """
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def _refusal(weights: Floats) -> str:
    """Why nothing follows from weights, (steps,); empty if something does."""
    steps = len(weights)
    size = effective_size(weights)
    least = min(_LEAST_SIZE, steps / 2)
    if size < least:
        return (
            f"the weights say as much as {size:.1f} of {steps} steps (effective sample size), where"
            f" {least:g} are needed"
        )
    error = float(weights.std(ddof=1)) / steps**0.5
    if abs(weights.mean() - 1.0) > _MOST_ERRORS * error + 1e-9:
        return (
            f"the weights are {weights.mean():.2f} on average, and not 1 within"
            f" {_MOST_ERRORS:g} standard errors of {error:.2f}: the propensities are wrong, or near"
            " 0 where it gives tasks"
        )
    return ""


def _unknown(log: Log) -> Mask:
    """Which steps, (steps,), have a worker without a time before: the first one, if any."""
    return np.asarray(np.isnan(log.earlier_task_times).any(axis=1))


def _share_costs(log: Log, tasks: Floats, budget: int) -> tuple[Floats, Floats]:
    """The times of shares, (steps, workers), as recorded, and by the last step before."""
    times = task_times(log, budget)
    before = log.earlier_task_times * log.tasks.sum(axis=1, keepdims=True) / budget
    return tasks * times, tasks * np.where(_unknown(log)[:, None], times, before)
