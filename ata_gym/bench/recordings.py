"""Worlds of recorded speeds, from files that do not come with the package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np

from ata_gym.changes import Change, Jump
from ata_gym.checks import unknown
from ata_gym.pools import Pool, gamma
from ata_gym.scenarios import Scenario, scenario, scenario_names


@dataclass(frozen=True)
class Recording:
    """A world that is read from a file."""

    name: str
    file: str
    read_pool: Callable[[Path], Pool]
    """Makes the pool of the file, as it was recorded."""
    budget: int
    rounds: int
    summary: str
    source: str
    digest: str
    """Of the pool, as ``fingerprint_of`` gives it."""
    changes: tuple[Change, ...] = ()
    """What happens besides."""

    def read(self, folder: Path) -> Scenario:
        """Read the file in ``folder``.

        Raises
        ------
        FileNotFoundError
            If it is not there.
        ValueError
            If it holds other times than it did.
        """
        path = folder / self.file
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}, of which the world {self.name} is made")
        pool = self.read_pool(path)
        if fingerprint_of(pool.to_data()) != self.digest:
            raise ValueError(f"{path} holds other times than those of which the world {self.name} is made")
        return ours(self.name, pool.changing(*self.changes), self.budget, self.rounds, self.summary, self.source)


def ours(name: str, pool: Pool, budget: int, rounds: int, summary: str, source: str = "ours") -> Scenario:
    """A world without published hyperparameters gets those of the published figures: twice the means."""
    return Scenario(name, pool, budget, rounds, 2 * float(pool.mean().max()), 2.0, summary, source)


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


def _trace(path: Path, *, worker: str, duration: str, round: str | None) -> Pool:
    """A trace: the columns that name worker and round, if any, and the task time as a SQL expression over columns."""
    from ata_gym.bench.traces import make_trace  # noqa: PLC0415 - it needs polars, the names of the worlds do not

    with TemporaryDirectory() as temporary:
        return make_trace(path, Path(temporary, "clean.parquet"), worker=worker, duration=duration, round=round)


def _phones(path: Path) -> Pool:
    """60 of the phones, evenly spaced in the order of their scores; the law of the times is ours."""
    scores = np.sort([float(phone["CPU_F_AI_Score"]) for phone in json.loads(path.read_text(encoding="utf-8"))])
    chosen = scores[np.linspace(0, len(scores) - 1, 60).round().astype(np.int64)]
    return gamma(25.0, 100_000 / chosen / 25)


_ALIBABA = "alibaba/clusterdata, cluster-trace-gpu-v2020, mini-batch times (CC BY 4.0)"
_ALIBABA_TRACE = partial(_trace, worker="worker", duration="batch_time_norm", round="time")
_ALIBABA_4 = "e5e585417a40923a5d6d47444a3689ecc0e9506cccda8d41a091fb3f5a530bd0"

RECORDINGS: Mapping[str, Recording] = MappingProxyType(
    {
        recording.name: recording
        for recording in (
            Recording(
                name="alibaba-1",
                file="alibaba_job_1.csv",
                read_pool=_ALIBABA_TRACE,
                budget=10,
                rounds=300,
                summary="a training job of 10 near-equal workers",
                source=_ALIBABA,
                digest="f66f3df9e7f5a12ddfccae90b07609cb19ec9653cd7df75a132ca633a29327bb",
            ),
            Recording(
                name="alibaba-4",
                file="alibaba_job_4.csv",
                read_pool=_ALIBABA_TRACE,
                budget=10,
                rounds=2_182,
                summary="a training job of 10 workers, two of which become slow",
                source=_ALIBABA,
                digest=_ALIBABA_4,
            ),
            Recording(
                name="alibaba-4-jump",
                file="alibaba_job_4.csv",
                read_pool=_ALIBABA_TRACE,
                budget=10,
                rounds=2_182,
                summary="alibaba-4, but worker 4, one of the five fast ones, is 4 times slower from round 1,000 on",
                source=f"ours, on {_ALIBABA}",
                digest=_ALIBABA_4,
                changes=(Jump(at=1_000, workers=(4,), factor=4.0),),
            ),
            Recording(
                name="mlperf",
                file="mlperf_v07_resnet50_speed.csv.gz",
                read_pool=partial(
                    _trace,
                    worker="system",
                    duration="(batch_to - batch_from) * global_batch_size / samples_per_sec",
                    round=None,
                ),
                budget=23,
                rounds=2_000,
                summary="windows of batches of ResNet-50 on 14 systems",
                source="mlcommons/training_results_v0.7 (Apache-2.0)",
                digest="965b53b76de5556cfada0f5e089024722b0b78251ec4d9f52d98950a352bed3d",
            ),
            Recording(
                name="phones",
                file="phones_ai_benchmark.json",
                read_pool=_phones,
                budget=64,
                rounds=5_000,
                summary="60 phones, evenly spaced by score among 333: mean 100,000 / score, gamma times of CV .2",
                source="scores of PKU-Chengxu/FLASH (BSD-2-Clause); the law is ours",
                digest="b1f6a1074ad2b91e97d668882b039acd6aa3f3471e1cb9b2d1420f0bccff4764",
            ),
        )
    }
)
"""All of them, by name."""


@cache
def recorded(name: str, folder: Path | None) -> Scenario:
    """The recorded world of that name, from its file in ``folder``.

    Raises
    ------
    FileNotFoundError
        If the file is not there.
    ValueError
        If it is another, or there is no folder.
    """
    if folder is None:
        raise ValueError(f"the world {name} is made of {RECORDINGS[name].file}: give the folder of that file (--data)")
    return RECORDINGS[name].read(folder)


def find_world(name: str, folder: Path | None = None) -> Scenario:
    """The scenario or the recorded world of that name.

    Raises
    ------
    FileNotFoundError
        If the file of a recorded one is not in ``folder``.
    ValueError
        If there is no such world, a folder is missing, or it is given for a scenario.

    >>> find_world("icml2025-regret").budget
    5
    """
    if name in RECORDINGS:
        return recorded(name, folder)
    if name not in scenario_names():
        raise unknown("scenario", name, [*scenario_names(), *RECORDINGS])
    if folder is not None:
        raise ValueError(f"the scenario {name} needs no data; these do: {', '.join(RECORDINGS)}")
    return scenario(name)
