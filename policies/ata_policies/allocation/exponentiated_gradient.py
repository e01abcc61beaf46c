"""Exponentiated gradient with randomised rounding (Maranjyan et al., ATA, ICML 2025)."""

import math
from typing import NamedTuple, Self

import numpy as np

from ata_gym.simulation.keys import uniforms
from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import kernel
from ata_gym.utils.ranges import Counts, Times
from ata_gym.utils.validation import real
from ata_policies.beliefs.moments import Totals, mean_times
from ata_policies.observations import LONGEST
from ata_policies.policy import AllocationPolicy, State
from ata_policies.setting import Setting

_RATE = 0.3  # over the mean time, the rate where none is given


class Penalties(NamedTuple):
    """Penalties of the workers, each of shape (E, n); weights p are their softmax, p_i ~ exp(-rate penalty_i)."""

    counts: Counts  # tasks seen
    totals: Times  # their times added up
    penalties: Times  # the worker's time per task, added up over the rounds in which it was the slowest

    @classmethod
    def empty(cls, rows: int, n: int) -> Self:
        return cls(*np.zeros((3, rows, n)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> "Penalties":
        """See ``Belief.observe``.

        >>> Penalties.empty(1, 2).observe(np.array([[0, 0, 1]]), np.array([[2.0, 4.0, 5.0]])).penalties
        array([[3., 0.]])
        """
        seen = Totals(self.counts, self.totals).observe(worker, duration)
        return Penalties(*seen, _penalise(self.penalties, worker, duration))


@kernel("(n),(b),(b)->(n)")
def _penalise(penalty: Floats, worker: Ints, duration: Floats, out: Floats) -> None:
    out[:] = penalty
    slowest, longest, per_task = -1, -1.0, 0.0
    busy, tasks = 0.0, 0.0
    for b in range(len(worker)):  # ordered by worker
        if b == 0 or worker[b] != worker[b - 1]:
            busy, tasks = 0.0, 0.0
        busy += duration[b]
        tasks += 1.0
        if busy > longest:
            slowest, longest, per_task = worker[b], busy, busy / tasks
    if slowest >= 0:
        out[slowest] += per_task


@kernel("(n),(),(),()->(n)")
def round_randomly(penalty: Floats, rate: Floats, budget: Ints, draw: Floats, out: Ints) -> None:
    """Round p B to whole tasks, p_i ~ exp(-rate penalty_i): each worker gets floor(p_i B) or one more, E[a] = p B.

    With C_i = (p_1 + ... + p_i) B and one uniform number u, a_i = floor(C_i + u) - floor(C_(i-1) + u), which adds up to
    B: systematic sampling.
    """
    n = len(penalty)
    least = penalty.min()
    weight = np.empty(n)
    total = 0.0
    for i in range(n):
        weight[i] = math.exp(-rate[0] * (penalty[i] - least))
        total += weight[i]
    share = budget[0] / total
    reached, dealt = 0.0, 0
    for i in range(n):
        reached += weight[i] * share
        upto = min(np.int64(math.floor(reached + draw[0])), budget[0]) if i < n - 1 else budget[0]
        out[i] = upto - dealt
        dealt = upto


class ExponentiatedGradient(AllocationPolicy):
    """Exponentiated gradient: tasks in proportion to weights; after each round the slowest worker's weight falls.

    The weights p start uniform, and p B is rounded at random to whole tasks. The slowest worker's p is then multiplied
    by exp(-rate * its time per task) and p is normalised.

    - ``rate``: per unit of time, above 0; by default 0.3 over the mean of all times seen, which is ours.
    """

    belief = Penalties
    source = "Maranjyan et al., ATA, ICML 2025"
    constants = "rate 0.3 / mean time"
    assumes = "bounded times"
    time_unit = "that of 1 / rate, where it is given"

    def __init__(self, setting: Setting, *, rate: float | None = None, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.rate = None if rate is None else real("rate", rate)

    def estimated(self, state: State) -> tuple[Floats, Floats]:
        return mean_times(state.belief.counts, state.belief.totals), state.belief.counts

    def allocate(self, state: State) -> Ints:
        belief: Penalties = state.belief
        total = belief.totals.sum(axis=1)
        mean = np.divide(total, belief.counts.sum(axis=1), out=np.ones_like(total), where=total > 0)
        rate = np.minimum(_RATE / mean, LONGEST) if self.rate is None else np.full_like(mean, self.rate)
        draw = uniforms(state.round_keys(), 1)[:, 0]
        return np.asarray(round_randomly(belief.penalties, rate, self.setting.budget, draw))
