"""Exponentiated gradient with randomised rounding (Maranjyan et al., ATA, ICML 2025)."""

import math
from typing import NamedTuple, Self

import numpy as np

from ata_gym.simulation.keys import uniforms
from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import copy, kernel
from ata_gym.utils.ranges import Counts, Times
from ata_gym.utils.validation import real
from ata_policies.beliefs.belief import NoPlan
from ata_policies.beliefs.moments import Totals, mean_times
from ata_policies.observations import LONGEST_TIME
from ata_policies.policy import AllocationPolicy, State
from ata_policies.setting import Setting

_RATE = 0.3
"""The rate times the mean time, where no rate is given."""


class Penalties(NamedTuple):
    """Penalties of the workers, and what the mean time follows from; each of shape (E, n).

    The weights p are the softmax of the penalties, p_i ~ exp(-rate penalty_i).
    """

    counts: Counts
    """Tasks seen."""
    totals: Times
    """Their times added up."""
    penalties: Times
    """The worker's time per task, added up over the rounds in which it was the slowest."""

    @classmethod
    def empty(cls, rows: int, n: int) -> Self:
        return cls(*np.zeros((3, rows, n)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> "Penalties":
        """Return the belief after a round, see ``Belief.observe``.

        Example:
            >>> worker = np.array([[0, 0, 1]])
            >>> duration = np.array([[2.0, 4.0, 5.0]])
            >>> Penalties.empty(1, 2).observe(worker, duration).penalties
            array([[3., 0.]])
        """
        totals = Totals(self.counts, self.totals).observe(worker, duration)
        return Penalties(*totals, _penalise(self.penalties, worker, duration))


@kernel("(n),(b),(b)->(n)")
def _penalise(penalty: Floats, worker: Ints, duration: Floats, out: Floats) -> None:
    """Add its time per task to the penalty of the worker that took longest in the round."""
    copy(penalty, out)
    slowest = -1
    longest = -1.0
    per_task = 0.0
    busy = 0.0
    tasks = 0.0
    # results are ordered by worker: a sum begins anew where the worker changes
    for b in range(len(worker)):
        if b == 0 or worker[b] != worker[b - 1]:
            busy = 0.0
            tasks = 0.0
        busy += duration[b]
        tasks += 1.0
        if busy > longest:
            slowest = worker[b]
            longest = busy
            per_task = busy / tasks
    if slowest >= 0:
        out[slowest] += per_task


@kernel("(n),(),(),()->(n)")
def round_randomly(penalty: Floats, rate: Floats, budget: Ints, draw: Floats, out: Ints) -> None:
    """Round p B to whole tasks at random, with E[a] = p B and p_i ~ exp(-rate penalty_i).

    Each worker gets floor(p_i B) tasks or one more. With C_i = (p_1 + ... + p_i) B and one uniform
    number u,

        a_i = floor(C_i + u) - floor(C_(i-1) + u),

    which adds up to B: systematic sampling.

    Args:
        penalty: (n,) the penalties, in units of time.
        rate: Per unit of time, above 0.
        budget: Tasks B to hand out.
        draw: A uniform number u in [0, 1).
        out: (n,) the tasks a.
    """
    n = len(penalty)
    # penalties count from the least one, so that no weight overflows and not all are 0
    least_penalty = penalty.min()
    weight = np.empty(n)
    total = 0.0
    for i in range(n):
        weight[i] = math.exp(-rate[0] * (penalty[i] - least_penalty))
        total += weight[i]
    share = budget[0] / total
    reached = 0.0
    dealt = 0
    for i in range(n):
        reached += weight[i] * share
        # the last worker gets the rest, whatever the rounding of the sums
        if i < n - 1:
            dealt_by_now = min(np.int64(math.floor(reached + draw[0])), budget[0])
        else:
            dealt_by_now = budget[0]
        out[i] = dealt_by_now - dealt
        dealt = dealt_by_now


class ExponentiatedGradient(AllocationPolicy[Penalties, NoPlan]):
    """Exponentiated gradient: tasks in proportion to weights that fall for slow workers.

    The weights p start uniform, and p B is rounded at random to whole tasks. The slowest worker's p
    is multiplied by exp(-rate * its time per task) after each round, and p is normalised.

    Args:
        rate: Per unit of time, above 0; by default 0.3 over the mean of all times seen, which is
            ours.
    """

    belief = Penalties
    source = "Maranjyan et al., ATA, ICML 2025"
    constants = "rate 0.3 / mean time"
    assumes = "bounded times"
    time_unit = "the unit of 1 / rate, where it is given"

    def __init__(self, setting: Setting, *, rate: float | None = None, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        if rate is None:
            self.rate = None
        else:
            self.rate = real("rate", rate)

    def estimated(self, state: State[Penalties, NoPlan]) -> tuple[Floats, Floats]:
        return mean_times(state.belief.counts, state.belief.totals), state.belief.counts

    def allocate(self, state: State[Penalties, NoPlan]) -> Ints:
        belief = state.belief
        total = belief.totals.sum(axis=1)
        mean = np.divide(total, belief.counts.sum(axis=1), out=np.ones_like(total), where=total > 0)
        if self.rate is None:
            rate = np.minimum(_RATE / mean, LONGEST_TIME)
        else:
            rate = np.full_like(mean, self.rate)
        draw = uniforms(state.round_keys(), 1)[:, 0]
        return np.asarray(round_randomly(belief.penalties, rate, self.setting.budget, draw))
