"""The worlds of the leaderboard: a fixed set with a version. Who changes anything here gives it a new version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np

from ata_gym.bench.traces import make_trace
from ata_gym.checks import unknown
from ata_gym.pools import Pool, gamma, log_normal, measured, pareto
from ata_gym.scenarios import Scenario, scenario

VERSION = "1"
"""Of the worlds, their rounds and the prices, as ``fingerprint`` sees them."""

PRICES = (0.0, 0.01, 0.1, 1.0)
"""Of a unit of worker time, in units of runtime."""

FRONT = "cifar100"
"""The world of the picture."""

FRONT_PRICES = (0.0, 0.003, 0.01, 0.02, 0.05, 0.09, 0.15, 0.3, 1.0)
"""At these, those who know the laws draw what can be reached in it."""


@dataclass(frozen=True)
class Recording:
    """A world of recorded times, from a file that does not come with the package."""

    name: str
    file: str
    worker: str
    """The column that names the worker."""
    duration: str
    """The task time as a SQL expression over the columns."""
    round: str | None
    """The column of rounds; None: replayed task by task."""
    budget: int
    rounds: int
    summary: str
    source: str
    digest: str
    """Of the pool, as ``fingerprint_of`` gives it."""

    def read(self, folder: Path) -> Scenario:
        """Read the file in ``folder``.

        Raises
        ------
        ValueError
            If it holds other times than those of this version.
        """
        path = folder / self.file
        with TemporaryDirectory() as temporary:
            pool = make_trace(
                path,
                Path(temporary, "clean.parquet"),
                worker=self.worker,
                duration=self.duration,
                round=self.round,
            )
        if fingerprint_of(pool.to_data()) != self.digest:
            raise ValueError(f"{path} holds other times than the world {self.name} of version {VERSION} has")
        return _ours(self.name, pool, self.budget, self.rounds, self.summary, self.source)


def fingerprint_of(data: object) -> str:
    """A hash of plain data, in which floats count to ten digits: the last may depend on the machine.

    >>> fingerprint_of([1.0, "a"]) == fingerprint_of([1.0 + 1e-15, "a"]) != fingerprint_of([1.1, "a"])
    True
    """
    return hashlib.sha256(json.dumps(_rounded(data)).encode()).hexdigest()


def _rounded(data: object) -> object:
    if isinstance(data, Mapping):
        return {key: _rounded(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_rounded(value) for value in data]
    return f"{data:.10g}" if isinstance(data, float) else data


def _published(name: str, known: str, rounds: int) -> Scenario:
    return replace(scenario(known), name=name, horizon=rounds)


def _ours(name: str, pool: Pool, budget: int, rounds: int, summary: str, source: str = "ours") -> Scenario:
    """A world without published hyperparameters gets those of the published figures: twice the means."""
    return Scenario(name, pool, budget, rounds, 2 * float(pool.mean().max()), 2.0, summary, source)


def _near_equal(name: str, rounds: int) -> Scenario:
    means = np.linspace(95.0, 105.0, 20)
    return _ours(name, gamma(400.0, means / 400), 23, rounds, "20 workers, gamma times of CV .05, means 95 to 105")


def _log_normal(name: str, rounds: int) -> Scenario:
    means, sigma = 10 * np.arange(1.0, 21), 1.5
    pool = log_normal(np.log(means) - sigma**2 / 2, sigma)
    return _ours(name, pool, 10, rounds, "log-normal times of CV 2.9, means 10 i, i = 1..20")


def _pareto(name: str, rounds: int) -> Scenario:
    means, shape = 10 * np.arange(1.0, 21), 2.2
    scale = means * (shape - 1)
    return _ours(
        name, pareto(shape, scale, shift=-scale), 10, rounds, "Lomax times of shape 2.2, means 10 i, i = 1..20"
    )


def _many(name: str, rounds: int) -> Scenario:
    means = np.geomspace(10.0, 1000.0, 1000)
    return _ours(name, gamma(4.0, means / 4), 100, rounds, "1,000 workers, gamma times of CV .5, means 10 to 1000")


def _measured(name: str, rounds: int) -> Scenario:
    return _ours(name, measured("cpu"), 16, rounds, "real gradients on a processor, 150 times each of 8 workers")


_BUILDERS: Mapping[str, Callable[[str], Scenario]] = MappingProxyType(
    {
        FRONT: lambda name: _published(name, "icml2025-cifar100", 20_000),
        "regret": lambda name: _published(name, "icml2025-regret", 20_000),
        "mixed-15": lambda name: _published(name, "icml2025-mixed-n15", 5_000),
        "mixed-45": lambda name: _published(name, "icml2025-mixed-n45", 5_000),
        "sqrt-51": lambda name: _published(name, "icml2025-quadratic-sqrt-n51", 5_000),
        "linear-153": lambda name: _published(name, "icml2025-quadratic-linear-n153", 5_000),
        "log-51": lambda name: _published(name, "icml2025-quadratic-log-n51", 5_000),
        "square-17": lambda name: _published(name, "icml2025-quadratic-square-n17", 5_000),
        "near-equal": lambda name: _near_equal(name, 5_000),
        "log-normal": lambda name: _log_normal(name, 5_000),
        "pareto": lambda name: _pareto(name, 5_000),
        "many": lambda name: _many(name, 1_000),
        "short": lambda name: _published(name, "icml2025-cifar100", 300),
        "measured-cpu": lambda name: _measured(name, 2_000),
    }
)

_ALIBABA = "alibaba/clusterdata, cluster-trace-gpu-v2020, mini-batch times (CC BY 4.0)"

RECORDINGS: Mapping[str, Recording] = MappingProxyType(
    {
        recording.name: recording
        for recording in (
            Recording(
                name="alibaba-1",
                file="alibaba_job_1.csv",
                worker="worker",
                duration="batch_time_norm",
                round="time",
                budget=10,
                rounds=300,
                summary="a training job of 10 near-equal workers",
                source=_ALIBABA,
                digest="f66f3df9e7f5a12ddfccae90b07609cb19ec9653cd7df75a132ca633a29327bb",
            ),
            Recording(
                name="alibaba-4",
                file="alibaba_job_4.csv",
                worker="worker",
                duration="batch_time_norm",
                round="time",
                budget=10,
                rounds=2_182,
                summary="a training job of 10 workers, two of which become slow",
                source=_ALIBABA,
                digest="e5e585417a40923a5d6d47444a3689ecc0e9506cccda8d41a091fb3f5a530bd0",
            ),
            Recording(
                name="mlperf",
                file="mlperf_v07_resnet50_speed.csv.gz",
                worker="system",
                duration="(batch_to - batch_from) * global_batch_size / samples_per_sec",
                round=None,
                budget=23,
                rounds=2_000,
                summary="windows of batches of ResNet-50 on 14 systems",
                source="mlcommons/training_results_v0.7 (Apache-2.0)",
                digest="965b53b76de5556cfada0f5e089024722b0b78251ec4d9f52d98950a352bed3d",
            ),
        )
    }
)
"""The worlds of recorded times, by name."""

QUICK: Mapping[str, int] = MappingProxyType({FRONT: 500, "regret": 500, "near-equal": 200})
"""Worlds and rounds of a quick look."""

QUICK_PRICES = (0.0, 0.1)


def world_names() -> tuple[str, ...]:
    """The names of all worlds, those of recorded times last."""
    return (*_BUILDERS, *RECORDINGS)


@cache
def world(name: str, folder: Path | None = None) -> Scenario:
    """The world of that name; one of recorded times is read from ``folder``.

    Raises
    ------
    FileNotFoundError
        If the recording is not there.
    ValueError
        If there is no such world, or the recording is another.

    Examples
    --------
    >>> world("cifar100").pool.n, world("cifar100").horizon
    (51, 20000)
    """
    if name in RECORDINGS:
        if folder is None:
            raise FileNotFoundError(f"the world {name} is read from {RECORDINGS[name].file}: give its folder")
        return RECORDINGS[name].read(folder)
    if name not in _BUILDERS:
        raise unknown("world", name, world_names())
    return _BUILDERS[name](name)


def fingerprint() -> str:
    """A hash of all that the version stands for."""
    built = [world(name) for name in _BUILDERS]
    data = {
        "prices": PRICES,
        "worlds": [[w.name, w.pool.to_data(), w.budget, w.horizon, w.alpha, w.eta] for w in built],
        "recordings": [[r.name, r.budget, r.rounds, r.digest] for r in RECORDINGS.values()],
        "quick": [QUICK_PRICES, dict(QUICK)],
    }
    return fingerprint_of(data)
