"""Task times inside kernels.

A time follows from the task's keyed noise, the disturbances of its round, and the quantile of its
distribution. The noise is a uniform number with the row's key and the counter (task, worker,
episode).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import llvmlite.binding
import numba
import numpy as np
from numba.extending import get_cython_function_address

from ata_gym.pools.distributions import Distributions
from ata_gym.pools.families import (
    EXPONENTIAL,
    GAMMA,
    HALF_NORMAL,
    LOG_NORMAL,
    PARETO,
    RECORDED,
    TRACE_BY_ROUND,
    TRACE_BY_TASK,
    UNIFORM,
    WEIBULL,
)
from ata_gym.simulation.disturbances import NOISE, undisturbed
from ata_gym.simulation.keys import Word, uniform
from ata_gym.typing import Floats, Index, Ints, Keys
from ata_gym.utils.compiled import inlined, kernel


def _scipy(name: str, arguments: int) -> Callable[..., float]:
    """A scalar function of scipy.special for use inside kernels.

    It is linked by symbol, so that kernels stay cacheable.
    """
    symbol = f"ata_gym_{name}"
    llvmlite.binding.add_symbol(
        symbol,
        get_cython_function_address("scipy.special.cython_special", name),
    )
    signature = numba.types.float64(*[numba.types.float64] * arguments, numba.types.intc)
    function: Callable[..., float] = numba.types.ExternalFunction(symbol, signature)
    return function


_LARGEST_UNIFORM = 1.0 - 2.0**-53
"""The largest uniform number that a task's noise can be."""

gamma_quantile = _scipy("gammaincinv", 2)
normal_quantile = _scipy("ndtri", 1)


class TaskTimes(NamedTuple):
    """All numbers that determine the task times of one row in one round, inside a kernel.

    The fields from ``family`` to ``length`` are the fields of ``Distributions``.
    """

    family: Ints
    shift: Floats
    scale: Floats
    shape: Floats
    table: Floats
    record_start: Ints
    length: Ints
    noise: Floats
    """The field of ``Disturbances``, shape (n, 5), whose columns are in ``NOISE``."""
    key: Word
    """The key of the row."""
    episode: int
    """The episode, counted from 0."""
    round_index: int
    """The round, counted from 0."""


def kernel_arguments(distributions: Distributions, noise: Floats) -> tuple[Ints | Floats, ...]:
    """The first arguments of every kernel that draws task times.

    Args:
        distributions: The distributions of the round.
        noise: The field of ``Disturbances``.
    """
    return (
        distributions.family,
        distributions.shift,
        distributions.scale,
        distributions.shape,
        distributions.table,
        distributions.record_start,
        distributions.length,
        noise,
    )


LAYOUT = "(n),(n),(n),(n),(m),(n),(n),(n,q),"
"""The shapes of the arguments that ``kernel_arguments`` gives."""


@inlined
def _standard_time(family: int, shape: float, u: float) -> float:
    """Quantile ``u`` of the standard distribution of a family, which has this code."""
    if family == EXPONENTIAL:
        return -math.log(1.0 - u)
    if family == UNIFORM:
        return u
    if family == HALF_NORMAL:
        return -normal_quantile(0.5 * (1.0 - u), np.intc(0))
    if family == GAMMA:
        return gamma_quantile(shape, u, np.intc(0))
    if family == LOG_NORMAL:
        return math.exp(shape * normal_quantile(u, np.intc(0)))
    if family == WEIBULL:
        return math.pow(-math.log(1.0 - u), 1.0 / shape)
    if family == PARETO:
        return math.pow(1.0 - u, -1.0 / shape)
    # Deterministic times.
    return 1.0


@inlined
def disturbed(noise: Floats, worker: int, u: float) -> float:
    """A task's noise under the outliers and shared noise of its worker.

    It is below 1, or in [1, 2) for an outlier.
    """
    share = noise[worker, NOISE.outlier_share]
    task_weight = noise[worker, NOISE.task_weight]
    common = noise[worker, NOISE.common]
    if share > 0.0:
        ordinary_share = 1.0 - share
        # The top end of the noise is for outliers; the rest is stretched to (0, 1).
        if u >= ordinary_share:
            return float(1.0 + (u - ordinary_share) / share)
        u /= ordinary_share
    if task_weight < 1.0:
        # Phi(task_weight * Phi^-1(u) + common), kept below 1, where quantiles are infinite.
        normal = task_weight * normal_quantile(u, np.intc(0)) + common
        u = min(0.5 * math.erfc(-normal / math.sqrt(2.0)), _LARGEST_UNIFORM)
    return u


@inlined
def time_by_noise(times: TaskTimes, worker: int, task: int, u: float) -> float:
    """The time of a worker's ``task``, counted from 0 in the episode, from its disturbed noise.

    An outlier has ``u`` in [1, 2), and a time between the shortest and the longest outlier.
    """
    i = worker
    family = times.family[worker]
    if u >= 1.0:
        shortest = times.noise[i, NOISE.shortest_outlier]
        longest = times.noise[i, NOISE.longest_outlier]
        return float(shortest + (longest - shortest) * (u - 1.0))
    if family == TRACE_BY_TASK:
        z = times.table[times.record_start[i] + task % times.length[i]]
    elif family == TRACE_BY_ROUND:
        z = times.table[times.record_start[i] + times.round_index % times.length[i]]
    else:
        z = _standard_time(family, times.shape[i], u)
    return float(times.shift[i] + times.scale[i] * z)


@inlined
def time_of(times: TaskTimes, worker: int, task: int) -> float:
    """The time of a worker's ``task``, counted from 0 in the episode."""
    u = uniform(times.key, task, worker, times.episode)
    return float(time_by_noise(times, worker, task, disturbed(times.noise, worker, u)))


@kernel(f"{LAYOUT}(),(),(),(),()->()")
def _one_time(
    family: Ints,
    shift: Floats,
    scale: Floats,
    shape: Floats,
    table: Floats,
    record_start: Ints,
    length: Ints,
    noise: Floats,
    key: Keys,
    episode: Ints,
    round_index: Ints,
    worker: Ints,
    task: Ints,
    out: Floats,
) -> None:
    times = TaskTimes(
        family,
        shift,
        scale,
        shape,
        table,
        record_start,
        length,
        noise,
        key[0],
        episode[0],
        round_index[0],
    )
    out[0] = time_of(times, worker[0], task[0])


@kernel("(),()->()")
def _longest_standard_time(family: Ints, shape: Floats, out: Floats) -> None:
    out[0] = _standard_time(family[0], shape[0], _LARGEST_UNIFORM)


def task_times(
    distributions: Distributions,
    keys: Keys,
    episode: Index,
    round_index: Index,
    worker: Index,
    task: Index,
) -> Floats:
    """Times of single tasks, for methods without rounds.

    They are the same times that a round would have. The arguments from ``keys`` on broadcast
    together.

    Args:
        distributions: The distributions of the workers.
        keys: The key of the row.
        episode: The episode, counted from 0.
        round_index: The round, counted from 0; only times that are replayed by round depend on it.
        worker: The worker that starts the task.
        task: How many tasks the worker has started in the episode before.
    """
    noise = undisturbed(distributions.family.shape[-1]).noise
    indices = [np.asarray(index, np.int64) for index in (episode, round_index, worker, task)]
    times: Floats = _one_time(*kernel_arguments(distributions, noise), keys, *indices)
    return times


def longest_times(distributions: Distributions) -> Floats:
    """The longest time that a task of each worker can take with noise of 52 bits, shape (n,).

    It is inf if it overflows.
    """
    with np.errstate(over="ignore"):
        z = _longest_standard_time(distributions.family, distributions.shape)
        for i in np.flatnonzero(np.isin(distributions.family, RECORDED)).tolist():
            record_start = distributions.record_start[i]
            z[i] = distributions.table[record_start : record_start + distributions.length[i]].max()
        return np.asarray(distributions.shift + distributions.scale * z)
