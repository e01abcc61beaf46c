"""The scenarios of the leaderboard: a fixed set with a version. Any change here needs a new version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ata_gym.pools import gamma, log_normal, measured, pareto
from ata_gym.scenarios import Scenario, scenario
from ata_gym.scenarios import recorded as recordings
from ata_gym.scenarios.recorded import Recording, fingerprint_of
from ata_gym.scenarios.scenario import ours
from ata_gym.utils.validation import unknown

VERSION = "1"
"""Of the scenarios, their rounds and the prices, as ``fingerprint`` sees them."""

PRICES = (0.0, 0.01, 0.1, 1.0)
"""Of a unit of worker time, in units of runtime."""

FRONT = "cifar100"
"""The scenario of the picture."""

FRONT_PRICES = (0.0, 0.003, 0.01, 0.02, 0.05, 0.09, 0.15, 0.3, 1.0)
"""At these prices, oracles that know the distributions show what can be reached in it."""


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
    return ours(name, measured("cpu"), 16, 2_000, "real gradients on a processor, 150 times each of 8 workers")


_BUILT: Mapping[str, tuple[str, int] | Callable[[str], Scenario]] = MappingProxyType(
    {
        FRONT: ("icml2025-cifar100", 20_000),
        "regret": ("icml2025-regret", 20_000),
        "mixed-15": ("icml2025-mixed-n15", 5_000),
        "mixed-45": ("icml2025-mixed-n45", 5_000),
        "sqrt-51": ("icml2025-quadratic-sqrt-n51", 5_000),
        "linear-153": ("icml2025-quadratic-linear-n153", 5_000),
        "log-51": ("icml2025-quadratic-log-n51", 5_000),
        "square-17": ("icml2025-quadratic-square-n17", 5_000),
        "near-equal": _near_equal,
        "log-normal": _log_normal,
        "pareto": _pareto,
        "many": _many,
        "short": ("icml2025-cifar100", 300),
        "measured-cpu": _measured,
    }
)
"""A published scenario and a number of rounds, or what makes one of ours from its name."""

RECORDINGS: Mapping[str, Recording] = MappingProxyType(
    {name: recordings.RECORDINGS[name] for name in ("alibaba-1", "alibaba-4", "mlperf")}
)
"""The recorded scenarios of the set, by name."""

QUICK: Mapping[str, int] = MappingProxyType({FRONT: 500, "regret": 500, "near-equal": 200})
"""Scenarios and rounds of a quick look."""

QUICK_PRICES = (0.0, 0.1)


def names() -> tuple[str, ...]:
    """The names of all scenarios of the set, those of recorded times last."""
    return (*_BUILT, *RECORDINGS)


@cache
def find(name: str, folder: Path | None = None) -> Scenario:
    """The scenario of that name; one of recorded times is read from ``folder``.

    FileNotFoundError if the recording is not there; ValueError if the set has no such scenario, no folder is given for
    a recorded one, or the recording is another.

    >>> find("cifar100").pool.n, find("cifar100").horizon
    (51, 20000)
    """
    if name in RECORDINGS:
        return recordings.recorded(name, folder)
    if name not in _BUILT:
        raise unknown("scenario of the leaderboard", name, names())
    built = _BUILT[name]
    return replace(scenario(built[0]), name=name, horizon=built[1]) if isinstance(built, tuple) else built(name)


def choose(wanted: Sequence[str] | None, folder: Path | None, quick: bool) -> tuple[list[Scenario], list[str]]:
    """The scenarios that are wanted, by default all that can be made, and sentences on those left out.

    The folder is that of the recordings; a quick look has few scenarios and rounds. Errors as those of ``find``.
    """
    known = tuple(QUICK) if quick else names()
    for name in wanted or ():
        if name not in known:
            raise unknown(f"{'quick ' * quick}scenario of the leaderboard", name, known)
    chosen = known if wanted is None else wanted
    lacking = [name for name in chosen if name in RECORDINGS] if folder is None else []
    if wanted is not None and lacking:
        raise ValueError(f"{', '.join(lacking)}: give --data, the folder of the recordings")
    notes = ["A quick look: few scenarios, rounds, prices and seeds, so a full run may rank otherwise."] * quick
    notes += [f"Without the recordings {', '.join(lacking)}: give their folder as --data."] * bool(lacking)
    found = [find(name, folder) for name in chosen if name not in lacking]
    return ([replace(scenario, horizon=QUICK[scenario.name]) for scenario in found] if quick else found), notes


def fingerprint() -> str:
    """A hash of all that the version stands for; its keys and their order are part of it."""
    built = [find(name) for name in _BUILT]
    data = {
        "prices": PRICES,
        "worlds": [[s.name, s.pool.to_data(), s.budget, s.horizon, s.alpha, s.eta] for s in built],
        "recordings": [[r.name, r.budget, r.rounds, r.digest] for r in RECORDINGS.values()],
        "quick": [QUICK_PRICES, dict(QUICK)],
    }
    return fingerprint_of(data)
