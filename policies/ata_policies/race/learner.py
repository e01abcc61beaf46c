"""Races whose size follows from the price of worker time and from the distributions that were learned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.theory.simulated.costs import due
from ata_gym.theory.simulated.races import EVERYTHING, choose_race
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import non_negative, whole_number
from ata_policies.beliefs.distributions.bins import DistributionBelief, own_sample, sample
from ata_policies.observations import Observation
from ata_policies.policy import AllocationPolicy, Setting, State
from ata_policies.race.fixed import race_by_draws

_EARLY = (2, 4)  # rounds in which the race is chosen besides those that are due: the first results tell most
_SLICES, _SHARPEST = 64, 16.0


class RacePlan(NamedTuple):
    """The race that was chosen last in each row."""

    solved: Ints  # (E,) the round in which it was chosen; 0 before the first
    fastest: Ints  # (E,) workers in the race
    tasks: Ints  # (E,) tasks shared out among them
    shape: Floats  # (E, n) 1 / (coefficient of variation)^2 of each worker's task times


class RaceLearner(AllocationPolicy):
    """Learns the distributions, and chooses by the price how many of the fastest race, and for how many tasks.

    At intervals that grow, it chooses the race of m workers and B + d tasks (as ``RaceCaps``, from d = 0 to B tasks for
    each) that has the least

        E[round time] + price * E[worker time]

    in rounds simulated on samples of the learned distributions (see ``ata_gym.theory.simulated.races.choose_race``);
    these are learned from finished and cancelled tasks. In between, Thompson draws tell which workers are the fastest.
    The first round is GTA's.

    Of the races within ``tolerance`` of the least cost it takes the one with the least worker time: at price 0 the
    fastest race, GTA, is hardly faster than that of the best few workers, and its worker time is far more.

    In round k about ``explore`` m / sqrt(k) more workers take part: otherwise too little would be learned of a worker
    whose tasks were mostly cancelled. At the best m they cost little, since they also make the round shorter. Ours.

    A plan costs some milliseconds per row (n = 51, B = 23) and is made 27 times in the first 2,000 rounds: there a
    round costs some 20 times as much as ATA's, over 20,000 rounds 7 times, and in the long run 4 times.

    Parameters
    ----------
    tolerance, explore
        At least 0; the tolerance is a share of the least cost.
    replicates
        Rounds played with each candidate, at least 1.
    """

    belief = DistributionBelief
    env_id = "ata_gym/TaskRace-v0"
    source = "ours, after Thompson, 1933"
    constants = "tolerance 0.5 %, explore 1/2, 64 replicates"
    assumes = "distributions that stay as they are"
    priced = True

    def __init__(
        self, setting: Setting, *, tolerance: float = 0.005, explore: float = 0.5, replicates: int = 64, seed: int = 0
    ) -> None:
        super().__init__(setting, seed=seed)
        self.tolerance, self.explore = non_negative("tolerance", tolerance), non_negative("explore", explore)
        self.replicates = whole_number("replicates", replicates)

    def first_plan(self, rows: int) -> RacePlan:
        """B tasks for every worker, as GTA."""
        ones = np.ones(rows, np.int64)
        return RacePlan(0 * ones, self.setting.n * ones, EVERYTHING * ones, np.ones((rows, self.setting.n)))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Choose the race again where that is due, then start it."""
        rows = np.flatnonzero(due(state.round, state.plan.solved) | np.isin(state.round, _EARLY))
        if rows.size:
            state = state._replace(plan=self._planned(state, rows))
        return super().act(state, seen)

    def allocate(self, state: State) -> Ints:
        """Start the fastest by the draws."""
        plan = state.plan
        until = [np.floor(2.0 * self.explore * plan.fastest * np.sqrt(k)) for k in (state.round - 1, state.round)]
        extra = (until[1] - until[0]).astype(np.int64)
        return race_by_draws(state, plan.fastest, plan.tasks, plan.shape, self.setting.budget, extra)

    def _planned(self, state: State, rows: Ints) -> RacePlan:
        """The plan, with the race chosen again in some rows."""
        plan = RacePlan(*(part.copy() for part in state.plan))
        belief = state.belief.rows(rows)
        times, tried = own_sample(belief, _SLICES), ~belief.untried()
        plan.solved[rows], plan.shape[rows] = state.round[rows], _shape(sample(belief, _SLICES))
        centre = plan.shape[rows] * belief.busy / (1.0 + plan.shape[rows] * belief.counts)  # of the draws
        for e, distribution, score, known in zip(rows.tolist(), times, centre, tried, strict=True):
            given = distribution[known], score[known], self.setting.budget, self.setting.price
            old = int(plan.fastest[e]), int(plan.tasks[e])
            choice = choose_race(*given, tolerance=self.tolerance, replicates=self.replicates, start=old)
            plan.fastest[e], plan.tasks[e] = choice.fastest, choice.tasks
        return plan


def _shape(times: Floats) -> Floats:
    """1 / (coefficient of variation)^2 of samples, within 1/16 and 16; 1 for a worker never tried."""
    exponent = np.frexp(np.nan_to_num(times.mean(axis=-1)))[1]
    scaled = np.ldexp(times, -exponent[..., None])  # squares of the times themselves may overflow
    mean, variance = scaled.mean(axis=-1), scaled.var(axis=-1)
    shape = np.divide(mean**2, variance, out=np.full_like(mean, _SHARPEST), where=variance > 0.0)
    return np.where(np.isfinite(mean), np.clip(shape, 1.0 / _SHARPEST, _SHARPEST), 1.0)
