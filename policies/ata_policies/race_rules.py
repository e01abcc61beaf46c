"""Races whose size is fixed: more is started than needed, the first B results end the round, the rest is cancelled."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.checks import whole_number
from ata_gym.races import EVERYTHING, race_allocation
from ata_gym.simulation import Floats, Ints
from ata_policies.beliefs import Exposure
from ata_policies.hyperparameters import real
from ata_policies.policy import AllocationPolicy, Setting, State
from ata_policies.thompson import draw_means


def race_by_draws(
    state: State, fastest: ArrayLike, tasks: ArrayLike, shape: float | Floats, budget: int, extra: ArrayLike = 0
) -> Ints:
    """Let the fastest by Thompson draws race, and beside them all workers never tried, shape (E, n).

    The belief counts results K_i and time spent S_i on results and cancelled tasks: a draw is 1 / lambda, lambda ~
    Gamma(1 + c K_i, rate c S_i), see ``draw_means``. The 1 stands for the task that would come in next, so a worker
    whose tasks were all cancelled is drawn as fast as t with a chance of exp(-c S_i / t): it is tried again, ever more
    seldom. Nobody waits for a newcomer in a race, so workers never tried take part at once, with B tasks.

    Parameters
    ----------
    state
        Its belief has ``counts``, ``busy`` and ``untried``, as ``Exposure`` has.
    fastest, tasks
        As for ``race_allocation``; numbers or one per row.
    shape
        c as for ``draw_means``.
    budget
        Results B that the round needs.
    """
    untried = state.belief.untried()
    draws = draw_means(state.belief.counts, state.belief.busy, shape, state.round_keys(), prior=1.0)
    draws = np.where(untried, np.inf, draws)
    allocation = race_allocation(draws, fastest, tasks, budget)
    if np.any(extra):
        wider = np.minimum(np.add(fastest, extra), draws.shape[1])
        allocation = np.where(allocation > 0, allocation, race_allocation(draws, wider, EVERYTHING, budget))
    return np.where(untried, budget, allocation)


class _FixedRace(AllocationPolicy):
    """A race with a fixed number of workers and of tasks."""

    env_id = "ata_gym/TaskRace-v0"
    assumes = "exponential times in its draws only: it explores longer than needed where times vary less"
    fastest: int
    tasks: int
    shape: float

    def first_belief(self, rows: int) -> Exposure:
        """Cancelled tasks count."""
        return Exposure.empty(rows, self.setting.n)

    def allocate(self, state: State) -> Ints:
        """Race by the draws."""
        return race_by_draws(state, self.fastest, self.tasks, self.shape, self.setting.budget)


def _workers(name: str, given: int | None, default: int, n: int) -> int:
    """A number of workers that race, from 1 to n."""
    if given is None:
        return min(max(default, 1), n)
    value = whole_number(name, given)
    if value > n:
        raise ValueError(f"{name} must be at most the number of workers, {n}, not {value}")
    return value


class RaceFastest(_FixedRace):
    """The m fastest workers by Thompson draws race for everything: B tasks each.

    The first round is GTA's, since nobody was tried. With m = n it is GTA for good. Ours, after GTA.

    Parameters
    ----------
    m
        Workers in the race, from 1 to n; by default B / 3, rounded down.
    shape
        Of the draws: 1 / (coefficient of variation)^2 of the task times, see ``ata_policies.thompson.draw_means``.
    """

    source = "ours, after Rennala SGD (Tyurin and Richtárik, 2023) and Thompson, 1933"
    constants = "m = B / 3, shape 1"

    def __init__(self, setting: Setting, *, m: int | None = None, shape: float = 1.0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.fastest, self.tasks = _workers("m", m, setting.budget // 3, setting.n), EVERYTHING
        self.shape = real("shape", shape)


class RaceCaps(_FixedRace):
    """The m fastest workers race for B + d tasks: RAS by Thompson draws, at most B each.

    Tasks to spare insure against slow ones; caps keep workers from tasks that would hardly be done in time. Ours, after
    backup tasks.

    Parameters
    ----------
    m
        Workers in the race, from 1 to n; by default B / 3, rounded up.
    d
        Tasks to spare, at least 0; by default 2 B / 5, rounded down.
    shape
        As for ``RaceFastest``.
    """

    source = "ours, after Chen, Pan, Monga, Bengio and Jozefowicz, 2016, and Thompson, 1933"
    constants = "m = B / 3, d = 2 B / 5, shape 1"

    def __init__(
        self, setting: Setting, *, m: int | None = None, d: int | None = None, shape: float = 1.0, seed: int = 0
    ) -> None:
        super().__init__(setting, seed=seed)
        self.fastest = _workers("m", m, -(-setting.budget // 3), setting.n)
        spare = 2 * setting.budget // 5 if d is None else whole_number("d", d, least=0)
        self.tasks, self.shape = setting.budget + spare, real("shape", shape)


class RaceBackup(RaceCaps):
    """Backup tasks: RAS by Thompson draws hands out B + d tasks, of which the first B results are taken.

    Chen et al. start backup workers with one task each; here fast workers may get more than one. Ours, after them.

    Parameters
    ----------
    d
        Tasks to spare, at least 0; by default 2 B / 5, rounded down.
    shape
        As for ``RaceFastest``.
    """

    source = "ours, after Chen, Pan, Monga, Bengio and Jozefowicz, Revisiting Distributed Synchronous SGD, 2016"
    constants = "d = 2 B / 5, shape 1"

    def __init__(self, setting: Setting, *, d: int | None = None, shape: float = 1.0, seed: int = 0) -> None:
        super().__init__(setting, m=setting.n, d=d, shape=shape, seed=seed)
