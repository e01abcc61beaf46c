"""Scenarios of recorded speeds, read from files that do not come with the package."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ata_gym.changes import Change, Jump, Spot
from ata_gym.pools import Pool, gamma, read_trace, trace
from ata_gym.scenarios.registry import scenario, scenario_names
from ata_gym.scenarios.scenario import Scenario
from ata_gym.utils.extras import require
from ata_gym.utils.files.atomic import check_name
from ata_gym.utils.files.json_files import parse_list
from ata_gym.utils.files.tables import reading
from ata_gym.utils.validation import unknown


@dataclass(frozen=True)
class Recording:
    """A scenario that is read from a file."""

    file: str
    read_pool: Callable[[Path], Pool]
    budget: int
    rounds: int
    summary: str
    source: str
    digest: str
    """What ``fingerprint_of`` gives for the pool's data."""
    changes: tuple[Change, ...] = ()
    """Changes on top of what was recorded."""


def fingerprint_of(data: object) -> str:
    """A hash of plain data, in which floats count to ten digits.

    The last digits of a float may depend on the machine.

    Example:
        >>> fingerprint_of([1.0, "a"]) == fingerprint_of([1.0 + 1e-15, "a"])
        True
        >>> fingerprint_of([1.0, "a"]) == fingerprint_of([1.1, "a"])
        False
    """
    rounded = json.loads(json.dumps(data), parse_float=lambda digits: f"{float(digits):.10g}")
    return hashlib.sha256(json.dumps(rounded).encode()).hexdigest()


def _mlperf(path: Path) -> Pool:
    """The time of each recorded window of batches, per system and in the order of the file."""
    pl = require("polars", extra="bench", purpose="Reading a recorded scenario")
    with reading(f"{path}: the file cannot be read"):
        samples = (pl.col("batch_to") - pl.col("batch_from")) * pl.col("global_batch_size")
        seconds = (samples / pl.col("samples_per_sec")).alias("seconds")
        rows = pl.read_csv(path, infer_schema_length=None, glob=False).select("system", seconds)
    return trace(
        [
            rows.filter(pl.col("system") == name)["seconds"]
            for name in rows["system"].unique().sort()
        ],
    )


def _phones(path: Path) -> Pool:
    try:
        scores = np.sort(
            [float(phone["CPU_F_AI_Score"]) for phone in parse_list(path.read_bytes())],
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{path} is no list of phones, each with a CPU_F_AI_Score: {error}",
        ) from error
    if not (len(scores) and scores[0] > 0.0 and scores[-1] < np.inf):
        raise ValueError(
            f"{path} is no list of phones: each must have a score above 0, and there must be one",
        )
    # scores of 60 phones, evenly spaced by rank
    ranks = np.linspace(0, len(scores) - 1, 60).round()
    chosen_scores = scores[ranks.astype(np.int64)]
    # a gamma time of shape 25 has a CV of 1 / sqrt(25)
    return gamma(25.0, 100_000 / chosen_scores / 25)


_ALIBABA_1 = Recording(
    "alibaba_job_1.csv",
    partial(read_trace, worker="worker", duration="batch_time_norm", round="time"),
    budget=10,
    rounds=300,
    summary="a training job of 10 near-equal workers",
    source="alibaba/clusterdata, cluster-trace-gpu-v2020, mini-batch times (CC BY 4.0)",
    digest="f66f3df9e7f5a12ddfccae90b07609cb19ec9653cd7df75a132ca633a29327bb",
)
_ALIBABA_4 = replace(
    _ALIBABA_1,
    file="alibaba_job_4.csv",
    rounds=2_182,
    summary="a training job of 10 workers, two of which become slow",
    digest="e5e585417a40923a5d6d47444a3689ecc0e9506cccda8d41a091fb3f5a530bd0",
)
_PHONES = Recording(
    "phones_ai_benchmark.json",
    _phones,
    budget=64,
    rounds=5_000,
    summary=(
        "60 phones, evenly spaced by score among 333: mean 100,000 / score, gamma times of CV .2"
    ),
    source="scores of PKU-Chengxu/FLASH (BSD-2-Clause); the distribution is ours",
    digest="b1f6a1074ad2b91e97d668882b039acd6aa3f3471e1cb9b2d1420f0bccff4764",
)
_ALL = {
    "alibaba-1": _ALIBABA_1,
    "alibaba-4": _ALIBABA_4,
    "alibaba-4-jump": replace(
        _ALIBABA_4,
        source=f"ours, on {_ALIBABA_4.source}",
        changes=(Jump(at=1_000, workers=(4,), factor=4.0),),
        summary=(
            "alibaba-4, but worker 4, one of the five fast ones, is 4 times slower from round"
            " 1,000 on"
        ),
    ),
    "mlperf": Recording(
        "mlperf_v07_resnet50_speed.csv.gz",
        _mlperf,
        budget=23,
        rounds=2_000,
        summary="windows of batches of ResNet-50 on 14 systems",
        source="mlcommons/training_results_v0.7 (Apache-2.0)",
        digest="965b53b76de5556cfada0f5e089024722b0b78251ec4d9f52d98950a352bed3d",
    ),
    "phones": _PHONES,
    "phones-spot": replace(
        _PHONES,
        rounds=600,
        changes=(Spot(leaves=0.004, returns=0.02, deadline=3_000),),
        summary=f"{_PHONES.summary}; away for spells of 50 rounds, 1 round in 6",
    ),
}

RECORDINGS: Mapping[str, Recording] = MappingProxyType(_ALL)
"""The recordings by the names of their scenarios."""


@cache
def recorded_scenario(name: str, folder: Path | None) -> Scenario:
    """The recorded scenario of that name, from its file in ``folder``.

    Raises:
        FileNotFoundError: If the file is not in the folder.
        ValueError: If there is no folder, or its file holds other times.
    """
    recording = RECORDINGS[name]
    if folder is None:
        raise ValueError(
            f"the scenario {name} is made of {recording.file}: give the folder of that file"
            " (--data)",
        )
    path = folder / recording.file
    check_name(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}, of which the scenario {name} is made")
    pool = recording.read_pool(path)
    if fingerprint_of(pool.to_data()) != recording.digest:
        raise ValueError(
            f"{path} does not hold the times from which the scenario {name} is made",
        )
    return Scenario(
        pool,
        recording.budget,
        recording.rounds,
        recording.changes,
        name=name,
        summary=recording.summary,
        source=recording.source,
    )


def find_scenario(name: str, folder: Path | None = None) -> Scenario:
    """The scenario of that name, recorded or not.

    Raises:
        FileNotFoundError: If the file of a recorded scenario is not in ``folder``.
        ValueError: If there is no such scenario, if the folder is missing or its file holds other
            times, or if a folder is given for a scenario that needs none.

    Example:
        >>> find_scenario("icml2025-regret").budget
        5
    """
    if name in RECORDINGS:
        return recorded_scenario(name, folder)
    if name not in scenario_names():
        raise unknown("scenario", name, [*scenario_names(), *RECORDINGS])
    if folder is not None:
        raise ValueError(f"the scenario {name} needs no data; these do: {', '.join(RECORDINGS)}")
    return scenario(name)
