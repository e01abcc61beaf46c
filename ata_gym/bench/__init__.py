"""Experiments and studies: policies on scenarios, what they did, and the reports on it.

``run`` plays policies and compares them, ``sweep`` does so at several values of a parameter;
``Results`` and ``Sweep`` are what they return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ata_gym.utils.lazy import lazy_names

if TYPE_CHECKING:
    from ata_gym.bench.runner.results import Comparison, Results
    from ata_gym.bench.studies.comparison import PolicyFailedWarning, run
    from ata_gym.bench.studies.sweep import Sweep, sweep
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Comparison": "runner.results",
            "PolicyFailedWarning": "studies.comparison",
            "Results": "runner.results",
            "Sweep": "studies.sweep",
            "run": "studies.comparison",
            "sweep": "studies.sweep",
        },
    )

__all__ = ["Comparison", "PolicyFailedWarning", "Results", "Sweep", "run", "sweep"]
