"""Other work on the workers' machines, which can be watched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr

from ata_gym.changes.chains import autoregressive, normals
from ata_gym.changes.change import Change, Now, number
from ata_gym.changes.conditions import Conditions, Floats, Ints

SWAPPING = 10.0
"""How many times as long tasks take on a worker that swaps."""


@dataclass(frozen=True)
class Load(Change):
    """Other work takes a part of each worker's cpu and memory, and slows its tasks.

    Task times are multiplied by ``exp(unexplained * e) / (1 - cpu * c - memory * m)``. The loads c and m are each
    uniform on [0, 1], and e is standard normal; all three are AR(1) over rounds, independent of each other and between
    workers, and start stationary. Where m is above ``swap``, tasks take 10 times as long besides. With ``signals=True``
    an env shows c and m of the coming round. The form is ours.

    Parameters
    ----------
    cpu, memory
        The part of its speed that a worker loses at full load; together below 1.
    unexplained
        Size of what the signals do not tell.
    persistence
        Correlation from one round to the next, below 1.
    swap
        Memory load above which a worker swaps; by default it never does.
    """

    cpu: float
    memory: float
    unexplained: float
    persistence: float
    swap: float = 1.0

    slots: ClassVar[int] = 3
    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        number(self, "cpu", 0, 1, below=True)
        number(self, "memory", 0, 1 - self.cpu, below=True)
        number(self, "unexplained", 0)
        number(self, "persistence", 0, 1, below=True)
        number(self, "swap", 0, 1)

    def first(self, now: Now) -> Floats:
        """It starts stationary."""
        return normals(now, self.slots)

    def next(self, now: Now, memory: Floats) -> Floats:
        """AR(1)."""
        return autoregressive(now, memory, self.persistence)

    def apply(self, conditions: Conditions, memory: Floats, round: Ints) -> Conditions:
        """The loads, and what they and the rest do to the speed."""
        del round
        cpu, ram = ndtr(memory[:, 0]), ndtr(memory[:, 1])
        factor = np.exp(self.unexplained * memory[:, 2]) / (1 - self.cpu * cpu - self.memory * ram)
        factor *= np.where(ram > self.swap, SWAPPING, 1.0)
        return conditions._replace(factor=conditions.factor * factor, signal=np.stack([cpu, ram], axis=2))
