"""The set "steady": workers that stay as they are, and recorded ones. Any change here needs a new version."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from ata_gym.bench.leaderboard.sets.players import usual_policies
from ata_gym.bench.leaderboard.sets.scenario_set import ScenarioSet, known_as
from ata_gym.pools import gamma, log_normal, measured, pareto
from ata_gym.scenarios import Scenario
from ata_gym.scenarios.recorded import RECORDINGS
from ata_gym.scenarios.scenario import ours


def _near_equal(name: str) -> Scenario:
    means = np.linspace(95.0, 105.0, 20)
    return ours(name, gamma(400.0, means / 400), 23, 5_000, "20 workers, gamma times of CV .05, means 95 to 105")


def _log_normal(name: str) -> Scenario:
    means, sigma = 10 * np.arange(1.0, 21), 1.5
    pool = log_normal(np.log(means) - sigma**2 / 2, sigma)
    return ours(name, pool, 10, 5_000, "log-normal times of CV 2.9, means 10 i, i = 1..20")


def _pareto(name: str) -> Scenario:
    means, shape = 10 * np.arange(1.0, 21), 2.2
    scale = means * (shape - 1)
    return ours(name, pareto(shape, scale, shift=-scale), 10, 5_000, "Lomax times of shape 2.2, means 10 i, i = 1..20")


def _many(name: str) -> Scenario:
    means = np.geomspace(10.0, 1000.0, 300)
    return ours(name, gamma(4.0, means / 4), 60, 500, "300 workers, gamma times of CV .5, means 10 to 1000")


def _measured(name: str) -> Scenario:
    return ours(name, measured(), 16, 2_000, "real gradients on a processor, 150 times each of 8 workers")


STEADY = ScenarioSet(
    name="steady",
    version="2",
    built=MappingProxyType(
        {
            "cifar100": known_as("icml2025-cifar100", 20_000),
            "regret": known_as("icml2025-regret", 20_000),
            "mixed-15": known_as("icml2025-mixed-n15", 5_000),
            "mixed-45": known_as("icml2025-mixed-n45", 5_000),
            "sqrt-51": known_as("icml2025-quadratic-sqrt-n51", 5_000),
            "linear-153": known_as("icml2025-quadratic-linear-n153", 5_000),
            "log-51": known_as("icml2025-quadratic-log-n51", 5_000),
            "square-17": known_as("icml2025-quadratic-square-n17", 5_000),
            "near-equal": _near_equal,
            "log-normal": _log_normal,
            "pareto": _pareto,
            "many": _many,
            "short": known_as("icml2025-cifar100", 300),
            "measured-cpu": _measured,
        }
    ),
    prices=(0.0, 0.01, 0.1, 1.0),
    quick=MappingProxyType({"cifar100": 500, "regret": 500, "near-equal": 200}),
    quick_prices=(0.0, 0.1),
    players=usual_policies,
    reference="ofta",
    front="cifar100",
    recordings=MappingProxyType({name: RECORDINGS[name] for name in ("alibaba-1", "alibaba-4", "mlperf")}),
    front_prices=(0.0, 0.003, 0.01, 0.02, 0.05, 0.09, 0.15, 0.3, 1.0),
)
