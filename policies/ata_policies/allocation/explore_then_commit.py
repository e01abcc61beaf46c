"""Explore-then-commit: try each worker equally often, then keep one allocation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.theory.allocation.proxy_loss import allocate
from ata_gym.typing import Ints
from ata_gym.utils.validation import whole_number
from ata_policies.allocation.estimates.estimate import plain_means
from ata_policies.observations import Observation
from ata_policies.policy import Policy, Setting, State


class Commitment(NamedTuple):
    """What explore-then-commit has decided."""

    allocation: Ints
    """(E, n) the allocation for good; 0 before."""


class ExploreThenCommit(Policy):
    """Tries each worker m times in turn, then minimises the proxy loss under the means once, and keeps that allocation.

    The turns go on from round to round and last ceil(n m / B) rounds. Regret is linear: with some probability the
    commitment is wrong.

    Parameters
    ----------
    tries
        m, tasks that each worker runs at least before the commitment.
    """

    source = "the textbook rule; Garivier, Kaufmann and Lattimore, NeurIPS 2016"
    constants = "m = 10"
    assumes = "finite means"

    def __init__(self, setting: Setting, *, tries: int = 10, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.tries = whole_number("tries", tries)
        self.rounds = -(-setting.n * self.tries // setting.budget)
        """Rounds before the commitment."""

    def first_plan(self, rows: int) -> Commitment:
        """Nothing is decided yet."""
        return Commitment(np.zeros((rows, self.setting.n), np.int64))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Take turns, or commit, or keep to it."""
        del seen
        n, budget, k = self.setting.n, self.setting.budget, state.round[:, None]
        now = k == self.rounds + 1
        if now.any():
            best = allocate(plain_means(state.belief), budget)
            state = state._replace(plan=Commitment(np.where(now, best, state.plan.allocation)))
        last = k * budget + np.arange(n - 1, -1, -1)  # of tasks dealt in turn, i has (tasks + n - 1 - i) // n
        turns: Ints = last // n - (last - budget) // n
        return np.where(k > self.rounds, state.plan.allocation, turns), state
