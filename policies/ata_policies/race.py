"""Races whose size follows from the price of worker time: learned, and with the laws known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.checks import whole_number
from ata_gym.planning import due
from ata_gym.races import EVERYTHING, best_race, choose_race
from ata_gym.simulation import Floats, Ints
from ata_policies.laws import LawBelief, own_sample, sample
from ata_policies.policy import AllocationPolicy, Observation, Setting, State
from ata_policies.race_rules import race_by_draws

_EARLY = (2, 4)
"""Rounds with a plan besides those that are due: the first results tell most."""
_SLICES = 64
_SHARPEST = 16.0


class RacePlan(NamedTuple):
    """The race that was chosen last in each row."""

    solved: Ints
    """(E,) in which round; 0 before the first."""
    fastest: Ints
    """(E,) workers in the race."""
    tasks: Ints
    """(E,) tasks shared out among them."""
    shape: Floats
    """(E, n) 1 / (coefficient of variation)^2 of each worker's task times."""


class Race(AllocationPolicy):
    """Learns the laws, and chooses by the price how many of the fastest race, and for how many tasks.

    When due, in ever longer intervals, it chooses the race of m workers and B + d tasks (as ``RaceCaps``; from exactly
    B tasks to everything) that has the least

        E[round time] + price * E[worker time]

    in rounds played on samples of the learned laws (see ``ata_gym.races.choose_race``); these are learned from finished
    and cancelled tasks. In between, Thompson draws tell who the fastest are. The first round is GTA's.

    Of the races within ``tolerance`` of the least cost it takes the one with the least worker time: at price 0 nobody
    wants to pay for nothing, and the fastest race, GTA, is hardly faster than that of the best few.

    In round k about ``explore`` m / sqrt(k) more workers take part: else a worker that was mostly cancelled would not
    become known well enough to be asked for. At the best m they cost little, since they also speed the round up. Ours.

    A plan costs some milliseconds per row (n = 51, B = 23) and is made 27 times in the first 2,000 rounds: there a
    round costs some 20 times as much as ATA's, over 20,000 rounds 7 times, and in the long run 4 times.

    Parameters
    ----------
    tolerance
        At least 0; as a share of the least cost.
    explore
        At least 0.
    replicates
        Rounds played with each candidate, at least 1.
    """

    env_id = "ata_gym/TaskRace-v0"
    source = "ours, after Thompson, 1933"
    constants = "tolerance 0.5 %, explore 1/2, 64 replicates"
    assumes = "laws that stay as they are"
    priced = True

    def __init__(
        self,
        setting: Setting,
        *,
        tolerance: float = 0.005,
        explore: float = 0.5,
        replicates: int = 64,
        seed: int = 0,
    ) -> None:
        super().__init__(setting, seed=seed)
        for name, value in (("tolerance", tolerance), ("explore", explore)):
            if not 0.0 <= value < np.inf:
                raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}")
        self.tolerance, self.explore = float(tolerance), float(explore)
        self.replicates = whole_number("replicates", replicates)

    def first_belief(self, rows: int) -> LawBelief:
        """The whole laws are learned."""
        return LawBelief.empty(rows, self.setting.n)

    def first_plan(self, rows: int) -> RacePlan:
        """Everything to everybody, as GTA."""
        ones = np.ones(rows, np.int64)
        return RacePlan(0 * ones, self.setting.n * ones, EVERYTHING * ones, np.ones((rows, self.setting.n)))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Plan where it is due, then race."""
        rows = np.flatnonzero(due(state.round, state.plan.solved) | np.isin(state.round, _EARLY))
        if rows.size:
            state = state._replace(plan=self._planned(state, rows))
        return super().act(state, seen)

    def allocate(self, state: State) -> Ints:
        """Race by the draws."""
        plan = state.plan
        until = [np.floor(2.0 * self.explore * plan.fastest * np.sqrt(k)) for k in (state.round - 1, state.round)]
        extra = (until[1] - until[0]).astype(np.int64)
        return race_by_draws(state, plan.fastest, plan.tasks, plan.shape, self.setting.budget, extra)

    def _planned(self, state: State, rows: Ints) -> RacePlan:
        """The plan, made anew in some rows."""
        plan = RacePlan(*(part.copy() for part in state.plan))
        belief = state.belief.rows(rows)
        times, tried = own_sample(belief, _SLICES), ~belief.untried()
        plan.solved[rows], plan.shape[rows] = state.round[rows], _shape(sample(belief, _SLICES))
        centre = plan.shape[rows] * belief.busy / (1.0 + plan.shape[rows] * belief.counts)  # of the draws
        for e, law, score, known in zip(rows.tolist(), times, centre, tried, strict=True):
            choice = choose_race(
                law[known],
                score[known],
                self.setting.budget,
                self.setting.price,
                tolerance=self.tolerance,
                replicates=self.replicates,
                start=(int(plan.fastest[e]), int(plan.tasks[e])),
            )
            plan.fastest[e], plan.tasks[e] = choice.fastest, choice.tasks
        return plan


def _shape(times: Floats) -> Floats:
    """1 / (coefficient of variation)^2 of samples, within 1/16 and 16; 1 for a worker never tried."""
    mean, variance = times.mean(axis=-1), times.var(axis=-1)
    shape = np.divide(mean**2, variance, out=np.full_like(mean, _SHARPEST), where=variance > 0.0)
    known: Floats = np.where(np.isfinite(mean), np.clip(shape, 1.0 / _SHARPEST, _SHARPEST), 1.0)
    return known


class RaceOracle(AllocationPolicy):
    """The best race for the price with the laws known: E[round time] + price * E[worker time] is least.

    It is found before the first round, by ``ata_gym.races.best_race``, and kept.

    Parameters
    ----------
    tolerance
        At least 0: of the races that cost at most 1 + tolerance times the least it takes one with less worker time.
    """

    env_id = "ata_gym/TaskRace-v0"
    source = "ours"
    constants = "none"
    knows = "the laws"
    assumes = "independent times"
    priced = True

    def __init__(self, setting: Setting, *, tolerance: float = 0.0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        if setting.pool is None:
            raise ValueError("race-oracle knows the true laws: it needs an env whose pool is known")
        self.fixed = best_race(setting.pool, setting.budget, setting.price, tolerance).allocation

    def allocate(self, state: State) -> Ints:
        """The same race in every row."""
        return np.tile(self.fixed, (len(state.round), 1))
