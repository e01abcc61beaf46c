"""MOTS: Thompson sampling whose draws are not better than the bound of MOSS."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from ata_gym.simulation.keys import uniforms
from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.validation import real
from ata_policies.allocation.estimates.estimate import KnownShape
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.moments import Moments, Totals, mean_times


def draw_clipped(
    counts: Floats, totals: Floats, shape: float, rho: float, alpha: float, keys: Keys
) -> Floats:
    """Return MOTS's clipped draws of the mean task times, (E, n); 0 for a worker never tried.

    With K_i tasks of mean m_i seen, T tasks of all n workers, sigma_i = m_i / sqrt(shape) and z_i
    from N(0, 1), the draw is

        max(m_i + sigma_i z_i / sqrt(rho K_i),
            m_i - sigma_i sqrt(alpha / K_i max(ln(T / (n K_i)), 0)), 0).

    Args:
        counts: (E, n) tasks K seen, at least 0.
        totals: (E, n) their times added up, K m.
        shape: 1 / (standard deviation / mean)^2 of the task times, above 0.
        rho: What the draws' variance is divided by, above 0.
        alpha: The width of the bound, above 0.
        keys: (E,) the key of each row's randomness.

    Example:
        >>> from ata_gym.simulation.keys import stream_keys
        >>> counts = np.array([[1e9, 1e9, 0.0]])
        >>> draw_clipped(counts, 2.0 * counts, 1.0, 0.9, 4.0, stream_keys(0)).round(1)
        array([[2., 2., 0.]])
    """
    tried = np.where(counts > 0.0, counts, 1.0)
    normal = ndtri(uniforms(keys, counts.shape[-1]))
    # T / n is the mean of the counts
    level = np.log(counts.mean(axis=-1, keepdims=True) / tried)
    bound = -np.sqrt(alpha * np.maximum(level, 0.0))
    # sigma_i is a multiple of m_i, which is taken out of the draw
    deviations = np.maximum(normal / np.sqrt(rho), bound) / np.sqrt(shape * tried)
    draws: Floats = mean_times(counts, totals, unknown=0.0) * np.maximum(1.0 + deviations, 0.0)
    return draws


@dataclass(frozen=True)
class Mots(KnownShape):
    """MOTS, mirrored for costs: Gaussian draws of the means, not below the bounds of MOSS.

    Jin, Xu, Shi, Xiao and Gu, "MOTS: Minimax optimal Thompson sampling", ICML 2021, algorithm 1:
    the draw from N(m, 1 / (rho K)) is clipped at the bound of MOSS (``draw_clipped``). Theirs is
    for one arm a round, 1-subgaussian rewards and a known number of rounds T. Ours: the deviation
    of a time is mean / sqrt(shape), and T is the number of tasks that count so far.

    Args:
        shape: 1 / (standard deviation / mean)^2 of the times, above 0.
        rho: The source has (1/2, 1); above 0.
        alpha: The source has at least 4; above 0.
    """

    rho: float = 0.9
    alpha: float = 4.0

    source = "Jin, Xu, Shi, Xiao and Gu, MOTS, ICML 2021"
    constants = "rho 0.9, alpha 4; shape 1"
    assumes = "deviations of mean / sqrt(shape), for the shape given"

    def __post_init__(self) -> None:
        super().__post_init__()
        real("rho", self.rho)
        real("alpha", self.alpha)

    def scores(self, belief: Totals | Moments, rounds: Ints | Floats, keys: Keys) -> Scores:
        """Return the clipped draws.

        The choice among workers never tried uses the same keys, as nothing is drawn for them.
        """
        draws = draw_clipped(
            belief.counts,
            belief.totals,
            float(self.shape),
            float(self.rho),
            float(self.alpha),
            keys,
        )
        return Scores(draws, self.shapes(belief))
