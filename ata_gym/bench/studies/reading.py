"""Results that a study has left in a folder."""

import os
from pathlib import Path
from typing import Any

from ata_gym.bench.runner.results import Results
from ata_gym.bench.store.note import read_note
from ata_gym.utils.extras import load_object, require

STUDIES = {
    "bench": "ata_gym.bench.studies.benchmark:Benchmark",
    "scenarios": "ata_gym.bench.studies.benchmark:Scenarios",
    "leaderboard": "ata_gym.bench.studies.leaderboard.study:Leaderboard",
    "sweep": "ata_gym.bench.studies.sweep:Sweep",
    "what-if": "ata_gym.bench.studies.what_if.study:WhatIf",
    "learn": "ata_gym.bench.studies.learning.study:AgentTraining",
    "regret": "ata_gym.bench.studies.paper.regret:RegretFigure",
    "cifar100": "ata_gym.bench.studies.paper.cifar100:Cifar100Figure",
    "cifar100-network": "ata_gym.bench.studies.paper.trained.network:NetworkFigure",
    "quadratic": "ata_gym.bench.studies.paper.trained.quadratic:QuadraticFigure",
    "train": "ata_gym.bench.studies.training.one_trajectory.study:LossStudy",
    "train-each": "ata_gym.bench.studies.training.separate.study:SeparateTrainings",
    "track": "ata_gym.bench.studies.tracking.study:Tracking",
}
"""The class of each study, by the name in the note of its folder."""

_NEEDS_TORCH = {
    **dict.fromkeys(("train", "train-each", "quadratic", "cifar100-network"), "train"),
    "learn": "rl",
}
"""The extra that a study needs, beside the extra of all studies."""


def read(folder: str | os.PathLike[str]) -> Results:
    """Read the results in a folder, also while they are made, or after a kill.

    Args:
        folder: The folder that a command got as ``--out``, or a function as ``out``.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it holds no results, or nothing has finished.
        DamagedError: If a file is damaged.
        MissingExtraError: If the study needs packages that are not installed.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from ata_gym import bench
        >>> with TemporaryDirectory() as out:
        ...     size = {"rounds": 20, "seeds": 2, "jobs": 1}
        ...     results = bench.run("ofta,uta", "five-workers", out=out, **size)
        ...     bench.read(out).table().equals(results.table())
        True
    """
    path = Path(folder)
    name = read_note(path)["study"]
    if name not in STUDIES:
        raise ValueError(
            f"{path} holds the results of {name!r}, a study that this version of ata-gym does not"
            f" have: it has {', '.join(STUDIES)}",
        )
    if name in _NEEDS_TORCH:
        require("torch", extra=_NEEDS_TORCH[name], purpose=f"The results of {name}")
    study: Any = load_object("study", STUDIES[name])
    return Results(study.report(path))
