"""Baselines: UTA, OFTA and GTA, which learn nothing, and explore-then-commit.

UTA, OFTA and GTA are from Maranjyan et al., ICML 2025.
"""

from typing import NamedTuple

import numpy as np

from ata_gym.theory.allocation.proxy_loss import allocate_scores, proxy_optimal
from ata_gym.typing import Ints
from ata_gym.utils.ranges import Allocations
from ata_gym.utils.validation import whole_number
from ata_policies.beliefs.belief import NoPlan
from ata_policies.beliefs.moments import Totals, mean_times
from ata_policies.observations import Observation
from ata_policies.policy import AllocationPolicy, Policy, State
from ata_policies.setting import Setting


class Uta(AllocationPolicy[Totals, NoPlan]):
    """Uniform: floor(B / n) tasks each, and the remainder to a random subset in each round."""

    source = "Maranjyan et al., ATA, ICML 2025"
    learns = False
    constants = "none"

    def allocate(self, state: State[Totals, NoPlan]) -> Ints:
        return allocate_scores(
            np.zeros_like(state.belief.totals),
            self.setting.budget,
            state.round_keys(),
        )


class Ofta(AllocationPolicy[Totals, NoPlan]):
    """Optimal fixed: minimises the proxy loss max a_i mu_i under the true means, every round.

    Where workers pay a latency, it minimises the largest c_i + a_i mu_i, with mean latencies c.
    """

    source = "Maranjyan et al., ATA, ICML 2025"
    learns = False
    constants = "none"
    knows = "the means"
    uses_latency = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.fixed = self.best()

    def best(self) -> Ints:
        """Return the allocation, (n,)."""
        return proxy_optimal(self.setting.known_pool("ofta"), self.setting.budget)

    def allocate(self, state: State[Totals, NoPlan]) -> Ints:
        return np.tile(self.fixed, (len(state.round), 1))


class Gta(AllocationPolicy[Totals, NoPlan]):
    """Greedy: every worker keeps computing until the first B results are in.

    This is how Rennala SGD collects gradients.
    """

    env_id = "ata_gym/TaskRace-v0"
    source = "Tyurin and Richtárik, 2023; Maranjyan et al., ATA, ICML 2025"
    learns = False
    constants = "none"

    def allocate(self, state: State[Totals, NoPlan]) -> Ints:
        return np.full(state.belief.totals.shape, self.setting.budget, np.int64)


class Commitment(NamedTuple):
    """The decision of explore-then-commit."""

    allocation: Allocations
    """(E, n) the allocation for good; 0 before."""


class ExploreThenCommit(Policy[Totals, Commitment]):
    """Tries each worker m times in turn, then keeps one allocation for good.

    This allocation minimises the proxy loss under the means of the times seen until then. The turns
    go on from round to round and last ceil(n m / B) rounds, or until each worker has a result that
    counts. Regret is linear: with some probability the commitment is wrong.

    Args:
        tasks: m, tasks that each worker runs at least before the commitment.
    """

    source = "the textbook rule; Garivier, Kaufmann and Lattimore, NeurIPS 2016"
    constants = "m = 10"
    assumes = "finite means"

    def __init__(self, setting: Setting, *, tasks: int = 10, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.tasks = whole_number("tasks", tasks)
        self.rounds = -(-setting.n * self.tasks // setting.budget)
        """Rounds before the commitment."""

    def first_plan(self, rows: int) -> Commitment:
        return Commitment(np.zeros((rows, self.setting.n), np.int64))

    def act(
        self, state: State[Totals, Commitment], observation: Observation
    ) -> tuple[Ints, State[Totals, Commitment]]:
        n = self.setting.n
        budget = self.setting.budget
        k = state.round[:, None]
        committed = state.plan.allocation.any(axis=1, keepdims=True)
        measured = (state.belief.counts > 0.0).all(axis=1, keepdims=True)
        committing = (k > self.rounds) & measured & ~committed
        if committing.any():
            best = allocate_scores(
                mean_times(state.belief.counts, state.belief.totals, unknown=0.0),
                budget,
            )
            state = state._replace(
                plan=Commitment(np.where(committing, best, state.plan.allocation)),
            )
        # of T tasks dealt in turn, worker i has (T + n - 1 - i) // n: the difference between the
        # T of this round and of the last round is what it gets now
        dealt = k * budget + np.arange(n - 1, -1, -1)
        turns: Ints = dealt // n - (dealt - budget) // n
        return np.where(committed | committing, state.plan.allocation, turns), state
