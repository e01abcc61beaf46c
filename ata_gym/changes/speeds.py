"""Gradual and passing changes of speed and of the noise of tasks, and load that is signalled."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.special import ndtr

from ata_gym.changes import change as limits
from ata_gym.changes.change import Autoregressive, Change, RoundContext, TwoStates, number
from ata_gym.changes.conditions import Conditions
from ata_gym.typing import Floats

_SWAPPING = 10.0  # factor of the task times on a worker that swaps


@dataclass(frozen=True)
class Periodic(Change):
    """A periodic load: task times are multiplied by ``1 + amplitude * sin(2 pi (round / period + phase))``."""

    period: float = field(metadata=limits.POSITIVE)  # in rounds
    amplitude: float = field(metadata=limits.BELOW_1)
    apart: float = field(default=1.0, metadata={"low": 0, "high": 1})
    """How far the phases of the first worker and of the one after the last lie apart, in periods: 1 spreads the workers
    evenly over the period, 0 loads all at once."""

    timed: ClassVar[bool] = True

    def longest(self, time: float) -> float:
        return time * (1 + self.amplitude)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        n = conditions.factor.shape[1]
        phase = conditions.round[:, None] / self.period + self.apart * np.arange(n) / n
        return conditions.times(1 + self.amplitude * np.sin(2 * np.pi * phase))


@dataclass(frozen=True)
class Walk(Change):
    """The logarithm of each worker's factor walks at random, and is reflected at its bounds."""

    step: float  # the largest move in a round; moves are uniform
    bound: float = field(metadata={"low": 0, "high": 100, "above": True})
    """The largest distance from 0, where it starts: ``log(2)`` keeps each worker between half and twice its speed."""

    slots: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        number(self, "step", 0, 2 * self.bound, above=True)

    def ranges(self, n: int) -> list[tuple[float, float]]:
        return [(-self.bound, self.bound)]

    def next(self, now: RoundContext, memory: Floats) -> Floats:
        moved = memory + self.step * (2 * now.uniforms() - 1)
        reflected = np.where(moved > self.bound, 2 * self.bound - moved, moved)
        return np.where(reflected < -self.bound, -2 * self.bound - reflected, reflected)

    def longest(self, time: float) -> float:
        return time * math.exp(self.bound)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return conditions.times(np.exp(memory[:, 0]))


@dataclass(frozen=True)
class OnOff(TwoStates):
    """Passing stragglers: each worker is slow in some spells of rounds, by a Markov chain that starts stationary.

    A share starts / (starts + ends) of the workers is slow, for 1 / ends rounds on average. With ``rack=8`` workers 0
    to 7 are slow in the same rounds, workers 8 to 15 in others, and so on.

    >>> OnOff(6, starts=0.01, ends=0.05, rack=8).to_data()
    {'change': 'onoff', 'factor': 6.0, 'starts': 0.01, 'ends': 0.05, 'rack': 8}
    """

    factor: float = field(metadata=limits.POSITIVE)  # multiplies the task times of a slow worker
    starts: float = field(metadata=limits.PROBABILITY)  # probability in each round that a spell starts
    ends: float = field(metadata=limits.PROBABILITY)  # ... or ends
    rack: int = field(default=1, metadata=limits.COUNT)  # so many workers in turn share one state

    def chain(self) -> tuple[float, float]:
        return self.starts, self.ends

    def longest(self, time: float) -> float:
        return time * max(1.0, self.factor)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return conditions.times(np.where(memory[:, 0] > 0, self.factor, 1.0))


@dataclass(frozen=True)
class Load(Autoregressive):
    """Other programs take a part of each worker's cpu and memory, and slow its tasks.

    Task times are multiplied by ``exp(unexplained * e) / (1 - cpu * c - memory * m)``. The loads c and m are each
    uniform on [0, 1], and e is standard normal; all three are AR(1) over rounds, independent of each other and between
    workers, and start stationary. Where m is above ``swap``, times are also multiplied by 10. With ``signals=True``
    observations hold c and m of the coming round. The form is ours.
    """

    cpu: float = field(metadata=limits.BELOW_1)  # the share of its speed that a worker loses at full load
    memory: float  # the same; together below 1
    unexplained: float = field(metadata=limits.NON_NEGATIVE)
    """Standard deviation of the part of the logarithm of the times that the signals do not explain."""
    persistence: float = field(metadata=limits.BELOW_1)  # correlation from one round to the next, below 1
    swap: float = field(default=1.0, metadata={"low": 0, "high": 1})
    """Memory load above which a worker swaps; by default it never does."""

    slots: ClassVar[int] = 3
    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        number(self, "memory", 0, 1 - self.cpu, below=True)

    def longest(self, time: float) -> float:
        """At full load, swapping if it ever does; beyond exp(700) all is too much."""
        explained = (1.0 if self.swap == 1 else _SWAPPING) / (1 - self.cpu - self.memory)
        return time * explained * math.exp(min(700.0, limits.LARGEST_NORMAL * self.unexplained))

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        cpu, ram = ndtr(memory[:, 0]), ndtr(memory[:, 1])
        factor = np.exp(self.unexplained * memory[:, 2]) / (1 - self.cpu * cpu - self.memory * ram)
        factor *= np.where(ram > self.swap, _SWAPPING, 1.0)
        return conditions.times(factor)._replace(signal=np.stack([cpu, ram], axis=2))


@dataclass(frozen=True)
class Correlated(Autoregressive):
    """Tasks of a worker share a part of their noise in a round, and less of it between rounds.

    A task's uniform noise u becomes Phi(sqrt(weight) g + sqrt(1 - weight) Phi^-1(u)), which is uniform too, so the
    distributions of task times stay as they are. Here g is the worker's standard normal number of the round, AR(1) over
    rounds: the noises of two tasks of a worker that start k rounds apart, made normal, have correlation
    ``weight * persistence**k``. Times without noise (deterministic, traces) are not changed.
    """

    weight: float = field(metadata=limits.SHARE)  # share of g in the variance, below 1
    persistence: float = field(metadata=limits.BELOW_1)  # correlation of g from one round to the next, below 1

    slots: ClassVar[int] = 1
    single: ClassVar[bool] = True

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return conditions._replace(common=memory[:, 0], weight=self.weight)


@dataclass(frozen=True)
class Outliers(Change):
    """A small share of the tasks takes many times the median of its worker.

    A task is an outlier if its own uniform noise is in the top ``share``, and the place in there gives its time: both
    are the same for every policy. The other tasks take the rest of the noise, stretched to (0, 1). Outliers are
    independent of shared noise.
    """

    share: float = field(metadata=limits.SHARE)  # of the tasks, below 1
    low: float = field(metadata=limits.POSITIVE)  # outliers are uniform between these multiples of the worker's median
    high: float

    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        number(self, "high", self.low)

    def longest(self, time: float) -> float:
        """The longest is an outlier: no median is above ``time``."""
        return time * max(1.0, self.high)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return conditions._replace(share=self.share, low=self.low, high=self.high)
