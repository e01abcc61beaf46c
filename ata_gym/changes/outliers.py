"""Changes of the noise of tasks: noise that tasks share, and outliers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ata_gym.changes.change import Change, RoundContext, number
from ata_gym.changes.conditions import Conditions
from ata_gym.typing import Floats, Ints


@dataclass(frozen=True)
class Correlated(Change):
    """Tasks of a worker share a part of their noise in a round, and less of it between rounds.

    A task's uniform noise u becomes Phi(sqrt(weight) g + sqrt(1 - weight) Phi^-1(u)), which is uniform too, so the
    distributions of task times stay as they are. Here g is the worker's standard normal number of the round, shared by
    its tasks in it. It is AR(1) over rounds (not over tasks), so the noises of two tasks of a worker, made normal, have
    correlation ``weight * persistence**k`` if they start k rounds apart. Times without noise (deterministic, traces)
    are not changed.

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

    def first(self, now: RoundContext) -> Floats:
        """It starts stationary."""
        return now.normals()

    def next(self, now: RoundContext, memory: Floats) -> Floats:
        """AR(1)."""
        return now.autoregressive(memory, self.persistence)

    def apply(self, conditions: Conditions, memory: Floats, round: Ints) -> Conditions:
        """Hand the shared numbers on to the kernels."""
        del round
        return conditions._replace(common=memory[:, 0], weight=self.weight)


@dataclass(frozen=True)
class Outliers(Change):
    """A small share of the tasks takes many times the median of its worker.

    A task is an outlier if its own uniform noise is in the top ``share``, and the place in there gives its time: both
    are the same for every policy. The other tasks take the rest of the noise, stretched to (0, 1). Outliers are
    independent of shared noise.

    Parameters
    ----------
    share
        Share of the tasks, below 1.
    low, high
        Outliers are uniform between these multiples of the median of the worker's distribution.
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
        """Hand the three numbers on to the kernels."""
        del memory, round
        return conditions._replace(share=self.share, low=self.low, high=self.high)
