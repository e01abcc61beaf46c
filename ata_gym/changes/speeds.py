"""Gradual and passing changes of speed and of task noise, and load that is signalled."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtr

from ata_gym.changes import change as limits
from ata_gym.changes.change import Autoregressive, Change, RoundContext, TwoStates, set_number
from ata_gym.changes.conditions import Conditions
from ata_gym.typing import Floats

_SWAPPING_FACTOR = 10.0  # factor of the task times on a worker that swaps


class _LoadColumns(NamedTuple):
    """The columns of the memory of ``Load``, standard normal numbers."""

    cpu: int = 0
    """The load of the cpu."""
    memory: int = 1
    """The load of the memory."""
    unexplained: int = 2
    """The part of the task times that the signals do not explain."""


_LOAD = _LoadColumns()


@dataclass(frozen=True)
class Periodic(Change):
    """A periodic load multiplies the task times.

    The factor is ``1 + amplitude * sin(2 pi (round / period + phase))``, where the phase of worker
    i is ``apart * i / n``.
    """

    period: float = field(metadata=limits.POSITIVE)
    """The period, in rounds."""
    amplitude: float = field(metadata=limits.BELOW_1)
    """The largest relative change of the task times, below 1."""
    apart: float = field(default=1.0, metadata={"low": 0, "high": 1})
    """The share of the period over which the phases of the workers are spread evenly.

    With 1 they are spread over the whole period, and with 0 all workers are loaded at once.
    """

    timed: ClassVar[bool] = True

    def longest_time(self, time: float, tasks: int) -> float:
        return time * (1 + self.amplitude)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        n = conditions.factor.shape[1]
        phase_of_worker = self.apart * np.arange(n) / n
        phase = conditions.round[:, None] / self.period + phase_of_worker
        return conditions.scaled(1 + self.amplitude * np.sin(2 * np.pi * phase))


@dataclass(frozen=True)
class Walk(Change):
    """The logarithm of each worker's factor walks at random, and is reflected at its bounds."""

    step: float
    """The largest move in a round; moves are uniform."""
    bound: float = field(metadata={"low": 0, "high": 100, "above": True})
    """The largest distance of the logarithm from 0, where it starts.

    With ``log(2)`` each worker keeps between half and twice its speed.
    """

    slots: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        set_number(self, "step", 0, 2 * self.bound, above=True)

    def ranges(self, n: int) -> list[tuple[float, float]]:
        return [(-self.bound, self.bound)]

    def next_memory(self, context: RoundContext, memory: Floats) -> Floats:
        moved = memory + self.step * (2 * context.uniforms() - 1)
        reflected = np.where(moved > self.bound, 2 * self.bound - moved, moved)
        return np.where(reflected < -self.bound, -2 * self.bound - reflected, reflected)

    def longest_time(self, time: float, tasks: int) -> float:
        return time * math.exp(self.bound)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return conditions.scaled(np.exp(memory[:, 0]))


@dataclass(frozen=True)
class _Spells(TwoStates):
    """Each worker has spells of rounds in which something takes ``factor`` times as long.

    Spells start and end by a Markov chain that starts stationary. A share starts / (starts + ends)
    of the workers is in one, for 1 / ends rounds on average. With ``rack=8`` workers 0 to 7 are in
    spells in the same rounds, workers 8 to 15 in others, and so on.
    """

    factor: float = field(metadata=limits.POSITIVE)
    """The factor of what a spell makes longer."""
    starts: float = field(metadata=limits.PROBABILITY)
    """The probability in each round that a spell starts."""
    ends: float = field(metadata=limits.PROBABILITY)
    """The probability in each round that a spell ends."""
    rack: int = field(default=1, metadata=limits.COUNT)
    """The number of consecutive workers that share one state."""

    def probabilities(self) -> tuple[float, float]:
        return self.starts, self.ends

    def longest_time(self, time: float, tasks: int) -> float:
        return time * max(1.0, self.factor)

    def factors(self, memory: Floats) -> Floats:
        """The factor of each worker in a round, shape (E, n)."""
        return np.where(memory[:, 0] > 0, self.factor, 1.0)


@dataclass(frozen=True)
class OnOff(_Spells):
    """Each worker is slow in some spells of rounds, as a straggler that recovers.

    Spells start and end by a Markov chain that starts stationary. A share starts / (starts + ends)
    of the workers is slow, for 1 / ends rounds on average. With ``rack=8`` workers 0 to 7 are slow
    in the same rounds, workers 8 to 15 in others, and so on.

    Example:
        >>> OnOff(6, starts=0.01, ends=0.05, rack=8).to_data()
        {'change': 'onoff', 'factor': 6.0, 'starts': 0.01, 'ends': 0.05, 'rack': 8}
    """

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return conditions.scaled(self.factors(memory))


@dataclass(frozen=True)
class Congestion(_Spells):
    """Latencies are longer in some spells of rounds, as on a network that others load.

    With ``rack=8`` workers 0 to 7 share a link, workers 8 to 15 another, and so on. With as many as
    there are workers all share one. Task times do not change. Spells start and end as in ``OnOff``.

    Example:
        >>> Congestion(10, starts=0.05, ends=0.2, rack=4).to_data()
        {'change': 'congestion', 'factor': 10.0, 'starts': 0.05, 'ends': 0.2, 'rack': 4}
    """

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return conditions._replace(latency_factor=conditions.latency_factor * self.factors(memory))


@dataclass(frozen=True)
class Load(Autoregressive):
    """Other programs take a part of each worker's cpu and memory, and slow its tasks.

    Task times are multiplied by ``exp(unexplained * e) / (1 - cpu * c - memory * m)``. The loads c
    and m are each uniform on [0, 1], and e is standard normal. All three are AR(1) over rounds,
    independent of each other and between workers, and start stationary. Where m is above ``swap``,
    times are also multiplied by 10. With ``signals=True`` observations hold c and m of the coming
    round. This form has no published source.
    """

    cpu: float = field(metadata=limits.BELOW_1)
    """The share of its speed that a worker loses at full load of its cpu."""
    memory: float
    """The share that it loses at full load of its memory; ``cpu + memory`` is below 1."""
    unexplained: float = field(metadata=limits.NON_NEGATIVE)
    """The standard deviation of the logarithm of the times that the signals do not explain."""
    persistence: float = field(metadata=limits.BELOW_1)
    """The correlation from one round to the next, below 1."""
    swap: float = field(default=1.0, metadata={"low": 0, "high": 1})
    """The load of memory above which a worker swaps; by default it never does."""

    slots: ClassVar[int] = len(_LOAD)
    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        set_number(self, "memory", 0, 1 - self.cpu, below=True)

    def longest_time(self, time: float, tasks: int) -> float:
        """The time at full load, of a worker that swaps if workers ever do."""
        if self.swap == 1:
            swapping = 1.0
        else:
            swapping = _SWAPPING_FACTOR
        explained = swapping / (1 - self.cpu - self.memory)
        # math.exp overflows from 710 on; a time with a factor of exp(700) is too long in any case.
        return time * explained * math.exp(min(700.0, limits.LARGEST_NORMAL * self.unexplained))

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        cpu_load = ndtr(memory[:, _LOAD.cpu])
        memory_load = ndtr(memory[:, _LOAD.memory])
        unexplained = np.exp(self.unexplained * memory[:, _LOAD.unexplained])
        factor = unexplained / (1 - self.cpu * cpu_load - self.memory * memory_load)
        factor *= np.where(memory_load > self.swap, _SWAPPING_FACTOR, 1.0)
        signal = np.stack([cpu_load, memory_load], axis=2)
        return conditions.scaled(factor)._replace(signal=signal)


@dataclass(frozen=True)
class Correlated(Autoregressive):
    """Tasks of a worker share a part of their noise in a round, and less of it between rounds.

    A task's uniform noise u becomes Phi(sqrt(weight) g + sqrt(1 - weight) Phi^-1(u)), which is
    uniform too, so the distributions of task times stay as they are. Here g is the worker's
    standard normal number of the round, AR(1) over rounds. The noises of two tasks of a worker that
    start k rounds apart, made normal, have correlation ``weight * persistence**k``. Times without
    noise (deterministic, traces) are not changed.
    """

    weight: float = field(metadata=limits.SHARE)
    """The share of g in the variance, below 1."""
    persistence: float = field(metadata=limits.BELOW_1)
    """The correlation of g from one round to the next, below 1."""

    slots: ClassVar[int] = 1
    single: ClassVar[bool] = True

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return conditions._replace(common=memory[:, 0], weight=self.weight)


@dataclass(frozen=True)
class Outliers(Change):
    """A small share of the tasks takes many times the median of its worker.

    A task is an outlier if its uniform noise is in the top ``share``. The place of the noise in
    that interval gives the time. Both are the same for every policy. The other tasks take the rest
    of the noise, stretched to (0, 1). Outliers are uniform between ``low`` and ``high`` times the
    worker's median, and independent of shared noise.
    """

    share: float = field(metadata=limits.SHARE)
    """The share of the tasks that are outliers, below 1."""
    low: float = field(metadata=limits.POSITIVE)
    """The shortest outlier, in medians of its worker."""
    high: float
    """The longest outlier, in medians of its worker."""

    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        set_number(self, "high", self.low)

    def longest_time(self, time: float, tasks: int) -> float:
        """The longest outlier, since no median is above ``time``."""
        return time * max(1.0, self.high)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return conditions._replace(share=self.share, low=self.low, high=self.high)
