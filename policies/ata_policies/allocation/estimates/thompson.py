"""Thompson sampling on the mean task times: draw them from what is known of them, then allocate by the draws."""

import math
from dataclasses import dataclass

import numpy as np

from ata_gym.simulation.keys import uniforms
from ata_gym.simulation.task_times import gamma_quantile, normal_quantile
from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import kernel
from ata_policies.allocation.estimates.estimate import GammaTimes, KnownShape, LearnedShapes
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.moments import Moments, Totals


def draw_gammas(shapes: Floats, keys: Keys) -> Floats:
    """Numbers from Gamma(shape, 1), shape (..., n) as ``shapes``; 0 where the shape is 0.

    Exact, with two uniform numbers each: Marsaglia and Tsang's transformation of a normal number ("A simple method for
    generating gamma variables", ACM TOMS 26, 2000), accepted with their probability p(x) if the other number u is
    below it. If not, u is again uniform on (p, 1), and the quantile at (u - p) / (1 - p) is the result; shapes below 1,
    which their method does not cover, are drawn by the quantile. ``shapes`` are 0, or normal floats above it; ``keys``
    has one key per row.

    >>> from ata_gym.simulation.keys import stream_keys
    >>> drawn = draw_gammas(np.full((3, 1000), 4.0), stream_keys(0, rows=3))
    >>> bool(abs(drawn.mean() - 4.0) < 0.1)
    True
    """
    with np.errstate(all="ignore"):  # the quantile raises flags on its way
        gammas: Floats = gamma_kernel(shapes, uniforms(keys, 2 * shapes.shape[-1]))
    return gammas


def draw_means(counts: Floats, totals: Floats, shape: float | Floats, keys: Keys, prior: float = 0.0) -> Floats:
    """Mean task times drawn from their posterior, shape (E, n); 0 for a worker never tried.

    For gamma times of known shape c and unknown rate c lambda, with K tasks seen of total time S:

        mean = 1 / lambda,   lambda ~ Gamma(prior + c K, rate c S).

    For other times c is how much one time tells of the mean: 1 / (coefficient of variation)^2.

    ``counts`` and ``totals`` are (E, n) tasks seen and their total time; with cancelled tasks: results, and the time
    spent on all (exact for exponential times). ``shape`` c broadcasts to (E, n). ``prior`` is the prior's shape, above
    0 if a worker may have spent time without a result; its rate is 0, so that the draws scale with the times.

    >>> from ata_gym.simulation.keys import stream_keys
    >>> drawn = draw_means(np.array([[1e6, 4.0, 0.0]]), np.array([[2e6, 8.0, 0.0]]), 1.0, stream_keys(0))
    >>> drawn[0, [0, 2]].round(1)
    array([2., 0.])
    """
    rates = shape * totals
    gammas = draw_gammas(prior + shape * counts, keys)
    means: Floats = rates / np.maximum(gammas, 1e-300 * np.maximum(rates, 1.0))  # finite, whatever was drawn
    return means


@kernel("(n),(m)->(n)")
def gamma_kernel(shape: Floats, uniform: Floats, out: Floats) -> None:
    """As :func:`draw_gammas`, from two uniform numbers for each."""
    n = len(shape)
    normal, cube, sure = np.empty((3, n))
    for i in range(n):  # a loop of its own, so that the next one vectorises
        normal[i] = normal_quantile(uniform[2 * i], np.intc(0))
    for i in range(n):
        x, d = normal[i], max(shape[i], 1.0) - 1.0 / 3.0
        v = 1.0 + x / math.sqrt(9.0 * d)
        cube[i] = v * v * v
        sure[i] = 1.0 - 0.0331 * (x * x) * (x * x)  # below p; above 0 only where v is
        out[i] = d * cube[i]
    for i in range(n):
        a, x, v, u = shape[i], normal[i], cube[i], uniform[2 * i + 1]
        if a < 1.0:
            out[i] = gamma_quantile(a, uniform[2 * i], np.intc(0)) if a > 0.0 else 0.0
        elif u >= sure[i]:
            d = a - 1.0 / 3.0
            p = math.exp(0.5 * x * x + d * (1.0 - v + math.log(v))) if v > 0.0 else 0.0
            if u >= p:
                out[i] = gamma_quantile(a, (u - p) / (1.0 - p), np.intc(0))


class _Thompson(GammaTimes):
    """Means drawn at random, for shapes that are known or learned."""

    def scores(self, belief: Totals | Moments, rounds: Ints | Floats, keys: Keys) -> Scores:
        """The drawn means; the choice among workers never tried uses the same keys, as nothing is drawn for those."""
        shapes = self.shapes(belief)
        return Scores(draw_means(belief.counts, belief.totals, shapes, keys), shapes)


@dataclass(frozen=True)
class Thompson(_Thompson, KnownShape):
    """Thompson sampling for gamma times of a known shape, by default exponential: draw the means, allocate by them.

    Each round draws every mean as 1 / lambda, lambda ~ Gamma(c K_i, rate c S_i), with K_i tasks seen of total time S_i
    and shape c (``draw_means``). Hundreds of rows at once cost four to five times what ATA's do.

    - ``shape``: c, above 0. Times that vary less than exponential ones, (standard deviation / mean)^2 = 1 / c < 1, are
      learned faster with their own c.
    """

    source = "Thompson, 1933; Wang and Chen, Thompson Sampling for Combinatorial Semi-Bandits, ICML 2018"
    constants = "shape 1, a prior of no weight"


@dataclass(frozen=True)
class ThompsonGamma(_Thompson, LearnedShapes):
    """Thompson sampling for gamma times whose shapes are learned from their second moments.

    As Thompson, with a shape for each worker from ``learn_shapes``. Ours.

    - ``weight``: tasks that the other workers' shapes count for; large where all distributions are of one kind.
    """

    source = "ours, after Thompson, 1933"
    constants = "weight 5, a prior of no weight"
