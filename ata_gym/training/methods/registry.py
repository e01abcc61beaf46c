"""The methods by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ata_gym.checks import unknown
from ata_gym.training.methods.asgd import Asgd, DelayAdaptiveAsgd, NaiveOptimalAsgd
from ata_gym.training.methods.method import Method
from ata_gym.training.methods.mindflayer import MindFlayer
from ata_gym.training.methods.rennala import Rennala
from ata_gym.training.methods.ringmaster import Ringmaster, RingmasterStops
from ata_gym.training.methods.synchronous import BackupWorkers, Minibatch, MSynchronous

METHODS: Mapping[str, type[Method]] = MappingProxyType(
    {
        "rennala": Rennala,
        "ringmaster": Ringmaster,
        "ringmaster-stops": RingmasterStops,
        "asgd": Asgd,
        "delay-adaptive-asgd": DelayAdaptiveAsgd,
        "naive-optimal-asgd": NaiveOptimalAsgd,
        "minibatch": Minibatch,
        "m-synchronous": MSynchronous,
        "backup-workers": BackupWorkers,
        "mindflayer": MindFlayer,
    }
)
"""The methods that ship with the package; each has a ``summary()``, a ``source`` and a ``step_size``."""


def find_method(method: str | type[Method]) -> type[Method]:
    """The method of that name; a class is its own.

    Raises
    ------
    ValueError
        If there is none; the message names the nearest.

    Examples
    --------
    >>> find_method("rennala").summary()
    'Everybody computes at x^k until B gradients are in; the rest is cancelled.'
    """
    if not isinstance(method, str):
        return method
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    return METHODS[method]
