"""The set "unseen": kinds of workers that no default was tuned on. Any change here needs a new version.

It answers one question: is a default right where nobody looked? So it is never used to choose a constant.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from ata_gym.bench.leaderboard.sets.scenario_set import ScenarioSet, for_changing_workers, on
from ata_gym.changes import Periodic, Walk
from ata_gym.pools import Pool, deterministic, exponential, gamma, log_normal, pareto, shifted_exponential, trace
from ata_gym.simulation.keys import stream_keys, uniforms
from ata_gym.typing import Floats

_SEED = 2011  # the seed of the records that are made here


def _lomax() -> Pool:
    scale = np.geomspace(8.0, 90.0, 36) * 1.4
    return pareto(2.4, scale, shift=-scale)


def _log_normal() -> Pool:
    sigma = float(np.sqrt(np.log(17.0)))
    return log_normal(np.log(np.geomspace(12.0, 180.0, 28)) - sigma**2 / 2, sigma)


def _noise(workers: int, tasks: int, kinds: int) -> Floats:
    """Uniform numbers of shape (kinds, workers, tasks), the same each time."""
    return uniforms(stream_keys(_SEED, rows=workers), kinds * tasks).reshape(workers, kinds, tasks).swapaxes(0, 1)


def _stalling() -> Pool:
    """Gamma-like times of which one in twelve is 25 times as long."""
    usual, rare = _noise(24, 900, 2)
    times = np.linspace(9.0, 60.0, 24)[:, None] * np.exp(0.25 * ndtri(usual))
    return trace(list(np.where(rare < 1 / 12, 25.0, 1.0) * times))


def _serverless() -> Pool:
    """Means that spread by half, times of CV .12 that stay alike for some ten tasks, and rare ones 12 to 36 times."""
    workers, tasks = 192, 500
    usual, rare, length = _noise(workers, tasks, 3)
    shocks, level = ndtri(usual), np.empty((workers, tasks))
    level[:, 0] = shocks[:, 0]
    for k in range(1, tasks):
        level[:, k] = 0.9 * level[:, k - 1] + (1 - 0.9**2) ** 0.5 * shocks[:, k]
    usual_time = 40.0 * np.exp(0.3 * ndtri((np.arange(workers) + 0.5) / workers))
    times = usual_time[:, None] * np.exp(0.12 * level)
    return trace(list(np.where(rare < 0.003, 12.0 + 24.0 * length, 1.0) * times))


def _drifting() -> Pool:
    """22 workers, gamma times of CV .5, means 10 to 80."""
    return gamma(4.0, np.geomspace(10.0, 80.0, 22) / 4)


def _two_speeds(fast: int, slow: int, times: float) -> Floats:
    return np.repeat([7.0, 7.0 * times], (fast, slow))


_SCENARIOS = {
    "lomax": on(_lomax, 27, 600, "Lomax times of shape 2.4, means 8 to 90"),
    "log-normal-4": on(_log_normal, 18, 600, "log-normal times of CV 4, means 12 to 180"),
    "one-in-twelve": on(_stalling, 16, 400, "24 workers; one task in twelve takes 25 times as long"),
    "two-classes": on(
        lambda: shifted_exponential(_two_speeds(14, 42, 5.0), _two_speeds(14, 42, 5.0)), 21, 500,
        "14 workers of mean 14 and 42 of mean 70, half of it noise",
    ),
    "few-fast": on(
        lambda: exponential(_two_speeds(6, 394, 20.0)), 40, 500,
        "6 of 400 workers 20 times as fast as the others, exponential times",
    ),
    "one-task": on(
        lambda: gamma(3.0, np.linspace(5.0, 150.0, 160) / 3), 1, 600,
        "B = 1 for 160 workers, gamma times of CV .6, means 5 to 150",
    ),
    "many-tasks": on(
        lambda: gamma(2.0, [4.0, 6.0, 11.0, 25.0]), 420, 100,
        "B = 420 for 4 workers, gamma times of CV .7, means 8 to 50",
    ),
    "all-equal": on(lambda: exponential(np.full(32, 20.0)), 19, 400, "32 equal workers, exponential times"),
    "fixed-times": on(lambda: deterministic(np.linspace(3.0, 40.0, 26)), 37, 250, "26 workers, times without noise"),
    "walk": on(_drifting, 15, 1_000, "speeds walk at random up to 3 times", Walk(0.03, float(np.log(3)))),
    "tide": on(_drifting, 15, 1_000, "load with a period of 400 rounds", Periodic(400, 0.6)),
    "serverless": on(_serverless, 96, 250, "192 workers, B = 96: CV .12, alike in time, and rare long tasks"),
    "linear-many": on(
        lambda: exponential(2.0 * np.arange(1.0, 801)), 8, 400, "exponential times, means 2 i, i = 1..800"
    ),
    "thousands": on(
        lambda: gamma(2.0, np.linspace(5.0, 500.0, 6_000)), 70, 120,
        "6,000 workers, gamma times of CV .7, means 10 to 1000",
    ),
}  # fmt: skip

UNSEEN = ScenarioSet(
    name="unseen",
    version="2",
    built=_SCENARIOS,
    prices=(0.0, 0.1, 1.0),
    quick={"two-classes": 100, "walk": 200, "fixed-times": 100},
    quick_prices=(0.0, 0.1),
    players=lambda: [*for_changing_workers(), "explore-then-commit"],  # it explores first and stays with what it found
    reference="dynamic-ofta",
    front="two-classes",
    seeds=4,
)
