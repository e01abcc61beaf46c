"""Changes of the noise of tasks: noise that tasks share, and outliers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ata_gym.changes.change import BELOW_1, POSITIVE, SHARE, Autoregressive, Change, number
from ata_gym.changes.conditions import Conditions
from ata_gym.typing import Floats


@dataclass(frozen=True)
class Correlated(Autoregressive):
    """Tasks of a worker share a part of their noise in a round, and less of it between rounds.

    A task's uniform noise u becomes Phi(sqrt(weight) g + sqrt(1 - weight) Phi^-1(u)), which is uniform too, so the
    distributions of task times stay as they are. Here g is the worker's standard normal number of the round, AR(1) over
    rounds: the noises of two tasks of a worker that start k rounds apart, made normal, have correlation
    ``weight * persistence**k``. Times without noise (deterministic, traces) are not changed.
    """

    weight: float = field(metadata=SHARE)  # share of g in the variance, below 1
    persistence: float = field(metadata=BELOW_1)  # correlation of g from one round to the next, below 1

    slots: ClassVar[int] = 1
    single: ClassVar[bool] = True

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        """Hand the shared numbers on to the kernels."""
        return conditions._replace(common=memory[:, 0], weight=self.weight)


@dataclass(frozen=True)
class Outliers(Change):
    """A small share of the tasks takes many times the median of its worker.

    A task is an outlier if its own uniform noise is in the top ``share``, and the place in there gives its time: both
    are the same for every policy. The other tasks take the rest of the noise, stretched to (0, 1). Outliers are
    independent of shared noise.
    """

    share: float = field(metadata=SHARE)  # of the tasks, below 1
    low: float = field(metadata=POSITIVE)  # outliers are uniform between these multiples of the worker's median
    high: float

    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        number(self, "high", self.low)

    def longest(self, time: float) -> float:
        """The longest is an outlier: no median is above ``time``."""
        return time * max(1.0, self.high)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        """Hand the three numbers on to the kernels."""
        return conditions._replace(share=self.share, low=self.low, high=self.high)
