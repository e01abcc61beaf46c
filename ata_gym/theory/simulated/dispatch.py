"""What rules of dispatch cost on average, by playing rounds on sampled task times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.simulation.dispatch import RoundState, dispatch_step
from ata_gym.theory.simulated.costs import Costs, replay
from ata_gym.typing import Bits, Floats, Ints

Rule = Callable[[Ints, Bits, Floats], Bits]
"""Returns which workers should be working, (E, n), from the missing results (E,), who is running, and ages (E, n)."""


def simulate_dispatch(times: ArrayLike, rules: Sequence[Rule], budget: int, replicates: int = 256) -> Costs:
    """Estimate the expected round time and worker time of rules of dispatch by playing ``replicates`` rounds with each.

    The rounds are those of ``ata_gym.simulation.dispatch.dispatch_step``, on the task times of
    ``ata_gym.theory.simulated.costs.simulate``, which are the same for every rule. The times have shape (n, S), finite
    and at least 0, and ``replicates`` is best a multiple of S. ValueError for other times.

    Everybody always works, or only worker 0 does:

    >>> everybody = lambda missing, running, age: np.ones_like(running)
    >>> only_0 = lambda missing, running, age: np.ones_like(running) * np.array([1, 0], np.int8)
    >>> simulate_dispatch([[2.0], [3.0]], [everybody, only_0], budget=2, replicates=1)
    Costs(round_time=array([3., 4.]), worker_time=array([6., 4.]))
    """
    table = np.asarray(times, np.float64)
    if table.ndim != 2 or table.size == 0:
        raise ValueError(f"times must have shape (n, S), a row per worker, not {table.shape}")
    if not (table.min() >= 0.0 and table.max() < np.inf):
        raise ValueError("times must be finite and at least 0")
    n = len(table)
    distributions, before = replay(table, np.arange(n), budget, replicates)
    key, zeros = np.zeros(1, np.uint64), np.zeros(1, np.int64)
    costs = np.empty((2, len(rules)))
    for c, rule in enumerate(rules):
        started, round_state, age = before, RoundState.start(replicates, n, budget), np.zeros((replicates, n))
        for _ in range(budget):
            action = rule(round_state.missing, round_state.running, age)
            at = dispatch_step(distributions, key, zeros, zeros, started, round_state, action, budget)
            started, round_state, age = at.started, at.round_state, at.age
        costs[:, c] = at.round_time.mean(), at.worker_time.mean()
    return Costs(*costs)
