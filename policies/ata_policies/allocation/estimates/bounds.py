"""Lower confidence bounds from the bandit literature, as scores: CUCB, UCB-V and KL.

The literature has rewards, so its bounds are upper bounds. Task times are costs, so ours are the
same bounds mirrored, and clipped at 0. The literature takes values in [0, b]; our times are
unbounded, and b is a scale that is given or is the worker's own mean.
"""

import math
from dataclasses import dataclass

import numpy as np

from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import inlined, kernel
from ata_gym.utils.validation import real
from ata_policies.allocation.estimates.estimate import (
    Estimate,
    GammaTimes,
    KnownShape,
    LearnedShapes,
)
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.belief import CountedT
from ata_policies.beliefs.moments import Moments, Totals


@inlined
def _inverse(count: float) -> float:
    """Return 1 / count, and 1 for a worker never tried, whose total of 0 makes its bound 0."""
    return 1.0 / (count + (0.0 if count > 0.0 else 1.0))


@kernel("(n),(n),(),(),()->(n)")
def cucb_score(
    count: Floats,
    total: Floats,
    level: Floats,
    absolute: Floats,
    relative: Floats,
    out: Floats,
) -> None:
    """Compute CUCB's lower bounds max(m - b sqrt(3 level / (2 K)), 0), and 0 where K = 0.

    Here b = absolute + relative m, with K tasks of mean m.

    Args:
        count: (n,) tasks K seen of each worker.
        total: (n,) their times added up, K m.
        level: The level of the bounds, ln k in round k.
        absolute: The part of b in units of time.
        relative: The part of b in units of the mean m.
        out: (n,) the bounds.
    """
    for i in range(len(count)):
        share = _inverse(count[i])
        mean = total[i] * share
        out[i] = max(
            mean - (absolute[0] + relative[0] * mean) * math.sqrt(1.5 * level[0] * share),
            0.0,
        )


@kernel("(n),(n),(n),(),(),()->(n)")
def ucbv_score(
    count: Floats,
    total: Floats,
    deviation: Floats,
    level: Floats,
    absolute: Floats,
    relative: Floats,
    out: Floats,
) -> None:
    """Compute UCB-V's lower bounds max(m - sqrt(2 v level / K) - 3 b level / K, 0).

    Here b = absolute + relative m, with K tasks of mean m and variance v; the bound is 0 where
    K = 0.

    Args:
        count: (n,) tasks K seen of each worker.
        total: (n,) their times added up, K m.
        deviation: (n,) the squared deviations of their times from m added up, K v.
        level: The level of the bounds, ln k in round k.
        absolute: The part of b in units of time.
        relative: The part of b in units of the mean m.
        out: (n,) the bounds.
    """
    for i in range(len(count)):
        share = _inverse(count[i])
        mean = total[i] * share
        ratio = level[0] * share
        radius = (
            math.sqrt(2.0 * deviation[i] * share * ratio)
            + 3.0 * (absolute[0] + relative[0] * mean) * ratio
        )
        # also where squares of extreme times have overflowed
        if radius < mean:
            out[i] = mean - radius
        else:
            out[i] = 0.0


@kernel("(n),(n),(),(n)->(n)")
def kl_score(count: Floats, total: Floats, level: Floats, shape: Floats, out: Floats) -> None:
    """Compute lower Kullback-Leibler bounds of the mean of gamma times.

    The bound is min{q : K shape (m / q - 1 - ln(m / q)) <= level} with K tasks of mean m, and 0
    where K = 0. It equals m / (1 + x) where x - ln(1 + x) = level / (shape K), which two steps of
    Halley's method solve.

    Args:
        count: (n,) tasks K seen of each worker.
        total: (n,) their times added up, K m.
        level: The level of the bounds, ln k in round k.
        shape: (n,) the shape of each worker's times, above 0.
        out: (n,) the bounds.
    """
    n = len(count)
    target, x, log = np.empty((3, n))
    for i in range(n):
        target[i] = level[0] * _inverse(count[i]) / shape[i]
        # the first guess is a little above the root, and above 0 also where the target is 0
        x[i] = math.sqrt(2.0 * target[i]) + target[i] + 1e-100
    for _ in range(2):
        # the logarithm has a loop of its own, so that the other loops vectorise
        for i in range(n):
            log[i] = math.log1p(x[i])
        # a step of Halley's method on f = x - ln(1 + x) - target
        for i in range(n):
            f = x[i] - log[i] - target[i]
            x[i] -= 2.0 * f * x[i] * (1.0 + x[i]) / (2.0 * x[i] * x[i] - f)
    for i in range(n):
        out[i] = total[i] * _inverse(count[i]) / (1.0 + x[i])


@dataclass(frozen=True)
class _Scaled(Estimate[CountedT]):
    """Lower bounds for times in [0, b].

    Args:
        scale: b, in units of time: prior knowledge. By default it is each worker's own mean m. This
            default is ours.
        width: What this default is multiplied with, above 0.
    """

    scale: float | None = None
    width: float = 1.0

    knows = "nothing; or the scale"
    time_unit = "the unit of the scale, where it is given"

    def __post_init__(self) -> None:
        if self.scale is not None:
            real("scale", self.scale)
        real("width", self.width)

    def _factors(self) -> tuple[float, float]:
        """Return the two parts of b: a number in units of time, and a multiple of the mean."""
        if self.scale is None:
            return (0.0, self.width)
        return (float(self.scale), 0.0)


@dataclass(frozen=True)
class Cucb(_Scaled[Totals]):
    """CUCB, mirrored for costs: the score is (m - b sqrt(3 ln k / (2 K)))+ in round k.

    Here K tasks of mean m have been seen of the worker. Chen, Wang and Yuan, "Combinatorial
    multi-armed bandit", ICML 2013 (JMLR 2016), where times are in [0, b].

    Args:
        scale: b. The default is right for times whose deviations are about as large as their mean,
            as exponential ones are, but too timid for heavier tails.
        width: What the default is multiplied with, above 0.
    """

    source = "Chen, Wang and Yuan, ICML 2013; JMLR 2016"
    constants = "3/2; b the worker's own mean"
    assumes = "times in [0, b]; by default, deviations of about the mean"

    def scores(self, belief: Totals, rounds: Ints | Floats, keys: Keys) -> Scores:
        return Scores(cucb_score(belief.counts, belief.totals, np.log(rounds), *self._factors()))


@dataclass(frozen=True)
class UcbV(_Scaled[Moments]):
    """UCB-V, mirrored for costs: the score is (m - sqrt(2 v ln k / K) - 3 b ln k / K)+.

    Here K tasks of mean m and variance v have been seen of the worker by round k. Audibert, Munos
    and Szepesvári, "Exploration-exploitation tradeoff using variance estimates in multi-armed
    bandits", TCS 2009, with E = ln k: the empirical Bernstein bound, where times are in [0, b].

    Args:
        scale: b. The default is Bernstein's scale for exponential times, too small for heavier
            tails.
        width: What the default is multiplied with, above 0.
    """

    deviations = True
    source = "Audibert, Munos and Szepesvári, TCS 2009"
    constants = "E = ln k; b the worker's own mean"
    assumes = "times in [0, b]; by default, tails like exponential ones"

    def scores(self, belief: Moments, rounds: Ints | Floats, keys: Keys) -> Scores:
        return Scores(
            ucbv_score(
                belief.counts,
                belief.totals,
                belief.deviations,
                np.log(rounds),
                *self._factors(),
            ),
        )


class _Kl(GammaTimes[CountedT]):
    """The lower bounds at the level ln k, for shapes that are known or learned."""

    def scores(self, belief: CountedT, rounds: Ints | Floats, keys: Keys) -> Scores:
        shapes = self.shapes(belief)
        by_worker = np.broadcast_to(shapes, belief.counts.shape)
        return Scores(kl_score(belief.counts, belief.totals, np.log(rounds), by_worker), shapes)


@dataclass(frozen=True)
class KlLcb(_Kl[Totals | Moments], KnownShape):
    """KL lower bounds for gamma times of a known shape: min{q : K kl(m, q) <= ln k}.

    kl(m, q) = shape (m / q - 1 - ln(m / q)), with K tasks seen of mean m by round k. By default the
    shape is 1: exponential times. Garivier and Cappé, "The KL-UCB algorithm for bounded stochastic
    bandits and beyond", COLT 2011, mirrored for costs and without their term 3 ln ln k, as they
    advise.

    Args:
        shape: Above 0; 1 / (standard deviation / mean)^2 of the times.
    """

    source = "Garivier and Cappé, COLT 2011; Cappé et al., Annals of Statistics 2013"
    constants = "ln k; shape 1"


@dataclass(frozen=True)
class KlGamma(_Kl[Moments], LearnedShapes):
    """KL lower bounds for gamma times whose shapes are learned from their second moments.

    The bounds of ``KlLcb``, with a shape for each worker from ``learn_shapes``. Ours.

    Args:
        weight: Tasks that the other workers' shapes count for, above 0.
    """

    source = "ours, after Garivier and Cappé, COLT 2011"
    constants = "ln k; weight 5"
