"""Decisions where the distributions of the task times are known or sampled.

Allocating by scores, expected round times, optimal allocations, costs by simulation, and what the theorems of ATA
promise for a pool:

>>> from ata_gym import scenario
>>> from ata_gym.theory import guarantee
>>> found = guarantee(scenario("icml2025-regret").pool, budget=5, version="icml")
>>> round(found.eta, 3), round(found.factor, 2), found.uniform.all_zero
(1.531, 10.86, 844)
>>> found.regret([1e6, 1e9]).round(-5)
array([13100000., 19500000.])
"""

from ata_gym.theory.guarantees import Guarantee, UniformPhase, guarantee, uniform_phase

__all__ = ["Guarantee", "UniformPhase", "guarantee", "uniform_phase"]
