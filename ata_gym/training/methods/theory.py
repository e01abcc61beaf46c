"""The step size of asynchronous methods and numbers of workers from theory.

For an L-smooth f and gradients of variance sigma^2; the accuracy eps is the wanted mean of the squared gradient norm
over all updates. Where the papers write min(1/u, 1/v), here is 1/max(u, v), which allows for sigma^2 = 0.
"""

from __future__ import annotations

import numpy as np

from ata_gym.typing import Floats, Ints


def asynchronous_step(smoothness: float, variance: float, accuracy: float, delays: int) -> float:
    """The step gamma = min{1 / (2 R L), eps / (4 L sigma^2)} for gradients of delay below R; from Ringmaster ASGD.

    >>> asynchronous_step(1.0, 0.4, 0.1, delays=4)
    0.0625
    """
    return 1 / (smoothness * max(2.0 * delays, 4 * variance / accuracy))


def longest_delay(times: Floats) -> int:
    """Updates of plain asynchronous SGD during the slowest worker's task: sum of ceil(tau_max / tau_i) over the others.

    Worked out here, for fixed task times of shape (n,); with random times it may be exceeded.

    >>> longest_delay(np.array([1.0, 2.0, 5.0]))
    8
    """
    slowest = times.argmax()
    return int(np.ceil(times[slowest] / np.delete(times, slowest)).sum())


def workers_to_await(times: Floats, gradients: int) -> int:
    """How many of n workers a synchronous update should wait for: argmin_m tau_(m) (1 + S / m), tau sorted.

    Worked out here from the time of minibatch SGD with fixed task times, tau_(m) (L Delta / eps) (1 + sigma^2 / (m
    eps)), with S = sigma^2 / eps.

    >>> workers_to_await(np.array([1.0, 1.1, 50.0]), gradients=10)
    2
    """
    m = np.arange(1, len(times) + 1)
    return int(m[np.argmin(np.sort(times) * (1 + gradients / m))])


def best_group(times: Floats, chances: Floats, gradients: int) -> tuple[Ints, float]:
    """The fastest m workers, m minimising t(m) = (S + sum_{j <= m} p_j) / sum_{j <= m} p_j / c_j, and that time.

    Worker j tries every c_j, and succeeds with chance p_j; workers are sorted by c. Source: MindFlayer SGD (UAI 2025);
    with p = 1 it is the m* of Naive Optimal ASGD, as Ringmaster ASGD (ICML 2025) defines it.

    >>> best_group(np.array([9.0, 1.0, 2.0]), np.ones(3), gradients=3)
    (array([1, 2]), 3.3333333333333335)
    """
    order = np.argsort(times, kind="stable")
    p, c = chances[order], times[order]
    needed = (gradients + np.cumsum(p)) / np.cumsum(p / c)
    last = int(np.argmin(needed))
    return order[: last + 1], float(needed[last])
