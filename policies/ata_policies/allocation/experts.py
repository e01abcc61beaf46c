"""Two experts for a round, the learner's plan and a trained network, and who decides.

Ours. The choice is Thompson sampling over two arms whose rewards are normal (Thompson, 1933).
"""

from typing import NamedTuple, Self

import numpy as np
from scipy.special import ndtr

from ata_gym.envs.interface.worker_features import MEMORY, RoundFeatures, WorkerMemory
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.ranges import Counts, Flags, Reals, Wholes
from ata_policies.beliefs.availability import counted, feedback_totals
from ata_policies.beliefs.distributions.arrays import HORIZONS, ROW, SLOT
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.learned.network import Network, NetworkMemory
from ata_policies.learned.policy import shares
from ata_policies.observations import Observation

_DISCOUNT = 0.99
"""How much a round counts for in the comparison, one compared round later."""
_VARIANCE = 0.1
"""The variance of the logarithm of a round's cost, where nothing is known; counts as one round."""
_FOUR_ROUNDS = HORIZONS.index(4.0)
_ONE_ROUND = HORIZONS.index(1.0)
# who decided a round: where nobody did, the plan was played without being compared
_PLAN = 0
_NETWORK = 1
_NOBODY = 2


class Experts(NamedTuple):
    """What E rows know of the network's side, and of what each expert's rounds have cost."""

    workers: WorkerMemory
    """What the network's features are made of."""
    memory: NetworkMemory
    """What the network remembers; zeros where it was not asked in the last round."""
    tracked: Flags
    """(E,) whether the network was asked before: the workers are followed for it from then on."""
    rounds: Counts
    """(E, 2) compared rounds that the plan and the network decided, discounted."""
    logs: Reals
    """(E, 2) the logarithms of their costs added up."""
    squares: Counts
    """(E,) the squares of all these logarithms added up."""
    decided: Wholes
    """(E,) who decided the last round: 0 the plan, 1 the network, 2 nobody, as it was not asked."""

    @classmethod
    def begin(cls, network: Network, rows: int, n: int) -> Self:
        """Return what is known before the first round."""
        zeros = np.zeros((rows, 2))
        nobody = np.full(rows, _NOBODY, np.int64)
        workers = WorkerMemory.empty(rows, n)
        untracked = np.zeros(rows, np.int8)
        return cls(workers, network.begin(rows, n), untracked, zeros, zeros, zeros[:, 0], nobody)

    def with_costs(self, observation: Observation, prices: Floats) -> "Experts":
        """Return what is known after the feedback of a round, of what the experts' rounds cost.

        Args:
            observation: The feedback, with a row axis.
            prices: (n,) what a unit of each worker's time costs in units of runtime.
        """
        busy = feedback_totals(observation).busy
        costs = busy.max(axis=1) + (prices * busy).sum(axis=1)
        compared = (self.decided != _NOBODY) & (costs > 0.0) & (costs < np.inf)
        # Times of a warm-up say nothing of what a round costs later.
        if "warm_up" in observation:
            compared &= ~observation["warm_up"].any(axis=1)
        logs = np.log(np.where(compared, costs, 1.0))
        by = compared[:, None] & (self.decided[:, None] == (_PLAN, _NETWORK))
        discount = np.where(compared, _DISCOUNT, 1.0)
        return self._replace(
            rounds=discount[:, None] * self.rounds + by,
            logs=discount[:, None] * self.logs + np.where(by, logs[:, None], 0.0),
            squares=discount * self.squares + logs**2,
        )

    def with_workers(
        self, belief: DistributionBelief, asked: Mask, tasks: Ints, observation: Observation
    ) -> "Experts":
        """Return what is known after the feedback of a round, of the workers for the network.

        Args:
            belief: The learner's belief after the feedback, from which the network's first
                features in a row are made.
            asked: (E,) the rows in which the network may decide.
            tasks: (E, n) the tasks of the round.
            observation: The feedback, with a row axis, whose times hold the latencies.
        """
        results = counted(observation)
        after = self.workers.with_assigned(tasks).observe(*results).with_answers(observation)
        workers = np.where(self.tracked[:, None, None], after.workers, self.workers.workers)
        first = asked & (self.tracked == 0)
        if first.any():
            workers[first] = _memory_of(belief.take_rows(first)).workers
        return self._replace(workers=WorkerMemory(workers), tracked=self.tracked | asked)

    def chance_of_network(self) -> Floats:
        """Return with which probability the network's rounds cost less than the plan's, (E,).

        The logarithm of a round's cost is taken to be normal, with a mean of each expert. With K_j
        rounds of mean m_j and the variance s^2 within the experts it is

            Phi((m_0 - m_1) / sqrt(s^2 (1 / (K_0 + 1) + 1 / (K_1 + 1)))),

        and 1 / 2 until each expert has decided a round. A round counts by the factor 0.99 less with
        each compared round after it.
        """
        known = self.rounds.all(axis=1)
        means = self.logs / np.where(self.rounds > 0.0, self.rounds, 1.0)
        within = np.maximum(self.squares - (self.logs * means).sum(axis=1), 0.0)
        variance = (within + _VARIANCE) / (self.rounds.sum(axis=1) + 1.0)
        error = np.sqrt(variance * (1.0 / (self.rounds + 1.0)).sum(axis=1))
        lead = means[:, _PLAN] - means[:, _NETWORK]
        return np.where(known, ndtr(lead / error), 0.5)

    def decide(
        self,
        network: Network,
        of_round: RoundFeatures,
        round: Ints,
        plan: Ints,
        available: Mask,
        asked: Mask,
        uniforms: Floats,
    ) -> tuple[Ints, "Experts"]:
        """Return the tasks of the round, (E, n), and what is known with them.

        Args:
            network: The network.
            of_round: What its features hold of the scenario.
            round: (E,) the round, from 1 on.
            plan: (E, n) the tasks by the plan.
            available: (E, n) the workers that may get tasks.
            asked: (E,) the rows in which the network may decide; the plan decides in the others.
            uniforms: (E, n + 1) fresh uniform numbers of each row.
        """
        tasks = plan.copy()
        codes = np.zeros_like(self.memory.codes)
        rows = np.flatnonzero(asked)
        decided = np.full(len(asked), _NOBODY, np.int64)
        if rows.size > 0:
            by_network, memory = shares(
                network,
                WorkerMemory(self.workers.workers[rows]),
                NetworkMemory(self.memory.codes[rows]),
                of_round,
                round[rows] - 1,
                {"present": available[rows]},
                uniforms[rows, 1:],
            )
            codes[rows] = memory.codes
            chosen = uniforms[rows, 0] < self.chance_of_network()[rows]
            decided[rows] = np.where(chosen, _NETWORK, _PLAN)
            tasks[rows[chosen]] = by_network[chosen]
        return tasks, self._replace(memory=NetworkMemory(codes), decided=decided)

    def describe(self, row: int) -> str:
        """Return who decided a row's round, in words to add; nothing if the network had no say."""
        if self.decided[row] == _NOBODY:
            return ""
        who = ("the plan", "the network")[self.decided[row]]
        chance = self.chance_of_network()[row]
        return f"; {who} decided, since levels move; the network does with probability {chance:.2f}"


def _memory_of(belief: DistributionBelief) -> WorkerMemory:
    """Return the ``WorkerMemory`` that a belief implies.

    The recent mean is the level of the memory of four rounds, and the level of the last round that
    of the memory of one round. A suspect's level is its usual one times its stretch.
    """
    known = belief.counts > 0.0
    results = np.maximum(belief.of_worker(SLOT.age), belief.counts)
    stretch = belief.of_worker(SLOT.stretch)
    stretch = np.where(stretch > 0.0, stretch, 1.0)
    usual = belief.mean() / stretch
    usual[~known] = 1.0
    recent = stretch * belief.level(_FOUR_ROUNDS, usual)
    last = stretch * belief.level(_ONE_ROUND, usual)
    # CV^2; the logarithm of log-normal times of this CV has the variance ln(1 + CV^2)
    squares = belief.deviations / np.maximum(belief.counts, 1.0) / usual**2
    idle = np.minimum(belief.idle(), belief.row[:, ROW.clock, None])
    workers = np.zeros((*known.shape, len(MEMORY)))
    workers[..., MEMORY.results] = results
    workers[..., MEMORY.busy] = results * usual
    workers[..., MEMORY.recent] = recent
    workers[..., MEMORY.log_mean] = np.log(usual)
    workers[..., MEMORY.log_squares] = results * np.log1p(squares)
    workers[..., MEMORY.last] = belief.of_worker(SLOT.last_time)
    workers[..., MEMORY.level] = last
    workers[..., MEMORY.previous_level] = recent
    workers[~known] = 0.0
    workers[..., MEMORY.since] = idle
    return WorkerMemory.bounded(workers)
