"""Experiments and studies: policies on scenarios, what they did, and the reports on it.

``run`` plays policies and compares them, ``sweep`` does so at several values of a parameter; ``Results`` and ``Sweep``
are what they return.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ata_gym.bench.benchmark import PolicyFailedWarning, run
    from ata_gym.bench.results import Comparison, Results
    from ata_gym.bench.sweeps import Sweep, sweep

__all__ = ["Comparison", "PolicyFailedWarning", "Results", "Sweep", "run", "sweep"]

_HOMES = {"Comparison": "results", "Results": "results", "Sweep": "sweeps", "sweep": "sweeps"}


def __getattr__(name: str) -> Any:
    """Import what is asked for, which takes a second."""
    if name in __all__:
        return getattr(import_module(f"ata_gym.bench.{_HOMES.get(name, 'benchmark')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
