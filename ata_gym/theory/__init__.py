"""Decisions where the distributions of the task times are known or sampled.

They are allocations by scores, expected round times, optimal allocations, costs by simulation, and
the promises of ATA's theorems for a pool, and what no policy can do better.

Example:
    >>> from ata_gym import scenario
    >>> promise = guarantee(scenario("icml2025-regret").pool, budget=5, version="icml")
    >>> round(promise.eta, 3), round(promise.factor, 2)
    (1.531, 10.86)
    >>> promise.uniform_phase.all_zero, float(promise.regret(1e6).round(-5))
    (839, 13100000.0)
    >>> round(promise.lower_bound.constant, 2)
    50.82
"""

from ata_gym.theory.guarantees import Guarantee, guarantee
from ata_gym.theory.lower_bound import RegretLowerBound, regret_lower_bound

__all__ = ["Guarantee", "RegretLowerBound", "guarantee", "regret_lower_bound"]
