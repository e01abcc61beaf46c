"""Experiments and studies: policies on scenarios, what they did, and the reports on it.

``run`` plays policies and compares them; ``Results`` is what it returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ata_gym.bench.benchmark import PolicyFailedWarning, run
    from ata_gym.bench.results import Comparison, Results

__all__ = ["Comparison", "PolicyFailedWarning", "Results", "run"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, which takes a second."""
    from importlib import import_module  # noqa: PLC0415

    if name in ("PolicyFailedWarning", "run"):
        return getattr(import_module("ata_gym.bench.benchmark"), name)
    if name in ("Comparison", "Results"):
        return getattr(import_module("ata_gym.bench.results"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
