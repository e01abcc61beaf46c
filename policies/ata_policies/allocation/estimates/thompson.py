"""Thompson sampling: draw mean task times from their posterior, and allocate by the draws."""

import math
from dataclasses import dataclass

import numpy as np

from ata_gym.simulation.keys import uniforms
from ata_gym.simulation.task_times import gamma_quantile, normal_quantile
from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import kernel
from ata_policies.allocation.estimates.estimate import GammaTimes, KnownShape, LearnedShapes
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.belief import CountedT
from ata_policies.beliefs.moments import Moments, Totals


def draw_gammas(shapes: Floats, keys: Keys) -> Floats:
    """Return numbers from Gamma(shape, 1), of the same shape (..., n) as ``shapes``.

    The draws are exact, with two uniform numbers each. Marsaglia and Tsang's transformation of a
    normal number x ("A simple method for generating gamma variables", ACM TOMS 26, 2000) is
    accepted if the other number u is below their probability p(x). If it is not, u is uniform on
    (p, 1), and the quantile at (u - p) / (1 - p) is the result. Their method does not cover shapes
    below 1: these are drawn by the quantile.

    Args:
        shapes: (..., n) the shapes: 0, or normal floats above it. A shape of 0 gives 0.
        keys: One key per row.

    Example:
        >>> from ata_gym.simulation.keys import stream_keys
        >>> drawn = draw_gammas(np.full((3, 1000), 4.0), stream_keys(0, rows=3))
        >>> bool(abs(drawn.mean() - 4.0) < 0.1)
        True
    """
    # the quantile raises floating-point flags where its result is right
    with np.errstate(all="ignore"):
        gammas: Floats = gamma_kernel(shapes, uniforms(keys, 2 * shapes.shape[-1]))
    return gammas


def draw_means(
    counts: Floats,
    totals: Floats,
    shape: float | Floats,
    keys: Keys,
    prior: float = 0.0,
) -> Floats:
    """Return mean task times drawn from their posterior, (E, n); 0 for a worker never tried.

    For gamma times of known shape c and unknown rate c lambda, with K tasks seen of total time S:

        mean = 1 / lambda,   lambda ~ Gamma(prior + c K, rate c S).

    For other times c is how much one time tells of the mean: 1 / (coefficient of variation)^2.

    Args:
        counts: (E, n) tasks K seen; with cancelled tasks, results.
        totals: (E, n) their total time S; with cancelled tasks, the time spent on all tasks (exact
            for exponential times).
        shape: The shape c, broadcasting to (E, n).
        keys: (E,) the key of each row's randomness.
        prior: The shape of the prior, above 0 if a worker may have spent time without a result. The
            rate of the prior is 0, so that the draws scale with the times.

    Example:
        >>> from ata_gym.simulation.keys import stream_keys
        >>> counts = np.array([[1e6, 4.0, 0.0]])
        >>> totals = np.array([[2e6, 8.0, 0.0]])
        >>> drawn = draw_means(counts, totals, 1.0, stream_keys(0))
        >>> drawn[0, [0, 2]].round(1)
        array([2., 0.])
    """
    rates = shape * totals
    gammas = draw_gammas(prior + shape * counts, keys)
    # a draw near 0 is raised, so that the mean is finite
    least_draw = 1e-300 * np.maximum(rates, 1.0)
    means: Floats = rates / np.maximum(gammas, least_draw)
    return means


@kernel("(n),(m)->(n)")
def gamma_kernel(shape: Floats, uniform: Floats, out: Floats) -> None:
    """Compute the numbers of :func:`draw_gammas` from two uniform numbers for each.

    Args:
        shape: (n,) the shapes.
        uniform: (2 n,) uniform numbers; 2 i and 2 i + 1 are the indices of the two for worker i.
        out: (n,) the draws.
    """
    n = len(shape)
    normal, cube, squeeze = np.empty((3, n))
    # the quantile has a loop of its own, so that the next loop vectorises
    for i in range(n):
        normal[i] = normal_quantile(uniform[2 * i], np.intc(0))
    # the transformed numbers, as if all were accepted, and a quick bound for that
    for i in range(n):
        x = normal[i]
        d = max(shape[i], 1.0) - 1.0 / 3.0
        v = 1.0 + x / math.sqrt(9.0 * d)
        cube[i] = v * v * v
        # Marsaglia and Tsang's squeeze: it is below p, and above 0 only where v is above 0
        squeeze[i] = 1.0 - 0.0331 * (x * x) * (x * x)
        out[i] = d * cube[i]
    # the few numbers that are not accepted at once, and shapes below 1
    for i in range(n):
        a = shape[i]
        x = normal[i]
        v = cube[i]
        u = uniform[2 * i + 1]
        if a < 1.0:
            if a > 0.0:
                out[i] = gamma_quantile(a, uniform[2 * i], np.intc(0))
            else:
                out[i] = 0.0
        elif u >= squeeze[i]:
            d = a - 1.0 / 3.0
            if v > 0.0:
                p = math.exp(0.5 * x * x + d * (1.0 - v + math.log(v)))
            else:
                p = 0.0
            if u >= p:
                out[i] = gamma_quantile(a, (u - p) / (1.0 - p), np.intc(0))


class _Thompson(GammaTimes[CountedT]):
    """Means drawn at random, for shapes that are known or learned."""

    def scores(self, belief: CountedT, rounds: Ints | Floats, keys: Keys) -> Scores:
        """Return the drawn means.

        The choice among workers never tried uses the same keys, as nothing is drawn for them.
        """
        shapes = self.shapes(belief)
        return Scores(draw_means(belief.counts, belief.totals, shapes, keys), shapes)


@dataclass(frozen=True)
class Thompson(_Thompson[Totals | Moments], KnownShape):
    """Thompson sampling for gamma times of a known shape, by default exponential times.

    Each round draws every mean as 1 / lambda, lambda ~ Gamma(c K_i, rate c S_i), and allocates by
    the draws. Here K_i tasks of total time S_i have been seen, and c is the shape (``draw_means``).
    Hundreds of rows at once cost four to five times as much as with ATA.

    Args:
        shape: c, above 0. Times that vary less than exponential ones, (standard deviation / mean)^2
            = 1 / c < 1, are learned faster with their own c.
    """

    source = (
        "Thompson, 1933; Wang and Chen, Thompson Sampling for Combinatorial Semi-Bandits, ICML 2018"
    )
    constants = "shape 1, a prior of no weight"


@dataclass(frozen=True)
class ThompsonGamma(_Thompson[Moments], LearnedShapes):
    """Thompson sampling for gamma times whose shapes are learned from their second moments.

    The draws of ``Thompson``, with a shape for each worker from ``learn_shapes``. Ours.

    Args:
        weight: Tasks that the other workers' shapes count for; large where all distributions are of
            one kind.
    """

    source = "ours, after Thompson, 1933"
    constants = "weight 5, a prior of no weight"
