"""Learners that trust the mean of the times seen: always, but for random rounds, or after a fixed time of trying."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.allocation import allocate
from ata_gym.checks import whole_number
from ata_gym.simulation import Floats, Ints, derive_keys, uniforms
from ata_policies.beliefs import Belief
from ata_policies.hyperparameters import real
from ata_policies.policy import AllocationPolicy, Observation, Policy, Setting, State


def plain_means(belief: Belief) -> Floats:
    """The mean of the times seen of each worker, shape (E, n); 0 for a worker never tried.

    >>> plain_means(Belief(np.array([[2.0, 0.0]]), np.array([[6.0, 0.0]])))
    array([[3., 0.]])
    """
    return np.divide(belief.totals, belief.counts, out=np.zeros_like(belief.totals), where=belief.counts > 0)


class CertaintyEquivalence(AllocationPolicy):
    """Takes the means of the times seen for the truth, and minimises the proxy loss under them; untried workers first.

    It never tries again a worker that looks slow, so bad luck in the first tasks of a fast one is never made good.
    """

    source = "the textbook rule"
    constants = "none"
    assumes = "finite means"

    def allocate(self, state: State) -> Ints:
        """Minimise the proxy loss under the means."""
        means = plain_means(state.belief)
        return allocate(means, self.setting.budget, state.round_keys(), state.belief.untried())


class EpsilonUniform(AllocationPolicy):
    """Certainty equivalence, but each round is with probability epsilon allocated uniformly.

    The literature calls it epsilon-greedy. In round k, epsilon = min(1, c n / k), for which Auer, Cesa-Bianchi and
    Fischer ("Finite-time analysis of the multiarmed bandit problem", 2002) show logarithmic regret if c is large
    enough; or a constant, whose regret is linear. A uniform round allocates as UTA does.

    Parameters
    ----------
    c
        Above 0: a uniform round is had about c n ln(K) times in K rounds.
    epsilon
        A constant probability in (0, 1] instead.
    """

    source = "Auer, Cesa-Bianchi and Fischer, 2002"
    constants = "min(1, 0.05 n / k)"
    assumes = "finite means"

    def __init__(self, setting: Setting, *, c: float = 0.05, epsilon: float | None = None, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.c = real("c", c)
        self.epsilon = None if epsilon is None else real("epsilon", epsilon, up_to=1.0)

    def allocate(self, state: State) -> Ints:
        """Minimise the proxy loss under the means, or under none."""
        keys = state.round_keys()
        epsilon = self.c * self.setting.n / state.round if self.epsilon is None else self.epsilon
        uniform = uniforms(derive_keys(keys, 0, 1), 1) < np.reshape(epsilon, (-1, 1))
        means = np.where(uniform, 0.0, plain_means(state.belief))
        return allocate(means, self.setting.budget, keys, state.belief.untried() & ~uniform)


class Commitment(NamedTuple):
    """What explore-then-commit has decided."""

    allocation: Ints
    """(E, n) the allocation for good; 0 before."""


class ExploreThenCommit(Policy):
    """Tries each worker m times in turn, then takes the means for the truth and keeps the allocation for good.

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
