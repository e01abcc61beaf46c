"""Lower confidence bounds from the bandit literature, as scores: CUCB, UCB-V and KL.

The literature rewards, so its bounds are upper ones; task times are costs, so ours are the same bounds mirrored, and
clipped at 0. Where it takes times in [0, b], ours are unbounded: b is a scale, given or the worker's own mean.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from ata_gym.allocation import allocate
from ata_gym.compiled import gufunc, inlined
from ata_gym.simulation import Floats, Ints
from ata_policies.beliefs import Belief, Moments
from ata_policies.hyperparameters import real
from ata_policies.policy import AllocationPolicy, Setting, State
from ata_policies.shapes import learn_shapes


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
    bounds: Floats = _ucbv(*belief, level, absolute, relative)
    return bounds


def kl_score(belief: Belief | Moments, level: Floats, shape: float | Floats) -> Floats:
    """Kullback-Leibler lower bounds of the means of gamma times, shape (E, n).

    With K_i tasks seen of mean m_i and kl(m, q) = shape (m / q - 1 - ln(m / q)), the divergence of gamma laws of one
    shape (1: exponential) with means m and q:

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
        out[i] = max(mean - radius, 0.0)


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


class _LowerBound(AllocationPolicy):
    """Allocates by lower confidence bounds; workers never tried come first."""

    def allocate(self, state: State) -> Ints:
        """Minimise the proxy loss under the bounds."""
        level = np.log(state.round.astype(np.float64))
        scores = self.score(state.belief, level)
        return allocate(scores, self.setting.budget, state.round_keys(), state.belief.untried())

    @abstractmethod
    def score(self, belief: Any, level: Floats) -> Floats:
        """The bounds, shape (E, n), at confidence level (E,) ln k in round k."""


class _Scaled(_LowerBound):
    """Lower bounds for times in [0, b]."""

    knows = "nothing; or the scale"

    def __init__(self, setting: Setting, *, scale: float | None = None, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.absolute = 0.0 if scale is None else real("scale", scale)
        self.relative = 1.0 if scale is None else 0.0


class Cucb(_Scaled):
    """CUCB, mirrored for costs: (m - b sqrt(3 ln k / (2 K)))+ in round k, with K tasks seen of mean m.

    Chen, Wang and Yuan, "Combinatorial multi-armed bandit", ICML 2013 (JMLR 2016), where times are in [0, b].

    Parameters
    ----------
    scale
        b, in units of time: prior knowledge. By default each worker's own mean m, which is ours: right for times whose
        deviations are about as large as their mean, as exponential ones are, but too timid for heavier tails.
    """

    source = "Chen, Wang and Yuan, ICML 2013; JMLR 2016"
    constants = "3/2; b the worker's own mean"
    assumes = "times in [0, b]; by default, deviations of about the mean"

    def score(self, belief: Belief, level: Floats) -> Floats:
        """See ``cucb_score``."""
        return cucb_score(belief, level, self.absolute, self.relative)


class UcbV(_Scaled):
    """UCB-V, mirrored for costs: (m - sqrt(2 v ln k / K) - 3 b ln k / K)+, with K tasks seen of mean m and variance v.

    Audibert, Munos and Szepesvári, "Exploration-exploitation tradeoff using variance estimates in multi-armed bandits",
    TCS 2009, with E = ln k: the empirical Bernstein bound, where times are in [0, b].

    Parameters
    ----------
    scale
        b, in units of time: prior knowledge. By default each worker's own mean m, which is ours: Bernstein's scale for
        exponential times, too small for heavier tails.
    """

    source = "Audibert, Munos and Szepesvári, TCS 2009"
    constants = "E = ln k; b the worker's own mean"
    assumes = "times in [0, b]; by default, tails like exponential ones"

    def first_belief(self, rows: int) -> Moments:
        """Squares are needed too."""
        return Moments.empty(rows, self.setting.n)

    def score(self, belief: Moments, level: Floats) -> Floats:
        """See ``ucbv_score``."""
        return ucbv_score(belief, level, self.absolute, self.relative)


class KlLcb(_LowerBound):
    """KL lower bounds for gamma times of a known shape: min{q : K kl(m, q) <= ln k}; by default, exponential.

    kl(m, q) = shape (m / q - 1 - ln(m / q)). Garivier and Cappé, "The KL-UCB algorithm for bounded stochastic bandits
    and beyond", COLT 2011, mirrored for costs and without their term 3 ln ln k, as they advise.

    Parameters
    ----------
    shape
        Above 0; 1 / (standard deviation / mean)^2 of the times.
    """

    source = "Garivier and Cappé, COLT 2011; Cappé et al., Annals of Statistics 2013"
    constants = "ln k; shape 1"
    knows = "nothing; or the shape"
    assumes = "gamma times of the shape given"

    def __init__(self, setting: Setting, *, shape: float = 1.0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.shape = real("shape", shape)

    def score(self, belief: Belief, level: Floats) -> Floats:
        """See ``kl_score``."""
        return kl_score(belief, level, self.shape)


class KlGamma(_LowerBound):
    """KL lower bounds for gamma times whose shapes are learned from their second moments.

    As KlLcb, with a shape for each worker from ``learn_shapes``. Ours.

    Parameters
    ----------
    weight
        Tasks that the other workers' shapes count for, above 0.
    """

    source = "ours, after Garivier and Cappé, COLT 2011"
    constants = "ln k; weight 5"
    assumes = "gamma times, of similar shapes"

    def __init__(self, setting: Setting, *, weight: float = 5.0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.weight = real("weight", weight)

    def first_belief(self, rows: int) -> Moments:
        """Squares are needed too."""
        return Moments.empty(rows, self.setting.n)

    def score(self, belief: Moments, level: Floats) -> Floats:
        """See ``kl_score``."""
        return kl_score(belief, level, learn_shapes(belief, self.weight))
