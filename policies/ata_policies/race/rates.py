"""What is known of workers' rates (results per unit of time) from finished and cancelled tasks, and draws from it."""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammainc, gammaincinv

from ata_gym.simulation.keys import derive_keys, uniforms
from ata_gym.typing import Floats, Keys
from ata_gym.utils.compiled import kernel
from ata_policies.allocation.estimates.thompson import gamma_kernel
from ata_policies.observations import LONGEST

LEVELS = 16  # equally likely slices of the distribution of a rate
_MOST = 2.0  # the largest shape of the distribution that the rates of a row come from
_GRID = 2.0 ** np.arange(-10.0, 14.25, 0.25)  # shapes for which the slices are tabulated
_LEAST = 1e-6  # the least mean of a slice, over that of the distribution


class Rates(NamedTuple):
    """Each worker's rate has a gamma distribution, in E rows of n workers."""

    shape: Floats  # (E, n)
    time: Floats  # (E, n) the rate parameter of the distribution, which is a time

    def typical(self) -> Floats:
        """Time per result at the expected rate, shape (E, n)."""
        return np.minimum(self.time / self.shape, LONGEST)

    def draw(self, keys: Keys) -> Floats:
        """Times per result drawn for each worker, shape (E, n); there is one key per row.

        A gamma number of shape a < 1 is one of shape a + 1 times U ** (1 / a), with U uniform (Marsaglia and Tsang,
        2000).
        """
        small, n = self.shape < 1.0, self.shape.shape[1]
        with np.errstate(all="ignore"):  # the quantile raises flags on its way
            gammas: Floats = gamma_kernel(self.shape + small, uniforms(keys, 2 * n))
        if small.any():
            lower = uniforms(derive_keys(keys, 0, 1), n) ** (1.0 / np.minimum(self.shape, 1.0))
            gammas = np.where(small, gammas * lower, gammas)
        return np.minimum(self.time / np.maximum(gammas, 1e-300 * np.maximum(self.time, 1.0)), LONGEST)

    def factors(self) -> Floats:
        """Times per result over the typical one, shape (E, n, LEVELS), at the mean rates of equally likely slices."""
        place = np.searchsorted(_GRID, np.minimum(self.shape, _GRID[-1]))
        return np.asarray(_inverse_slices()[place])


@cache
def _inverse_slices() -> Floats:
    """The mean of gamma distributions of the shapes of the grid, over the means of equally likely slices of them."""
    edges = gammaincinv(_GRID[:, None], np.arange(LEVELS + 1) / LEVELS)
    means = LEVELS * np.diff(gammainc(_GRID[:, None] + 1.0, edges), axis=1)
    return np.asarray(1.0 / np.maximum(means, _LEAST))


def learn_rates(counts: Floats, busy: Floats, shape: Floats) -> Rates:
    """Estimate each worker's rate from K_i results in the time S_i, which cancelled tasks are part of.

    With gamma times of shape c_i, exact for c_i = 1, the rate of worker i is Gamma(a + c K_i, b + c S_i), with
    c = (1 + c_i K_i) / (1 + K_i), as cancelled tasks alone tell no more than exponential ones would. Gamma(a, b) fits
    the workers of the row by moments: with weights w_i = S_i q / (1 + S_i q), q = sum K / sum S,

        m = sum w_i K_i / S_i / sum w_i,   v = sum w_i ((K_i / S_i - m)^2 - m / S_i) / sum w_i,
        a = m^2 / v,   b = a / m,

    where a is at least 1 over the number of workers with S_i > 0 and at most 2. So where most workers are slow, one
    without a result is soon taken for one of them. Empirical Bayes, for Poisson counts as in Robbins (1956). Ours.

    All of shape (E, n). Without any result in a row, a is 1 and b is 0, as if the next task of each came in now.

    >>> rates = learn_rates(np.array([[9.0, 1.0, 0.0]]), np.array([[10.0, 10.0, 10.0]]), np.ones((1, 3)))
    >>> rates.typical().round(1)
    array([[ 1.3,  6.8, 14.6]])
    """
    with np.errstate(all="ignore"):  # ratios of extreme times
        return Rates(*_learn(counts, busy, shape))


@kernel("(n),(n),(n)->(n),(n)")
def _learn(counts: Floats, busy: Floats, own: Floats, shape: Floats, time: Floats) -> None:
    n = len(counts)
    results, spent, seen = 0.0, 0.0, 0
    for i in range(n):
        if busy[i] > 0.0:
            results += counts[i]
            spent += busy[i]
            seen += 1
    a, b = 1.0, 0.0
    if results > 0.0 and results / spent > 0.0:
        overall, total, mean, second, noise = results / spent, 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            if busy[i] > 0.0:
                expected = overall * busy[i]
                weight = expected / (1.0 + expected)
                rate = counts[i] / expected  # in units of the overall one
                total += weight
                mean += weight * rate
                second += weight * rate * rate
                noise += weight / expected
        mean /= total
        variance = (second / total - mean * mean - mean * noise / total) / (mean * mean)
        if not variance > 1.0 / _MOST:  # also where extreme times make it no number
            variance = 1.0 / _MOST
        a = 1.0 / min(variance, float(seen))
        b = a / (mean * overall)
        if not b < math.inf:
            b = 0.0
    for i in range(n):
        c = (1.0 + own[i] * counts[i]) / (1.0 + counts[i])
        shape[i] = a + c * counts[i]
        time[i] = min(max(b + c * busy[i], 1e-300), LONGEST)
