"""What happens to single tasks: noise that neighbours share, and rare huge times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ata_gym.changes.chains import autoregressive, normals
from ata_gym.changes.change import Change, Now, number
from ata_gym.changes.conditions import Conditions, Floats, Ints


@dataclass(frozen=True)
class Correlated(Change):
    """Task times of neighbouring rounds are alike, and follow their laws as before.

    A task's uniform noise u becomes Phi(sqrt(weight) g + sqrt(1 - weight) Phi^-1(u)). Here g is the worker's standard
    normal number of the round, shared by its tasks in it. It is AR(1) over rounds (not over tasks), so the noises of
    two tasks of a worker, made normal, have correlation ``weight * persistence**k`` if they start k rounds apart. Times
    without noise (deterministic, traces) stay as they are.

    Parameters
    ----------
    weight
        Share of g in the variance, below 1.
    persistence
        Correlation of g from one round to the next, below 1.
    """

    weight: float
    persistence: float

    slots: ClassVar[int] = 1
    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        number(self, "weight", 0, 1, above=True, below=True)
        number(self, "persistence", 0, 1, below=True)

    def first(self, now: Now) -> Floats:
        """It starts stationary."""
        return normals(now, 1)

    def next(self, now: Now, memory: Floats) -> Floats:
        """AR(1)."""
        return autoregressive(now, memory, self.persistence)

    def apply(self, conditions: Conditions, memory: Floats, round: Ints) -> Conditions:
        """All tasks of a worker share its number."""
        del round
        return conditions._replace(common=memory[:, 0], weight=self.weight)


@dataclass(frozen=True)
class Outliers(Change):
    """Rare tasks take many times their worker's median.

    Which ones they are, and how long they take, is in the top end of a task's own noise, so it is the same for every
    policy; the rest of the noise, stretched, gives the other tasks. Outliers are independent of common noise.

    Parameters
    ----------
    share
        Share of the tasks, below 1.
    low, high
        Their times are uniform between these multiples of the median of the worker's law.
    """

    share: float
    low: float
    high: float

    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        number(self, "share", 0, 1, above=True, below=True)
        number(self, "low", 0, above=True)
        number(self, "high", self.low)

    def apply(self, conditions: Conditions, memory: Floats, round: Ints) -> Conditions:
        """Nothing but numbers for the kernels."""
        del memory, round
        return conditions._replace(share=self.share, low=self.low, high=self.high)
