"""Lower confidence bounds from the bandit literature, as scores: CUCB, UCB-V and KL.

The literature rewards, so its bounds are upper ones; task times are costs, so ours are the same bounds mirrored, and
clipped at 0. Where it takes times in [0, b], ours are unbounded: b is a scale, given or the worker's own mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import gufunc, inlined
from ata_gym.utils.validation import real
from ata_policies.allocation.estimates.estimate import Estimate
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.moments import Belief, Moments, learn_shapes


def cucb_score(belief: Belief, level: Floats, absolute: float, relative: float) -> Floats:
    """CUCB's lower bounds of the mean task times, shape (E, n).

    With K_i tasks seen of mean m_i, a scale b_i = absolute + relative m_i and level (E,) ln k in round k:

        s_i = max(m_i - b_i sqrt(3 level / (2 K_i)), 0),  and 0 where K_i = 0.

    >>> cucb_score(Belief(np.array([[6.0, 0.0]]), np.array([[60.0, 0.0]])), np.array([1.0]), 2.0, 0.0)
    array([[9., 0.]])
    """
    bounds: Floats = _cucb(belief.counts, belief.totals, level, absolute, relative)
    return bounds


def ucbv_score(belief: Moments, level: Floats, absolute: float, relative: float) -> Floats:
    """UCB-V's lower bounds of the mean task times, shape (E, n).

    As ``cucb_score``, with v_i the variance of the times seen:

        s_i = max(m_i - sqrt(2 v_i level / K_i) - 3 b_i level / K_i, 0),  and 0 where K_i = 0.

    >>> belief = Moments(np.array([[2.0, 0.0]]), np.array([[20.0, 0.0]]), np.array([[202.0, 0.0]]))
    >>> ucbv_score(belief, np.array([1.0]), 2.0, 0.0)
    array([[6., 0.]])
    """
    bounds: Floats = _ucbv(belief.counts, belief.totals, belief.squares, level, absolute, relative)
    return bounds


def kl_score(belief: Belief | Moments, level: Floats, shape: float | Floats) -> Floats:
    """Kullback-Leibler lower bounds of the means of gamma times, shape (E, n).

    With K_i tasks seen of mean m_i and kl(m, q) = shape (m / q - 1 - ln(m / q)), the divergence of gamma distributions
    of one shape (1: exponential) with means m and q:

        s_i = min{q : K_i kl(m_i, q) <= level},  and 0 where K_i = 0.

    >>> seen = Belief(np.array([[2.0, 0.0]]), np.array([[20.0, 0.0]]))
    >>> kl_score(seen, np.array([2.0 * (1.0 - math.log(2.0))]), 1.0).round(12)
    array([[5., 0.]])
    """
    bounds: Floats = _kl(belief.counts, belief.totals, level, np.broadcast_to(shape, belief.counts.shape))
    return bounds


@inlined
def _inverse(count: float) -> float:
    """1 / count, and 1 for a worker never tried, whose total of 0 makes its bound 0."""
    return 1.0 / (count + (0.0 if count > 0.0 else 1.0))


@gufunc("void(float64[:], float64[:], float64[:], float64[:], float64[:], float64[:])", "(n),(n),(),(),()->(n)")
def _cucb(count: Floats, total: Floats, level: Floats, absolute: Floats, relative: Floats, out: Floats) -> None:
    for i in range(len(count)):
        share = _inverse(count[i])
        mean = total[i] * share
        out[i] = max(mean - (absolute[0] + relative[0] * mean) * math.sqrt(1.5 * level[0] * share), 0.0)


@gufunc(
    "void(float64[:], float64[:], float64[:], float64[:], float64[:], float64[:], float64[:])",
    "(n),(n),(n),(),(),()->(n)",
)
def _ucbv(
    count: Floats, total: Floats, square: Floats, level: Floats, absolute: Floats, relative: Floats, out: Floats
) -> None:
    for i in range(len(count)):
        share = _inverse(count[i])
        mean, ratio = total[i] * share, level[0] * share
        variance = max(square[i] * share - mean * mean, 0.0)
        radius = math.sqrt(2.0 * variance * ratio) + 3.0 * (absolute[0] + relative[0] * mean) * ratio
        out[i] = mean - radius if radius < mean else 0.0  # also where squares of extreme times have overflowed


@gufunc("void(float64[:], float64[:], float64[:], float64[:], float64[:])", "(n),(n),(),(n)->(n)")
def _kl(count: Floats, total: Floats, level: Floats, shape: Floats, out: Floats) -> None:
    """The bound is m / (1 + x) where x - ln(1 + x) = level / (shape K): two steps of Halley's method."""
    n = len(count)
    target, x, log = np.empty((3, n))
    for i in range(n):
        target[i] = level[0] * _inverse(count[i]) / shape[i]
        x[i] = math.sqrt(2.0 * target[i]) + target[i] + 1e-100  # a little too large, and above 0
    for _ in range(2):
        for i in range(n):  # a loop of its own, so that the others vectorise
            log[i] = math.log1p(x[i])
        for i in range(n):
            f = x[i] - log[i] - target[i]
            x[i] -= 2.0 * f * x[i] * (1.0 + x[i]) / (2.0 * x[i] * x[i] - f)
    for i in range(n):
        out[i] = total[i] * _inverse(count[i]) / (1.0 + x[i])


@dataclass(frozen=True)
class _Scaled(Estimate):
    """Lower bounds for times in [0, b].

    ``scale`` is b, in units of time: prior knowledge. By default it is each worker's own mean m, which is ours.
    """

    scale: float | None = None

    knows = "nothing; or the scale"

    def __post_init__(self) -> None:
        if self.scale is not None:
            real("scale", self.scale)

    def _factors(self) -> tuple[float, float]:
        """What b is: a number, and a multiple of the mean."""
        return (0.0, 1.0) if self.scale is None else (float(self.scale), 0.0)


@dataclass(frozen=True)
class Cucb(_Scaled):
    """CUCB, mirrored for costs: (m - b sqrt(3 ln k / (2 K)))+ in round k, with K tasks seen of mean m.

    Chen, Wang and Yuan, "Combinatorial multi-armed bandit", ICML 2013 (JMLR 2016), where times are in [0, b].

    Parameters
    ----------
    scale
        b. The default is right for times whose deviations are about as large as their mean, as exponential ones are,
        but too timid for heavier tails.
    """

    source = "Chen, Wang and Yuan, ICML 2013; JMLR 2016"
    constants = "3/2; b the worker's own mean"
    assumes = "times in [0, b]; by default, deviations of about the mean"

    def scores(self, belief: Belief, rounds: Ints | Floats, keys: Keys, kept: Any) -> Scores:
        """See ``cucb_score``."""
        del keys, kept
        return Scores(cucb_score(belief, _level(rounds), *self._factors()))


@dataclass(frozen=True)
class UcbV(_Scaled):
    """UCB-V, mirrored for costs: (m - sqrt(2 v ln k / K) - 3 b ln k / K)+, with K tasks seen of mean m and variance v.

    Audibert, Munos and Szepesvári, "Exploration-exploitation tradeoff using variance estimates in multi-armed bandits",
    TCS 2009, with E = ln k: the empirical Bernstein bound, where times are in [0, b].

    Parameters
    ----------
    scale
        b. The default is Bernstein's scale for exponential times, too small for heavier tails.
    """

    squares = True
    source = "Audibert, Munos and Szepesvári, TCS 2009"
    constants = "E = ln k; b the worker's own mean"
    assumes = "times in [0, b]; by default, tails like exponential ones"

    def scores(self, belief: Moments, rounds: Ints | Floats, keys: Keys, kept: Any) -> Scores:
        """See ``ucbv_score``."""
        del keys, kept
        return Scores(ucbv_score(belief, _level(rounds), *self._factors()))


@dataclass(frozen=True)
class KlLcb(Estimate):
    """KL lower bounds for gamma times of a known shape: min{q : K kl(m, q) <= ln k}; by default, exponential.

    kl(m, q) = shape (m / q - 1 - ln(m / q)). Garivier and Cappé, "The KL-UCB algorithm for bounded stochastic bandits
    and beyond", COLT 2011, mirrored for costs and without their term 3 ln ln k, as they advise.

    Parameters
    ----------
    shape
        Above 0; 1 / (standard deviation / mean)^2 of the times.
    """

    shape: float = 1.0

    gives_shape = True
    source = "Garivier and Cappé, COLT 2011; Cappé et al., Annals of Statistics 2013"
    constants = "ln k; shape 1"
    knows = "nothing; or the shape"
    assumes = "gamma times of the shape given"

    def __post_init__(self) -> None:
        real("shape", self.shape)

    def scores(self, belief: Belief, rounds: Ints | Floats, keys: Keys, kept: Any) -> Scores:
        """See ``kl_score``."""
        del keys, kept
        return Scores(kl_score(belief, _level(rounds), float(self.shape)), float(self.shape))


@dataclass(frozen=True)
class KlGamma(Estimate):
    """KL lower bounds for gamma times whose shapes are learned from their second moments.

    As KlLcb, with a shape for each worker from ``learn_shapes``. Ours.

    Parameters
    ----------
    weight
        Tasks that the other workers' shapes count for, above 0.
    """

    weight: float = 5.0

    squares = gives_shape = True
    source = "ours, after Garivier and Cappé, COLT 2011"
    constants = "ln k; weight 5"
    assumes = "gamma times, of similar shapes"

    def __post_init__(self) -> None:
        real("weight", self.weight)

    def scores(self, belief: Moments, rounds: Ints | Floats, keys: Keys, kept: Any) -> Scores:
        """See ``kl_score``."""
        del keys, kept
        shapes = learn_shapes(belief, float(self.weight))
        return Scores(kl_score(belief, _level(rounds), shapes), shapes)


def _level(rounds: Ints | Floats) -> Floats:
    """The confidence level ln k, shape (E,)."""
    return np.log(np.asarray(rounds, np.float64))
