"""The sets of scenarios whose workers are the same for all seeds, but for one that is drawn."""

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from ata_gym import changes, pools
from ata_gym.bench.studies.leaderboard.scenario_set import (
    ScenarioSet,
    for_changing_workers,
    maker,
    usual_policies,
)
from ata_gym.pools import Pool, PoolDistribution, gamma
from ata_gym.scenarios import scenario
from ata_gym.scenarios.for_agents import FAMILIES
from ata_gym.scenarios.scenario import Maker
from ata_gym.simulation.keys import stream_keys, uniforms
from ata_gym.typing import Floats

_TENS = 10 * np.arange(1.0, 21)  # means of 20 workers


def _renamed(name: str, rounds: int) -> Maker:
    """Return what makes a scenario that has another name elsewhere, with other rounds."""
    return lambda _: replace(scenario(name), horizon=rounds)


def _log_normal(means: Floats, sigma: float) -> Pool:
    """Make log-normal task times with these means."""
    # The mean of exp(mu + sigma Z) is exp(mu + sigma^2 / 2).
    return pools.log_normal(np.log(means) - sigma**2 / 2, sigma)


def _lomax(shape: float, means: Floats) -> Pool:
    """Make Lomax task times, which are Pareto times shifted to begin at 0, with these means."""
    scale = means * (shape - 1)
    return pools.pareto(shape, scale, shift=-scale)


STEADY = ScenarioSet(
    name="steady",
    version="2",
    built={
        "cifar100": _renamed("icml2025-cifar100", 20_000),
        "regret": _renamed("icml2025-regret", 20_000),
        "mixed-15": _renamed("icml2025-mixed-n15", 5_000),
        "mixed-45": _renamed("icml2025-mixed-n45", 5_000),
        "sqrt-51": _renamed("icml2025-quadratic-sqrt-n51", 5_000),
        "linear-153": _renamed("icml2025-quadratic-linear-n153", 5_000),
        "log-51": _renamed("icml2025-quadratic-log-n51", 5_000),
        "square-17": _renamed("icml2025-quadratic-square-n17", 5_000),
        "near-equal": maker(
            lambda: gamma(400.0, np.linspace(95.0, 105.0, 20) / 400),
            23,
            5_000,
            "20 workers, gamma times of CV .05, means 95 to 105",
        ),
        "log-normal": maker(
            lambda: _log_normal(_TENS, 1.5),
            10,
            5_000,
            "log-normal times of CV 2.9, means 10 i, i = 1..20",
        ),
        "pareto": maker(
            lambda: _lomax(2.2, _TENS),
            10,
            5_000,
            "Lomax times of shape 2.2, means 10 i, i = 1..20",
        ),
        "many": maker(
            lambda: gamma(4.0, np.geomspace(10.0, 1000.0, 300) / 4),
            60,
            500,
            "300 workers, gamma times of CV .5, means 10 to 1000",
        ),
        "short": _renamed("icml2025-cifar100", 300),
        "measured-cpu": maker(
            pools.measured,
            16,
            2_000,
            "real gradients on a processor, 150 times each of 8 workers",
        ),
    },
    prices=(0.0, 0.01, 0.1, 1.0),
    quick={"cifar100": 500, "regret": 500, "near-equal": 200},
    policies=usual_policies,
    reference="ofta",
    front="cifar100",
    recorded=("alibaba-1", "alibaba-4", "mlperf"),
    front_prices=(0.0, 0.003, 0.01, 0.02, 0.05, 0.09, 0.15, 0.3, 1.0),
)
"""Workers that stay as they are, and recorded ones."""


def _many_workers(summary: str, *worker_changes: changes.Change, rounds: int = 1_000) -> Maker:
    """Return what makes a scenario on 51 workers of which few are used."""
    return maker(
        lambda: scenario("icml2025-quadratic-linear-n51").pool,
        23,
        rounds,
        f"c + Exp(c), c = 29 i, i = 1..51; {summary}",
        *worker_changes,
    )


def _low_variance(summary: str, *worker_changes: changes.Change, rounds: int = 800) -> Maker:
    """Return what makes a scenario on 24 workers whose times vary little."""
    return maker(
        lambda: gamma(25.0, np.geomspace(20.0, 200.0, 24) / 25),
        20,
        rounds,
        f"24 workers, gamma times of CV .2, means 20 to 200; {summary}",
        *worker_changes,
    )


_QUARTER = float(np.log(4.0))  # the largest logarithm of a speed that walks

CHANGING = ScenarioSet(
    name="changing",
    version="2",
    built={
        "switch": _many_workers(
            "all speeds permuted every 400 rounds",
            changes.Switch(every=400),
            rounds=1_200,
        ),
        "switch-200": maker(
            lambda: pools.shifted_exponential(3.0 * np.arange(1.0, 201), 3.0 * np.arange(1.0, 201)),
            20,
            800,
            "c + Exp(c), c = 3 i, i = 1..200; all speeds permuted at round 400",
            changes.Switch(at=(400,)),
        ),
        "sleeper": _many_workers(
            "the slowest becomes twice as fast as the fastest at round 400",
            changes.Jump(at=400, workers=(50,), factor=1 / 102),
            rounds=1_200,
        ),
        "walk": _many_workers("speeds walk at random up to 4 times", changes.Walk(0.02, _QUARTER)),
        "walk-fast": _low_variance(
            "speeds walk at random up to 4 times", changes.Walk(0.06, _QUARTER)
        ),
        "periodic": _low_variance("load with a period of 300 rounds", changes.Periodic(300, 0.5)),
        "stragglers": _many_workers(
            "10 times slower for spells of 50 rounds, 1 round in 11",
            changes.OnOff(10, 0.002, 0.02),
        ),
        "stragglers-groups": maker(
            lambda: gamma(100.0, 10.0 * np.repeat([1.0, 2.0, 3.0, 4.0], 4) / 100),
            64,
            400,
            "16 workers in four groups, gamma times of CV .1; 5 times slower for 20 rounds",
            changes.OnOff(5, 0.005, 0.05),
        ),
        "spot": _many_workers(
            "away for spells of 50 rounds, 1 round in 11",
            changes.Spot(leaves=0.002, returns=0.02, deadline=1_000),
        ),
        "crash": _many_workers(
            "die in mid-round every 500 rounds or so, for 50 rounds",
            changes.Crash(probability=0.002, within=800, away=50, deadline=1_000),
        ),
        "correlated": _many_workers(
            "half of the noise is shared in a round and lasts for some 10",
            changes.Correlated(0.5, 0.9),
        ),
        "load-hidden": _low_variance(
            "load that no signal shows lasts for some 50 rounds",
            changes.Load(0, 0, 0.4, 0.98),
        ),
        "outliers": _low_variance(
            "0.5 % of the tasks take 10 to 40 times the median",
            changes.Outliers(0.005, 10, 40),
        ),
        "slow-switch": _low_variance(
            "load with a period of 500 rounds, and all speeds permuted at round 500",
            changes.Periodic(500, 0.3),
            changes.Switch(at=(500,)),
            rounds=1_000,
        ),
    },
    prices=(0.0, 0.01, 0.1, 1.0),
    quick={"switch": 500, "spot": 200, "walk-fast": 200},
    policies=for_changing_workers,
    front="switch",
    recorded=("alibaba-1", "alibaba-4", "alibaba-4-jump", "mlperf", "phones-spot"),
    seeds=4,
)
"""Workers that change."""

_SEED = 2011  # the seed of the records that are made here


def _noise(workers: int, tasks: int, kinds: int) -> Floats:
    """Draw uniform numbers of shape (kinds, workers, tasks), the same each time."""
    numbers = uniforms(stream_keys(_SEED, rows=workers), kinds * tasks)
    return numbers.reshape(workers, kinds, tasks).swapaxes(0, 1)


def _stalling() -> Pool:
    """Record log-normal times of which one in twelve is 25 times as long."""
    usual, rare = _noise(24, 900, 2)
    times = np.linspace(9.0, 60.0, 24)[:, None] * np.exp(0.25 * ndtri(usual))
    return pools.trace(list(np.where(rare < 1 / 12, 25.0, 1.0) * times))


def _serverless() -> Pool:
    """Record times of CV .12 that stay alike for some ten tasks, with rare long ones.

    The usual times of workers spread log-normally, with a standard deviation of the logarithm of
    0.3. Three tasks in a thousand take 12 to 36 times as long.
    """
    workers = 192
    tasks = 500
    usual, rare, length = _noise(workers, tasks, 3)
    shocks = ndtri(usual)
    # An autoregressive process of correlation 0.9 and variance 1, along the tasks of a worker.
    innovation = (1 - 0.9**2) ** 0.5
    level = np.empty((workers, tasks))
    level[:, 0] = shocks[:, 0]
    for k in range(1, tasks):
        level[:, k] = 0.9 * level[:, k - 1] + innovation * shocks[:, k]
    probabilities = (np.arange(workers) + 0.5) / workers
    usual_time = 40.0 * np.exp(0.3 * ndtri(probabilities))
    times = usual_time[:, None] * np.exp(0.12 * level)
    times_as_long = np.where(rare < 0.003, 12.0 + 24.0 * length, 1.0)
    return pools.trace(list(times_as_long * times))


def _drifting() -> Pool:
    """Make 22 workers, gamma times of CV .5, means 10 to 80."""
    return gamma(4.0, np.geomspace(10.0, 80.0, 22) / 4)


def _two_speeds(fast: int, slow: int, times: float) -> Floats:
    """Return the means of fast workers, 7, and of slow ones, ``times`` as long."""
    return np.repeat([7.0, 7.0 * times], (fast, slow))


_ON_OFF = PoolDistribution(9, None, FAMILIES, (3, 15), (0.1, 1.2))

UNSEEN = ScenarioSet(
    name="unseen",
    version="3",
    built={
        "lomax": maker(
            lambda: _lomax(2.4, np.geomspace(8.0, 90.0, 36)),
            27,
            600,
            "Lomax times of shape 2.4, means 8 to 90",
        ),
        "log-normal-4": maker(
            lambda: _log_normal(np.geomspace(12.0, 180.0, 28), float(np.sqrt(np.log(17.0)))),
            18,
            600,
            "log-normal times of CV 4, means 12 to 180",
        ),
        "one-in-twelve": maker(
            _stalling,
            16,
            400,
            "24 workers; one task in twelve takes 25 times as long",
        ),
        "two-classes": maker(
            lambda: pools.shifted_exponential(_two_speeds(14, 42, 5.0), _two_speeds(14, 42, 5.0)),
            21,
            500,
            "14 workers of mean 14 and 42 of mean 70, half of it noise",
        ),
        "few-fast": maker(
            lambda: pools.exponential(_two_speeds(6, 394, 20.0)),
            40,
            500,
            "6 of 400 workers 20 times as fast as the others, exponential times",
        ),
        "one-task": maker(
            lambda: gamma(3.0, np.linspace(5.0, 150.0, 160) / 3),
            1,
            600,
            "B = 1 for 160 workers, gamma times of CV .6, means 5 to 150",
        ),
        "many-tasks": maker(
            lambda: gamma(2.0, [4.0, 6.0, 11.0, 25.0]),
            420,
            100,
            "B = 420 for 4 workers, gamma times of CV .7, means 8 to 50",
        ),
        "all-equal": maker(
            lambda: pools.exponential(np.full(32, 20.0)),
            19,
            400,
            "32 equal workers, exponential times",
        ),
        "fixed-times": maker(
            lambda: pools.deterministic(np.linspace(3.0, 40.0, 26)),
            37,
            250,
            "26 workers, times without noise",
        ),
        "walk": maker(
            _drifting,
            15,
            1_000,
            "speeds walk at random up to 3 times",
            changes.Walk(0.03, float(np.log(3))),
        ),
        "tide": maker(
            _drifting,
            15,
            1_000,
            "load with a period of 400 rounds",
            changes.Periodic(400, 0.6),
        ),
        "serverless": maker(
            _serverless,
            96,
            250,
            "192 workers, B = 96: CV .12, alike in time, and rare long tasks",
        ),
        "linear-many": maker(
            lambda: pools.exponential(2.0 * np.arange(1.0, 801)),
            8,
            400,
            "exponential times, means 2 i, i = 1..800",
        ),
        "thousands": maker(
            lambda: gamma(2.0, np.linspace(5.0, 500.0, 6_000)),
            70,
            120,
            "6,000 workers, gamma times of CV .7, means 10 to 1000",
        ),
        "racks": maker(
            lambda: gamma(10.0, np.geomspace(9.0, 27.0, 42) / 10),
            54,
            400,
            "42 workers in racks of 6, gamma times of CV .3, means 9 to 27; racks 6 times slower"
            " for 20 rounds",
            changes.OnOff(6, 0.012, 0.05, rack=6),
        ),
        "fail-and-return": maker(
            lambda: _log_normal(np.linspace(6.0, 48.0, 19), 0.3),
            24,
            500,
            "log-normal times of CV .3, means 6 to 48; three of the five fastest 40 times slower"
            " for 100 rounds",
            changes.Jump(at=170, workers=(0, 2, 4), factor=40.0, until=270),
        ),
        "eight-fast": maker(
            lambda: pools.exponential(_two_speeds(8, 292, 13.0)),
            22,
            450,
            "8 of 300 workers 13 times as fast as the others, exponential times",
        ),
        "drawn-on-off": maker(
            _ON_OFF.typical,
            13,
            50,
            "9 workers drawn anew, ratios 3 to 15, 6 times slower for spells of 7 rounds",
            changes.Redraw(_ON_OFF),
            changes.OnOff(6, 0.05, 0.15),
        ),
    },
    prices=(0.0, 0.1, 1.0),
    quick={"two-classes": 100, "walk": 200, "fixed-times": 100},
    front="two-classes",
    seeds=4,
    # This one explores first and then stays with its choice.
    policies=lambda: [*for_changing_workers(), "explore-then-commit"],
)
"""Kinds of workers that no default was tuned on.

The set answers whether a default is right where nobody looked, so it is never used to choose a
constant.
"""
