"""What a scenario is."""

from __future__ import annotations

from dataclasses import dataclass

from ata_gym.pools import Pool


@dataclass(frozen=True)
class Scenario:
    """A world by name.

    ``alpha`` and ``eta`` are the published hyperparameters of ATA and ATA-Empirical: they need not be the true psi1
    norms of the pool (``Pool.psi1_norm``).
    """

    name: str
    pool: Pool
    budget: int
    """Results B that a round needs."""
    horizon: int
    """Rounds in an episode."""
    alpha: float
    """The published bound on the psi1 norms, in units of time."""
    eta: float
    """The published bound on the ratios of psi1 norm to mean."""
    summary: str
    source: str
    """Where the setting was published, or that it is ours."""
