"""What rules of dispatch cost in rounds of the simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ata_gym.simulation.dispatch import RoundState, dispatch_step
from ata_gym.simulation.keys import NoiseKeys
from ata_gym.theory.simulated.costs import Costs, replay

Rule = Callable[..., np.ndarray]
"""Which workers should be working, (E, n), from the missing results (E,), who is running, and ages (E, n)."""


def simulate_rules(times: np.ndarray, rules: list[Rule], budget: int, replicates: int) -> Costs:
    """The mean costs of rounds with each rule, on the task times of ``ata_gym.theory.simulated.costs.simulate``."""
    n, costs = len(times), []
    distributions, before = replay(times, np.arange(n), budget, replicates)
    key, zeros = np.zeros(1, np.uint64), np.zeros(1, np.int64)
    for rule in rules:
        started, state, age = before, RoundState.start(replicates, n, budget), np.zeros((replicates, n))
        for _ in range(budget):
            action = rule(state.missing, state.running, age)
            at = dispatch_step(distributions, NoiseKeys(key, zeros, zeros, started), state, action, budget)
            started, state, age = at.started, at.round_state, at.age
        costs.append((at.round_time.mean(), at.worker_time.mean()))
    return Costs(*np.transpose(costs))
