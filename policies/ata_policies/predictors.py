"""What each worker's speed will be in the coming round: last value, moving averages, and linear autoregression.

LB-BSP (Chen et al., SoCC 2020) shares a batch by predicted speeds and compares such predictors. A speed is results per
unit of time in one round, as in LB-BSP (recalled: samples over compute time). A predictor holds hyperparameters; what
it remembers of a row is a named tuple of arrays, with the prediction for the coming round in the field ``forecast``,
NaN for a worker never seen. Workers without a result give no sample: averages keep their last prediction, and the
others say what they do. The network has its own file, ``narx``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.checks import whole_number
from ata_gym.compiled import gufunc
from ata_gym.simulation import Floats, Ints
from ata_policies.beliefs import Belief
from ata_policies.hyperparameters import real

SIGNALS = 2
"""Exogenous signals of each worker: cpu and memory load."""
LOWEST, HIGHEST = 0.2, 5.0
"""No model predicts less or more than this many times the moving average (ours)."""


class LastRound(NamedTuple):
    """A belief that remembers no more than the last round: what a predictor is fed with; each of shape (E, n)."""

    counts: Floats
    """Tasks seen in the episode."""
    tasks: Floats
    """Results of the last round."""
    busy: Floats
    """Their times added up."""

    @classmethod
    def empty(cls, rows: int, n: int) -> LastRound:
        """No round was played."""
        return cls(*np.zeros((3, rows, n)))

    def observe(self, worker: Ints, time: Floats, elapsed: Floats | None = None) -> LastRound:
        """Return the belief after a round; the arguments are those of ``Belief.observe``.

        >>> LastRound.empty(1, 2).observe(np.array([[0, 0]]), np.array([[2.0, 6.0]])).speed()
        array([[0.25,  nan]])
        """
        del elapsed
        tasks, busy = Belief.empty(*self.counts.shape).observe(worker, time)
        return LastRound(self.counts + tasks, tasks, busy)

    def speed(self) -> Floats:
        """Results per unit of time, shape (E, n); NaN for a worker without a result."""
        return np.divide(self.tasks, self.busy, out=np.full_like(self.busy, np.nan), where=self.busy > 0)

    def untried(self) -> NDArray[np.bool_]:
        """Which workers have never finished a task, shape (E, n)."""
        never: NDArray[np.bool_] = self.counts == 0
        return never


class Predictor(ABC):
    """Hyperparameters of a predictor; what it remembers is passed in and out, and never mutated."""

    @abstractmethod
    def start(self, rows: int, n: int, seed: int = 0) -> Any:
        """What is remembered before the first round; row e has the randomness of ``seed + e``."""

    @abstractmethod
    def advance(self, memory: Any, speed: Floats, signal: Floats) -> Any:
        """Learn from the last round and predict the coming one.

        Parameters
        ----------
        memory
            What ``start`` or the last call returned.
        speed
            (E, n) speeds of the last round, NaN for a worker without a result; a row of NaN: there was no round.
        signal
            (E, n, 2) cpu and memory load of the coming round in [0, 1], or zeros.
        """


class Average(NamedTuple):
    """What a moving average remembers."""

    forecast: Floats
    """(E, n) the average."""


@dataclass(frozen=True)
class Ema(Predictor):
    """Exponential moving average, v <- weight * sample + (1 - weight) v; with weight 1 the last value.

    Examples
    --------
    >>> ema, nothing = Ema(0.5), np.zeros((1, 2, 2))
    >>> memory = ema.advance(ema.start(1, 2), np.array([[4.0, 1.0]]), nothing)
    >>> ema.advance(memory, np.array([[2.0, np.nan]]), nothing).forecast
    array([[3., 1.]])
    """

    weight: float = 0.2

    def __post_init__(self) -> None:
        real("weight", self.weight, up_to=1.0)

    def start(self, rows: int, n: int, seed: int = 0) -> Average:
        """Nothing is known."""
        del seed
        return Average(np.full((rows, n), np.nan))

    def advance(self, memory: Average, speed: Floats, signal: Floats) -> Average:
        """Average the last round in; the signal is of no use."""
        del signal
        return Average(averaged(memory.forecast, speed, self.weight))


class Window(NamedTuple):
    """What a moving median remembers."""

    forecast: Floats
    """(E, n) the median."""
    samples: Floats
    """(E, n, W) the last samples, the latest at the end; NaN where there were none yet."""


@dataclass(frozen=True)
class Median(Predictor):
    """Median of a worker's last ``window`` samples.

    >>> median, nothing = Median(3), np.zeros((1, 1, 2))
    >>> memory = median.start(1, 1)
    >>> for speed in (5.0, 1.0, np.nan, 2.0, 9.0):
    ...     memory = median.advance(memory, np.array([[speed]]), nothing)
    >>> memory.forecast
    array([[2.]])
    """

    window: int = 5

    def __post_init__(self) -> None:
        whole_number("window", self.window)

    def start(self, rows: int, n: int, seed: int = 0) -> Window:
        """Nothing is known."""
        del seed
        return Window(np.full((rows, n), np.nan), np.full((rows, n, self.window), np.nan))

    def advance(self, memory: Window, speed: Floats, signal: Floats) -> Window:
        """Take the last round's samples in; the signal is of no use."""
        del signal
        samples = np.where(np.isnan(speed)[..., None], memory.samples, pushed(memory.samples, speed))
        known = self.window - np.isnan(samples).sum(axis=-1)
        ranked = np.sort(samples, axis=-1)  # NaN comes last
        middle = np.maximum(np.stack([(known - 1) // 2, known // 2], axis=-1), 0)
        return Window(np.take_along_axis(ranked, middle, axis=-1).mean(axis=-1), samples)


class Regression(NamedTuple):
    """What a linear autoregression remembers, with k coefficients: 1, the lags, the signals (latest last)."""

    forecast: Floats
    """(E, n) the prediction."""
    ema: Floats
    """(E, n) a moving average of the speeds."""
    samples: Ints
    """(E, n) rounds with a result."""
    unit: Floats
    """(E, n) what speeds are divided by: the moving average at the end of the warm-up."""
    lags: Floats
    """(E, n, d) the last speeds; where there was no sample, what was predicted."""
    loads: Floats
    """(E, n, q + 1, 2) signals of the coming round and of the q rounds before it."""
    weights: Floats
    """(E, n, k) coefficients."""
    spread: Floats
    """(E, n, k, k) inverse of the regularised Gram matrix."""


@dataclass(frozen=True)
class Linear(Predictor):
    """Autoregression of each worker's last speeds by recursive least squares; with signals, an ARX model.

    The prediction is w . (1, the last ``lags`` speeds, the signals of this and the last ``past`` rounds). After each
    sample w minimises sum (v - w . x)^2 + ridge |w - w0|^2 over all samples since the warm-up, w0 being the plain mean
    of the lags. Without signals their coefficients stay 0. A worker without a sample: what was predicted takes the
    place of the lag. Speeds are divided by a unit of each worker's own, so that the scale of time plays no role. During
    the warm-up it predicts the moving average, and ever after stays within [0.2, 5] times it. "ARIMA" is among the
    paper's predictors; its order is not known, so that all of this but the autoregression is ours.

    Parameters
    ----------
    lags, past
        How many rounds of speeds and of signals, beside the coming round's, the model looks back.
    ridge
        How strongly the coefficients are held to those of a mean, in squared units of a worker's speed.
    warm_up
        Samples of a worker before it is modelled.
    weight
        Weight of the moving average.
    """

    lags: int = 8
    past: int = 1
    ridge: float = 0.1
    warm_up: int = 10
    weight: float = 0.2

    def __post_init__(self) -> None:
        whole_number("lags", self.lags)
        whole_number("past", self.past, least=0)
        whole_number("warm_up", self.warm_up)
        real("ridge", self.ridge)
        real("weight", self.weight, up_to=1.0)

    def start(self, rows: int, n: int, seed: int = 0) -> Regression:
        """The coefficients of a mean."""
        del seed
        size = 1 + self.lags + SIGNALS * (self.past + 1)
        weights = np.zeros((rows, n, size))
        weights[..., 1 : 1 + self.lags] = 1.0 / self.lags
        unknown = np.full((rows, n), np.nan)
        return Regression(
            forecast=unknown,
            ema=unknown,
            samples=np.zeros((rows, n), np.int64),
            unit=unknown,
            lags=np.full((rows, n, self.lags), np.nan),
            loads=np.zeros((rows, n, self.past + 1, SIGNALS)),
            weights=weights,
            spread=np.tile(np.eye(size) / self.ridge, (rows, n, 1, 1)),
        )

    def advance(self, memory: Regression, speed: Floats, signal: Floats) -> Regression:
        """One step of recursive least squares for each worker with a sample."""
        seen = ~np.isnan(speed)
        played = np.any(seen, axis=1, keepdims=True)
        samples = memory.samples + seen
        ema = averaged(memory.ema, speed, self.weight)
        unit = np.where(samples <= self.warm_up, ema, memory.unit)
        modelled = samples > self.warm_up
        weights, spread = _least_squares(
            _regressors(memory.lags, memory.loads, unit), speed / unit, seen & modelled, memory.weights, memory.spread
        )
        value = np.where(seen, speed, memory.forecast)
        lags = np.where(np.isnan(memory.lags), value[..., None], pushed(memory.lags, value))
        lags = np.where(played[..., None], lags, memory.lags)
        loads = np.concatenate([memory.loads[:, :, 1:], signal[:, :, None]], axis=2)
        model = unit * (_regressors(lags, loads, unit) * weights).sum(axis=-1)
        forecast = np.where(modelled, clipped(model, ema), ema)
        return Regression(forecast, ema, samples, unit, lags, loads, weights, spread)


def averaged(average: Floats, sample: Floats, weight: float | Floats) -> Floats:
    """The moving average after a sample; the first sample itself, and unchanged where there is none."""
    mixed = np.where(np.isnan(average), sample, (1.0 - weight) * average + weight * sample)
    return np.where(np.isnan(sample), average, mixed)


def clipped(speed: Floats, ema: Floats) -> Floats:
    """A model's prediction, kept near the moving average."""
    return np.clip(speed, LOWEST * ema, HIGHEST * ema)


def pushed(series: Floats, latest: Floats) -> Floats:
    """Drop the oldest of the last axis, and append the latest."""
    return np.concatenate([series[..., 1:], latest[..., None]], axis=-1)


def _regressors(lags: Floats, loads: Floats, unit: Floats) -> Floats:
    one = np.ones((*unit.shape, 1))
    return np.concatenate([one, lags / unit[..., None], loads.reshape(*unit.shape, -1)], axis=-1)


@gufunc(
    "void(float64[:], float64[:], boolean[:], float64[:], float64[:, :], float64[:], float64[:, :])",
    "(k),(),(),(k),(k,k)->(k),(k,k)",
)
def _least_squares(
    x: Floats, y: Floats, learns: Any, weights: Floats, spread: Floats, new_weights: Floats, new_spread: Floats
) -> None:
    new_weights[:] = weights
    new_spread[:] = spread
    if learns[0]:
        size = len(x)
        gain = np.zeros(size)
        error, scale = y[0], 1.0
        for i in range(size):
            for j in range(size):
                gain[i] += spread[i, j] * x[j]
            error -= weights[i] * x[i]
            scale += gain[i] * x[i]
        for i in range(size):
            new_weights[i] += gain[i] * error / scale
            for j in range(size):
                new_spread[i, j] -= gain[i] * gain[j] / scale
