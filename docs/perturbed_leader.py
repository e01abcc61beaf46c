"""``docs.perturbed_leader:PerturbedLeader``: a policy that follows the perturbed leader.

It is no policy of the zoo, since it loses to Thompson sampling: policies/leaderboard.md.
"""

from typing import NamedTuple

import numpy as np

from ata_gym import allocate
from ata_gym.simulation.keys import derive_keys, uniforms
from ata_gym.typing import Floats, Ints
from ata_gym.utils.ranges import Counts, Times
from ata_gym.utils.validation import real, whole_number
from ata_policies.beliefs.moments import Totals
from ata_policies.observations import Observation
from ata_policies.policy import AllocationPolicy, State
from ata_policies.setting import Setting


class Losses(NamedTuple):
    """What was lost so far, and how rare the last round's decision was; each of shape (E, n)."""

    total: Times
    """The estimated task times of all rounds, added up."""
    waits: Counts
    """How many decisions until the worker gets a task again; 0 for workers without one."""


class PerturbedLeader(AllocationPolicy[Totals, Losses]):
    """Follow the perturbed leader with geometric resampling, for semi-bandit feedback.

    Round k has the allocation of least proxy loss for the scores (L_i + (max Z - Z_i) m / eta) / k,
    with exponential Z_i of mean 1, and m the mean of all times seen. A round's mean task time of
    worker i is added to L_i, times the number of decisions, under other Z, until i gets a task
    again: its mean is 1 / P(a_i > 0), and it is cut off at ``redraws``. Neu and Bartok, JMLR 17,
    2016, for actions with linear losses, which do not see the max Z. That was not read again, and
    its eta is from memory, c sqrt((ln n + 1) / (min(B, n) n k)), with k in place of the number of
    rounds. The proxy loss is ours, and so is the max Z, so that no score is below 0.

    Args:
        rate: The factor c of eta, above 0.
        redraws: The most decisions, which is what a round costs over one decision.
    """

    belief = Totals
    source = "Neu and Bartok, JMLR 17, 2016 (from memory)"
    constants = "c 1; 20 redraws"
    assumes = "bounded times"

    def __init__(
        self, setting: Setting, *, rate: float = 1.0, redraws: int = 20, seed: int = 0
    ) -> None:
        super().__init__(setting, seed=seed)
        self.rate = real("rate", rate)
        self.redraws = whole_number("redraws", redraws)

    def first_plan(self, rows: int) -> Losses:
        return Losses(*np.zeros((2, rows, self.setting.n)))

    def allocate(self, state: State[Totals, Losses]) -> Ints:
        return self._decisions(state, 1)[:, 0]

    def act(
        self, state: State[Totals, Losses], observation: Observation
    ) -> tuple[Ints, State[Totals, Losses]]:
        last = Totals.empty(len(state.round), self.setting.n).observe(
            observation["worker"], observation["duration"]
        )
        times = np.divide(
            last.totals, last.counts, out=np.zeros_like(last.totals), where=last.counts > 0
        )
        total = state.plan.total + state.plan.waits * times
        decided = state._replace(plan=Losses(total, np.zeros_like(total)))
        decisions = self._decisions(decided, 1 + self.redraws)
        action = decisions[:, 0]
        again = decisions[:, 1:] > 0
        waits = np.where(again.any(axis=1), 1 + again.argmax(axis=1), self.redraws)
        waits = np.where(action > 0, waits, 0).astype(np.float64)
        return action, decided._replace(plan=Losses(total, waits))

    def _decisions(self, state: State[Totals, Losses], number: int) -> Ints:
        """Decisions of a round under different perturbations, (E, number, n); the first counts."""
        n = self.setting.n
        budget = self.setting.budget
        keys = derive_keys(state.round_keys()[:, None], 1, np.arange(number))
        busy = state.belief.totals.sum(axis=1)
        tasks = state.belief.counts.sum(axis=1)
        mean = np.divide(busy, tasks, out=np.ones_like(busy), where=tasks > 0)
        rounds = np.maximum(state.round, 1)
        eta = self.rate * np.sqrt((np.log(n) + 1) / (min(budget, n) * n * rounds))
        z = -np.log(uniforms(keys, n))
        behind = (z.max(axis=2, keepdims=True) - z) * (mean / eta)[:, None, None]
        scores: Floats = (state.plan.total[:, None] + behind) / rounds[:, None, None]
        return np.asarray(allocate(scores, budget, derive_keys(keys, 0, 2)))
