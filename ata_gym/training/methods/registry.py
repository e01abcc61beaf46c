"""The methods by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ata_gym.training.methods.asynchronous.asgd import Asgd, DelayAdaptiveAsgd, NaiveOptimalAsgd
from ata_gym.training.methods.asynchronous.ringmaster import Ringmaster, RingmasterStops
from ata_gym.training.methods.asynchronous.round_robin import RoundRobin
from ata_gym.training.methods.asynchronous.stale_synchronous import StaleSynchronous
from ata_gym.training.methods.method import Method
from ata_gym.training.methods.synchronous.mindflayer import MindFlayer
from ata_gym.training.methods.synchronous.minibatch import BackupWorkers, Minibatch, MSynchronous
from ata_gym.training.methods.synchronous.rennala import Rennala
from ata_gym.utils.validation import unknown

METHODS: Mapping[str, type[Method]] = MappingProxyType(
    {
        "rennala": Rennala,
        "ringmaster": Ringmaster,
        "ringmaster-stops": RingmasterStops,
        "asgd": Asgd,
        "delay-adaptive-asgd": DelayAdaptiveAsgd,
        "naive-optimal-asgd": NaiveOptimalAsgd,
        "ssp": StaleSynchronous,
        "r2sp": RoundRobin,
        "minibatch": Minibatch,
        "m-synchronous": MSynchronous,
        "backup-workers": BackupWorkers,
        "mindflayer": MindFlayer,
    }
)
"""The methods that ship with the package; each has a ``summary()``, a ``source`` and a ``step_size``."""


def find_method(method: str | type[Method]) -> type[Method]:
    """The method of that name; a class is returned as it is.

    Raises
    ------
    ValueError
        If there is none; the message names the nearest.

    Examples
    --------
    >>> find_method("rennala").summary()
    'All workers compute at x^k until B gradients are in; the rest is cancelled.'
    """
    if not isinstance(method, str):
        return method
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    return METHODS[method]
