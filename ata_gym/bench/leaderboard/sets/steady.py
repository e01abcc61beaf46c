"""The set "steady": workers that stay as they are, and recorded ones. Any change here needs a new version."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ata_gym.bench.leaderboard.sets.scenario_set import ScenarioSet, on, usual_policies
from ata_gym.pools import Pool, gamma, log_normal, measured, pareto
from ata_gym.scenarios import scenario
from ata_gym.scenarios.scenario import Maker

_TENS = 10 * np.arange(1.0, 21)


def _known_as(name: str, rounds: int) -> Maker:
    """Makes a named scenario with another number of rounds."""
    return lambda _: replace(scenario(name), horizon=rounds)


def _log_normal() -> Pool:
    sigma = 1.5
    return log_normal(np.log(_TENS) - sigma**2 / 2, sigma)


def _pareto() -> Pool:
    shape = 2.2
    scale = _TENS * (shape - 1)
    return pareto(shape, scale, shift=-scale)


STEADY = ScenarioSet(
    name="steady",
    version="2",
    built={
        "cifar100": _known_as("icml2025-cifar100", 20_000),
        "regret": _known_as("icml2025-regret", 20_000),
        "mixed-15": _known_as("icml2025-mixed-n15", 5_000),
        "mixed-45": _known_as("icml2025-mixed-n45", 5_000),
        "sqrt-51": _known_as("icml2025-quadratic-sqrt-n51", 5_000),
        "linear-153": _known_as("icml2025-quadratic-linear-n153", 5_000),
        "log-51": _known_as("icml2025-quadratic-log-n51", 5_000),
        "square-17": _known_as("icml2025-quadratic-square-n17", 5_000),
        "near-equal": on(
            lambda: gamma(400.0, np.linspace(95.0, 105.0, 20) / 400), 23, 5_000,
            "20 workers, gamma times of CV .05, means 95 to 105",
        ),
        "log-normal": on(_log_normal, 10, 5_000, "log-normal times of CV 2.9, means 10 i, i = 1..20"),
        "pareto": on(_pareto, 10, 5_000, "Lomax times of shape 2.2, means 10 i, i = 1..20"),
        "many": on(
            lambda: gamma(4.0, np.geomspace(10.0, 1000.0, 300) / 4), 60, 500,
            "300 workers, gamma times of CV .5, means 10 to 1000",
        ),
        "short": _known_as("icml2025-cifar100", 300),
        "measured-cpu": on(
            measured, 16, 2_000, "real gradients on a processor, 150 times each of 8 workers"
        ),
    },
    prices=(0.0, 0.01, 0.1, 1.0),
    quick={"cifar100": 500, "regret": 500, "near-equal": 200},
    quick_prices=(0.0, 0.1),
    players=usual_policies,
    reference="ofta",
    front="cifar100",
    recorded=("alibaba-1", "alibaba-4", "mlperf"),
    front_prices=(0.0, 0.003, 0.01, 0.02, 0.05, 0.09, 0.15, 0.3, 1.0),
)  # fmt: skip
