"""What is known of workers' rates from finished and cancelled tasks, and draws from it.

A rate is in results per unit of time.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammainc, gammaincinv

from ata_gym.simulation.keys import derive_keys, uniforms
from ata_gym.typing import Floats, Keys
from ata_gym.utils.compiled import kernel
from ata_policies.allocation.estimates.thompson import gamma_kernel
from ata_policies.observations import LONGEST_TIME

LEVELS = 16  # equally likely slices of the distribution of a rate
_LARGEST_SHAPE = 2.0  # the largest shape of the distribution that the rates of a row come from
_GRID = 2.0 ** np.arange(-10.0, 14.25, 0.25)  # shapes for which the slices are tabulated
_LEAST_SLICE_MEAN = 1e-6  # the least mean of a slice, over the mean of the distribution


class Rates(NamedTuple):
    """Each worker's rate has a gamma distribution, in E rows of n workers."""

    shape: Floats
    """(E, n) the shape of the distribution."""
    time: Floats
    """(E, n) the rate parameter of the distribution, which is a time."""

    def typical(self) -> Floats:
        """Return the time per result at the expected rate, (E, n)."""
        return np.minimum(self.time / self.shape, LONGEST_TIME)

    def draw(self, keys: Keys) -> Floats:
        """Draw a time per result for each worker, (E, n), from one key per row, (E,).

        A gamma number of shape a < 1 is one of shape a + 1 times U ** (1 / a), with U uniform
        (Marsaglia and Tsang, 2000).
        """
        below_1 = self.shape < 1.0
        n = self.shape.shape[1]
        # on its way the quantile overflows and divides by 0
        with np.errstate(all="ignore"):
            gammas: Floats = gamma_kernel(self.shape + below_1, uniforms(keys, 2 * n))
        if below_1.any():
            lower = uniforms(derive_keys(keys, 0, 1), n) ** (1.0 / np.minimum(self.shape, 1.0))
            gammas = np.where(below_1, gammas * lower, gammas)
        # the least gamma number keeps the quotient finite
        least_gamma = 1e-300 * np.maximum(self.time, 1.0)
        return np.minimum(self.time / np.maximum(gammas, least_gamma), LONGEST_TIME)

    def factors(self) -> Floats:
        """Return times per result over the typical one, (E, n, 16).

        They are the times at the mean rates of 16 equally likely slices.
        """
        place = np.searchsorted(_GRID, np.minimum(self.shape, _GRID[-1]))
        return np.asarray(_inverse_slices()[place])


@cache
def _inverse_slices() -> Floats:
    """Tabulate the mean of gamma distributions over the means of their equally likely slices.

    The shape is (shapes of the grid, 16).
    """
    # the partial expectation of a gamma variable of shape a is a times the distribution function
    # for the shape a + 1
    edges = gammaincinv(_GRID[:, None], np.arange(LEVELS + 1) / LEVELS)
    means = LEVELS * np.diff(gammainc(_GRID[:, None] + 1.0, edges), axis=1)
    return np.asarray(1.0 / np.maximum(means, _LEAST_SLICE_MEAN))


def learn_rates(counts: Floats, busy: Floats, shape: Floats) -> Rates:
    """Estimate each worker's rate from K_i results in the time S_i.

    S_i includes the time of cancelled tasks. With gamma times of shape c_i, exact for c_i = 1, the
    rate of worker i is Gamma(a + c K_i, b + c S_i), with c = (1 + c_i K_i) / (1 + K_i), as
    cancelled tasks alone tell no more than exponential ones would. Gamma(a, b) fits the workers of
    the row by moments: with weights w_i = S_i q / (1 + S_i q), q = sum K / sum S,

        m = sum w_i K_i / S_i / sum w_i,   v = sum w_i ((K_i / S_i - m)^2 - m / S_i) / sum w_i,
        a = m^2 / v,   b = a / m,

    where a is at least 1 over the number of workers with S_i > 0 and at most 2. So where most
    workers are slow, one without a result is soon taken for one of them. Empirical Bayes, for
    Poisson counts as in Robbins (1956). Ours.

    Without any result in a row, a is 1 and b is 0, as if the next task of each came in now.

    Args:
        counts: (E, n) the numbers K of results.
        busy: (E, n) the times S.
        shape: (E, n) the shapes c of the task times.

    Example:
        >>> counts = np.array([[9.0, 1.0, 0.0]])
        >>> rates = learn_rates(counts, np.full((1, 3), 10.0), np.ones((1, 3)))
        >>> rates.typical().round(1)
        array([[ 1.3,  6.8, 14.6]])
    """
    # ratios of extreme times overflow
    with np.errstate(all="ignore"):
        return Rates(*_learn(counts, busy, shape))


@kernel("(n),(n),(n)->(n),(n)")
def _learn(counts: Floats, busy: Floats, time_shape: Floats, shape: Floats, time: Floats) -> None:
    """Fit the gamma distribution of a row, and fill in each worker's own; see ``learn_rates``."""
    n = len(counts)
    results = 0.0
    time_spent = 0.0
    busy_workers = 0
    for i in range(n):
        if busy[i] > 0.0:
            results += counts[i]
            time_spent += busy[i]
            busy_workers += 1
    a = 1.0
    b = 0.0
    if results > 0.0 and results / time_spent > 0.0:
        overall = results / time_spent
        total = 0.0
        mean = 0.0
        second = 0.0
        noise = 0.0
        for i in range(n):
            if busy[i] > 0.0:
                expected = overall * busy[i]
                weight = expected / (1.0 + expected)
                rate = counts[i] / expected  # in units of the overall rate
                total += weight
                mean += weight * rate
                second += weight * rate * rate
                noise += weight / expected
        mean /= total
        # of the rates themselves, over their squared mean: without the noise of the counts
        variance = (second / total - mean * mean - mean * noise / total) / (mean * mean)
        if not variance > 1.0 / _LARGEST_SHAPE:  # also where extreme times make it no number
            variance = 1.0 / _LARGEST_SHAPE
        a = 1.0 / min(variance, float(busy_workers))
        b = a / (mean * overall)
        if not b < math.inf:
            b = 0.0
    for i in range(n):
        c = (1.0 + time_shape[i] * counts[i]) / (1.0 + counts[i])
        shape[i] = a + c * counts[i]
        time[i] = min(max(b + c * busy[i], 1e-300), LONGEST_TIME)
