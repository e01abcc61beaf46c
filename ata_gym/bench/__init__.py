"""Studies: policies on scenarios, what they did, and the reports on it.

``run`` plays policies and compares them, ``sweep`` does so at several values of a parameter, and
``train`` by the time until the loss of a training is low. ``leaderboard`` ranks them on a fixed set
of scenarios, ``track`` measures how they follow a change, and ``reproduce`` runs what a paper has
published. ``learn`` trains an agent, and ``what_if`` plays the steps of a job's log again. ``read``
reads what any of them has left in a folder. ``Results`` is what all of them return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ata_gym.utils.imports.lazy import lazy_names

if TYPE_CHECKING:
    from ata_gym.bench.runner.results import Comparison, Failure, Results
    from ata_gym.bench.runner.study import PolicyFailedWarning
    from ata_gym.bench.studies.benchmark import run
    from ata_gym.bench.studies.leaderboard.study import leaderboard
    from ata_gym.bench.studies.learning.study import learn
    from ata_gym.bench.studies.paper.reproduce import reproduce
    from ata_gym.bench.studies.reading import read
    from ata_gym.bench.studies.sweep import sweep
    from ata_gym.bench.studies.tracking.study import track
    from ata_gym.bench.studies.training.run import train
    from ata_gym.bench.studies.what_if.study import what_if
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Comparison": "runner.results",
            "Failure": "runner.results",
            "PolicyFailedWarning": "runner.study",
            "Results": "runner.results",
            "leaderboard": "studies.leaderboard.study",
            "learn": "studies.learning.study",
            "read": "studies.reading",
            "reproduce": "studies.paper.reproduce",
            "run": "studies.benchmark",
            "sweep": "studies.sweep",
            "track": "studies.tracking.study",
            "train": "studies.training.run",
            "what_if": "studies.what_if.study",
        },
    )

__all__ = [
    "Comparison",
    "Failure",
    "PolicyFailedWarning",
    "Results",
    "leaderboard",
    "learn",
    "read",
    "reproduce",
    "run",
    "sweep",
    "track",
    "train",
    "what_if",
]
