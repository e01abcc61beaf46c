"""Predictors of each worker's speed in the coming round.

They are the last value, moving averages, and linear autoregression. LB-BSP (Chen et al., SoCC 2020)
compares such predictors. A speed is results per unit of time in one round, as in the paper
(recalled: samples over compute time). A worker without a result gives no sample, and averages keep
their prediction.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import copy, copy_rows, kernel
from ata_gym.utils.ranges import Counts, Estimates, Fractions, Numbers, Times, Wholes, Within
from ata_gym.utils.validation import LARGEST_COUNT, real, whole_number
from ata_policies.beliefs.moments import Totals, mean_times
from ata_policies.facts import Described

SIGNALS = 2
"""Exogenous signals of each worker: cpu and memory load."""
LOWEST = 0.2
"""No model predicts less than this many times the moving average (ours)."""
HIGHEST = 5.0
"""No model predicts more than this many times the moving average (ours)."""
_SHORTEST = 1e-290
"""Shorter rounds of a worker count as this long, so that its speed stays finite."""
_HIGHEST_SPEED = LARGEST_COUNT / _SHORTEST
_FASTEST = 1e6
"""The regression sees no speed above this many units."""


class LastRound(NamedTuple):
    """A belief that remembers the last round alone; each field has the shape (E, n).

    It is the input of a predictor.
    """

    counts: Counts
    """Results seen in the episode."""
    tasks: Counts
    """Results of the last round."""
    busy: Times
    """Their times added up."""

    @classmethod
    def empty(cls, rows: int, n: int) -> Self:
        return cls(*np.zeros((3, rows, n)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> "LastRound":
        tasks, busy = Totals.empty(*self.counts.shape).observe(worker, duration)
        return LastRound(self.counts + tasks, tasks, busy)

    def speed(self) -> Floats:
        """Return results per unit of time in the last round, (E, n).

        NaN for a worker without a result, or whose results took no time.
        """
        return np.where(self.busy > 0.0, self.tasks, np.nan) / np.maximum(self.busy, _SHORTEST)

    def mean(self) -> Floats:
        """Return the mean task time of each worker in the last round, (E, n).

        NaN for a worker without a result in it.
        """
        return mean_times(self.tasks, self.busy)

    def untried(self) -> Mask:
        return np.equal(self.counts, 0)


class Forecast(Protocol):
    """What a predictor remembers, a named tuple of arrays."""

    @property
    def forecast(self) -> Estimates:
        """(E, n) the prediction for the coming round; NaN for a worker never seen."""


MemoryT = TypeVar("MemoryT", bound=Forecast)


class Predictor(Described, ABC, Generic[MemoryT]):
    """Hyperparameters of a predictor; what it remembers is a ``Forecast``.

    This memory is never changed in place.
    """

    source = "the textbook rule"
    assumes = "times that change slowly"
    nonstationary = True

    @abstractmethod
    def start(self, rows: int, n: int, seed: int = 0) -> MemoryT:
        """Make the memory before the first round.

        Args:
            rows: Rows E.
            n: Workers.
            seed: Row e has the randomness of ``seed + e``.
        """

    @abstractmethod
    def advance(self, memory: MemoryT, speed: Floats, signal: Floats) -> MemoryT:
        """Learn from the last round and predict the coming one.

        Args:
            memory: What the predictor remembers.
            speed: (E, n) the speeds of the last round, NaN for a worker without a sample. A row of
                NaN means that there was no round.
            signal: (E, n, 2) the cpu and memory load of the coming round in [0, 1], or zeros.
        """


class EmaMemory(NamedTuple):
    """The memory of a moving average."""

    forecast: Estimates
    """(E, n) the average."""


@dataclass(frozen=True)
class Ema(Predictor[EmaMemory]):
    """Exponential moving average: v <- weight * sample + (1 - weight) v.

    Args:
        weight: Above 0, and at most 1.
    """

    weight: float = 0.2

    constants = "weight 0.2"

    def __post_init__(self) -> None:
        real("weight", self.weight, up_to=1.0)

    def start(self, rows: int, n: int, seed: int = 0) -> EmaMemory:
        return EmaMemory(np.full((rows, n), np.nan))

    def advance(self, memory: EmaMemory, speed: Floats, signal: Floats) -> EmaMemory:
        return EmaMemory(averaged(memory.forecast, speed, self.weight))


@dataclass(frozen=True)
class Last(Ema):
    """The last sample: a moving average of weight 1."""

    weight: float = field(default=1.0, init=False)

    constants = "none"


class MedianMemory(NamedTuple):
    """What a moving median remembers."""

    forecast: Estimates
    """(E, n) the median."""
    samples: Annotated[Floats, Within(0.0, _HIGHEST_SPEED, nan=True)]
    """(E, n, W) the last samples, the latest at the end; NaN where there were none yet."""


@dataclass(frozen=True)
class Median(Predictor[MedianMemory]):
    """Median of a worker's last samples.

    Args:
        window: The number W of samples, at least 1.
    """

    window: int = 5

    constants = "W = 5"

    def __post_init__(self) -> None:
        whole_number("window", self.window)

    def start(self, rows: int, n: int, seed: int = 0) -> MedianMemory:
        return MedianMemory(np.full((rows, n), np.nan), np.full((rows, n, self.window), np.nan))

    def advance(self, memory: MedianMemory, speed: Floats, signal: Floats) -> MedianMemory:
        missing = np.isnan(speed)[..., None]
        samples = np.where(missing, memory.samples, pushed(memory.samples, speed))
        number = self.window - np.isnan(samples).sum(axis=-1)
        # NaN comes last, so that the known samples are the first of the order
        ranked = np.sort(samples, axis=-1)
        middle = np.maximum(np.stack([(number - 1) // 2, number // 2], axis=-1), 0)
        return MedianMemory(np.take_along_axis(ranked, middle, axis=-1).mean(axis=-1), samples)


class LinearMemory(NamedTuple):
    """What a linear autoregression remembers.

    It has k coefficients: of 1, of the lags, and of the signals, the latest last.
    """

    forecast: Estimates
    """(E, n) the prediction."""
    ema: Estimates
    """(E, n) a moving average of the speeds."""
    samples: Wholes
    """(E, n) rounds with a result."""
    unit: Estimates
    """(E, n) what speeds are divided by: the moving average at the end of the warm-up."""
    lags: Estimates
    """(E, n, d) the last speeds; where there was no sample, what was predicted."""
    loads: Fractions
    """(E, n, q + 1, 2) signals of the coming round and of the q rounds before it."""
    weights: Numbers
    """(E, n, k) coefficients."""
    spread: Numbers
    """(E, n, k, k) inverse of the regularised Gram matrix."""


@dataclass(frozen=True)
class Linear(Predictor[LinearMemory]):
    """Autoregression of each worker's last speeds by recursive least squares.

    With signals it is an ARX model. The prediction is w . (1, the last ``lags`` speeds, the signals
    of this and the last ``past`` rounds). After each sample w minimises

        sum (v - w . x)^2 + ridge |w - w0|^2

    over all samples since the warm-up, where w0 gives the plain mean of the lags. Without signals
    their coefficients stay 0. Where a worker has no sample, its prediction takes the place of the
    lag. Speeds are divided by a unit of each worker's own, so that the unit of time does not
    matter. During the warm-up the prediction is the moving average; later it stays within [0.2, 5]
    times the moving average. "ARIMA" is among the paper's predictors, of an order that we do not
    know: only the autoregression is from the paper.

    Args:
        lags: The last speeds that are inputs, at least 1.
        past: The rounds before the coming one whose signals are inputs, at least 0.
        ridge: The weight of the distance from w0, above 0.
        warm_up: The samples of a worker before it is modelled.
        weight: The weight of a sample in the moving average, above 0, and at most 1.
    """

    lags: int = 8
    past: int = 1
    ridge: float = 0.1
    warm_up: int = 10
    weight: float = 0.2

    source = "Chen et al., LB-BSP, SoCC 2020"
    constants = "8 lags; 2 rounds of signals; ridge 0.1"
    assumes = "speeds linear in the last ones and in the signals"

    def __post_init__(self) -> None:
        whole_number("lags", self.lags)
        whole_number("past", self.past, least=0)
        whole_number("warm_up", self.warm_up)
        real("ridge", self.ridge)
        real("weight", self.weight, up_to=1.0)

    def start(self, rows: int, n: int, seed: int = 0) -> LinearMemory:
        size = 1 + self.lags + SIGNALS * (self.past + 1)
        # Before anything is learned, it predicts the mean of the last speeds.
        weights = np.zeros((rows, n, size))
        weights[..., 1 : 1 + self.lags] = 1.0 / self.lags
        unknown = np.full((rows, n), np.nan)
        return LinearMemory(
            forecast=unknown,
            ema=unknown,
            samples=np.zeros((rows, n), np.int64),
            unit=unknown,
            lags=np.full((rows, n, self.lags), np.nan),
            loads=np.zeros((rows, n, self.past + 1, SIGNALS)),
            weights=weights,
            spread=np.tile(np.eye(size) / self.ridge, (rows, n, 1, 1)),
        )

    def advance(self, memory: LinearMemory, speed: Floats, signal: Floats) -> LinearMemory:
        has_sample = ~np.isnan(speed)
        samples = memory.samples + has_sample
        ema = averaged(memory.ema, speed, self.weight)
        unit = np.where(samples <= self.warm_up, ema, memory.unit)
        modelled = samples > self.warm_up
        # The speed is learned from what was known before it, so the lags are moved on later.
        example = _regressors(memory.lags, memory.loads, unit), _in_units(speed, unit)
        weights, spread = _least_squares(
            *example,
            has_sample & modelled,
            memory.weights,
            memory.spread,
        )
        lags, loads = looked_back(memory.lags, memory.loads, speed, memory.forecast, signal)
        prediction = unit * (_regressors(lags, loads, unit) * weights).sum(axis=-1)
        forecast = np.where(modelled, np.clip(prediction, LOWEST * ema, HIGHEST * ema), ema)
        return LinearMemory(forecast, ema, samples, unit, lags, loads, weights, spread)


def averaged(average: Floats, sample: Floats, weight: float | Floats) -> Floats:
    """Return the moving average after a sample.

    The first sample is the average itself; without a sample (NaN) the average stays.

    Args:
        average: (E, n) the average before; NaN where there was no sample yet.
        sample: (E, n) the samples.
        weight: The weight of the sample, a number or (E, n).
    """
    mixed = np.where(np.isnan(average), sample, (1.0 - weight) * average + weight * sample)
    return np.where(np.isnan(sample), average, mixed)


def pushed(series: Floats, latest: Floats) -> Floats:
    """Drop the oldest of the last axis, and append the latest."""
    return np.concatenate([series[..., 1:], latest[..., None]], axis=-1)


def looked_back(
    lags: Floats,
    loads: Floats,
    sample: Floats,
    forecast: Floats,
    signal: Floats,
) -> tuple[Floats, Floats]:
    """Return the lags and the signals after a round.

    Args:
        lags: (E, n, d) the lags before; NaN for a worker never seen.
        loads: (E, n, q + 1, 2) the signals before.
        sample: (E, n) the samples of the round, NaN for a worker without one.
        forecast: (E, n) the predictions; they take the place of samples that are missing.
        signal: (E, n, 2) the signals of the coming round.
    """
    has_sample = ~np.isnan(sample)
    latest = np.where(has_sample, sample, forecast)
    # the first sample fills all lags; a row without any sample had no round
    new_lags = np.where(np.isnan(lags), latest[..., None], pushed(lags, latest))
    played = np.any(has_sample, axis=1, keepdims=True)[..., None]
    later_loads = np.concatenate([loads[:, :, 1:], signal[:, :, None]], axis=2)
    return np.where(played, new_lags, lags), later_loads


def _regressors(lags: Floats, loads: Floats, unit: Floats) -> Floats:
    """Return the inputs x of the regression, (E, n, k): 1, the lags in units, and the signals."""
    ones = np.ones((*unit.shape, 1))
    return np.concatenate(
        [ones, _in_units(lags, unit[..., None]), loads.reshape(*unit.shape, -1)],
        axis=-1,
    )


def _in_units(speed: Floats, unit: Floats) -> Floats:
    """Return speeds over their unit, cut at 10^6."""
    with np.errstate(over="ignore"):
        return np.minimum(speed / unit, _FASTEST)


@kernel("(k),(),(),(k),(k,k)->(k),(k,k)")
def _least_squares(
    x: Floats,
    y: Floats,
    learns: Mask,
    weights: Floats,
    spread: Floats,
    new_weights: Floats,
    new_spread: Floats,
) -> None:
    """Update coefficients and the inverse Gram matrix by a sample y at the inputs x."""
    copy(weights, new_weights)
    copy_rows(spread, new_spread)
    if learns[0]:
        # Sherman and Morrison's formula: the gain is P x, and the scale is 1 + x P x
        size = len(x)
        gain = np.zeros(size)
        error = y[0]
        scale = 1.0
        for i in range(size):
            for j in range(size):
                gain[i] += spread[i, j] * x[j]
            error -= weights[i] * x[i]
            scale += gain[i] * x[i]
        for i in range(size):
            new_weights[i] += gain[i] * error / scale
            for j in range(size):
                new_spread[i, j] -= gain[i] * gain[j] / scale
