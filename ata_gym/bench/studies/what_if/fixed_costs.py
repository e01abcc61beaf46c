"""Whether shares of a log have a fixed cost besides their tasks: where their sizes vary."""

import math
from dataclasses import replace

import numpy as np
from scipy import stats

from ata_gym.bench.logs import Log
from ata_gym.bench.report.headline import listed
from ata_gym.typing import Floats

_LEAST_STEPS = 10
"""The least number of steps of a worker from which a fixed cost is estimated."""
_LEVEL = 0.95
"""The level at which the intervals hold for all workers together."""
_FOLLOWS = 2.0
"""The correlation of sizes in steps that follow, over its standard error, above which sizes may
follow the speed of their worker."""


def with_fixed_costs(log: Log) -> Log:
    """Return a log whose latency is the fixed cost that shares of different sizes show.

    The time of a share of x tasks is c + a x, by least squares with weights 1 / x, for each worker.
    A fixed cost counts where its interval is above 0; the intervals hold for all workers together
    (Bonferroni), where steps do not depend on each other. Where the sizes of a worker change slowly
    they may follow its speed, which looks like a fixed cost: then nothing is said of it. A log that
    has a latency, or in which no worker's share varies, is returned as it is.

    Args:
        log: The times of the job.

    Example:
        >>> tasks = np.tile([[2.0, 4.0], [4.0, 2.0]], (10, 1))
        >>> noise = np.random.default_rng(0).normal(0.0, 0.01, (20, 2))
        >>> log = with_fixed_costs(Log("job", ["a", "b"], [3.0, 0.0] + tasks + noise, tasks))
        >>> log.latency[0].round(1), log.remarks[0]
        (array([3., 0.]), 'Shares of different sizes show a fixed cost of a: 2.99 (± 0.014).')
    """
    varies = (np.ptp(log.tasks, axis=0) > 0) & (log.tasks > 0).all(axis=0)
    varies &= len(log.seconds) >= _LEAST_STEPS
    if log.latency is not None or not varies.any():
        return log
    told = varies & ~np.array([changes_slowly(tasks) for tasks in log.tasks.T])
    if not told.any():
        remark = (
            "The sizes of shares change slowly, as speeds may, so that this log cannot say whether"
            " shares have a fixed cost: all time counts as the time of tasks."
        )
        return replace(log, remarks=[*log.remarks, remark])
    cost, half = np.zeros((2, len(log.workers)))
    for worker in np.flatnonzero(told):
        cost[worker], half[worker] = _fixed_cost(
            log.seconds[:, worker], log.tasks[:, worker], 1.0 - (1.0 - _LEVEL) / told.sum()
        )
    shown = told & (cost > half)
    if not shown.any():
        remark = (
            "Shares of different sizes show no fixed cost: all time counts as the time of tasks."
        )
        return replace(log, remarks=[*log.remarks, remark])
    names = [
        f"{log.workers[i]}: {cost[i]:.3g} (± {half[i]:.2g})" for i in np.flatnonzero(shown).tolist()
    ]
    unit = f" {log.unit}" if log.unit else ""
    remark = f"Shares of different sizes show a fixed cost of {listed(names)}{unit}."
    # An estimate may be longer than a short share, which a part of it cannot be.
    latency = np.minimum(np.where(shown, cost, 0.0), log.seconds)
    return replace(log, latency=latency, remarks=[*log.remarks, remark])


def changes_slowly(values: Floats, errors: float = _FOLLOWS) -> bool:
    """Return whether values, (steps,), are each like the value of the step before.

    Args:
        values: The values.
        errors: The correlation of neighbours over its standard error, from which on they are.
    """
    deviations = values - values.mean()
    squares = float(deviations @ deviations)
    correlation = float(deviations[1:] @ deviations[:-1])
    return correlation * math.sqrt(len(values)) > errors * squares


def _fixed_cost(seconds: Floats, tasks: Floats, level: float) -> tuple[float, float]:
    """The fixed cost of the shares of a worker, (steps,), and half the width of its interval."""
    weight = 1.0 / np.sqrt(tasks)
    columns = np.column_stack([weight, tasks * weight])
    inverse = np.linalg.inv(columns.T @ columns)
    solution = inverse @ columns.T @ (seconds * weight)
    freedom = len(seconds) - 2
    variance = float(np.sum((seconds * weight - columns @ solution) ** 2)) / freedom
    quantile = float(stats.t.ppf(0.5 + 0.5 * level, freedom))
    return float(solution[0]), quantile * float(np.sqrt(variance * inverse[0, 0]))
