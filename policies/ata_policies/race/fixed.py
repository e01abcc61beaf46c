"""Races of a fixed size: more tasks are started than needed, and the first B results end the round.

The best of them is the oracle's, which knows the distributions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import real, whole_number
from ata_policies.allocation.estimates.thompson import draw_means
from ata_policies.beliefs.moments import Exposure
from ata_policies.planning.race_search import best_race
from ata_policies.planning.races import EVERYTHING, race_allocation
from ata_policies.policy import AllocationPolicy, Setting, State


def race_by_draws(
    state: State, fastest: ArrayLike, tasks: ArrayLike, shape: float | Floats, budget: int, extra: ArrayLike = 0
) -> Ints:
    """Start the workers that are fastest by Thompson draws, and all workers never tried, shape (E, n).

    The belief counts results K_i and the time S_i spent on results and cancelled tasks: a draw is 1 / lambda, lambda ~
    Gamma(1 + c K_i, rate c S_i), see ``draw_means``. The 1 stands for the task that would come in next, so a worker
    whose tasks were all cancelled is drawn as fast as t with probability exp(-c S_i / t): it is tried again, ever more
    seldom. No round of a race waits for a worker never tried, so each starts B tasks at once.

    The belief is an ``Exposure``, or has what that has; ``fastest`` and ``tasks`` are as for ``race_allocation``, c
    is ``shape``. ``extra`` workers after the fastest start B tasks each. All of these are numbers, or one per row.
    """
    untried = state.belief.untried()
    draws = draw_means(state.belief.counts, state.belief.busy, shape, state.round_keys(), prior=1.0)
    draws = np.where(untried, np.inf, draws)
    allocation = race_allocation(draws, fastest, tasks, budget)
    if np.any(extra):
        wider = np.minimum(np.add(fastest, extra), draws.shape[1])
        explored = (allocation == 0) & (np.asarray(extra) > 0)[..., None]
        allocation = np.where(explored, race_allocation(draws, wider, EVERYTHING, budget), allocation)
    return np.where(untried, budget, allocation)


class FixedRace(AllocationPolicy):
    """The ``fastest`` workers by Thompson draws share out ``tasks``: what the races of a fixed size have in common."""

    belief = Exposure
    env_id = "ata_gym/TaskRace-v0"
    assumes = "exponential times in its draws only: it explores longer than needed where times vary less"

    def __init__(self, setting: Setting, fastest: int, tasks: int, shape: float, seed: int) -> None:
        super().__init__(setting, seed=seed)
        self.fastest, self.tasks, self.shape = fastest, tasks, real("shape", shape)

    def allocate(self, state: State) -> Ints:
        """Start the fastest by the draws."""
        return race_by_draws(state, self.fastest, self.tasks, self.shape, self.setting.budget)


def _workers(m: int | None, default: int, n: int) -> int:
    """A number of workers in the race, from 1 to n."""
    if m is None:
        return min(max(default, 1), n)
    if whole_number("m", m) > n:
        raise ValueError(f"m must be at most the number of workers, {n}, not {m}")
    return int(m)


class RaceFastest(FixedRace):
    """The m fastest workers by Thompson draws start B tasks each.

    The first round is GTA's, since no worker was tried; with m = n all rounds are. Ours, after GTA.

    - ``m``: workers in the race, from 1 to n; by default B / 3, rounded down.
    - ``shape``: of the draws: 1 / (coefficient of variation)^2 of the task times, see ``draw_means``.
    """

    source = "ours, after Rennala SGD (Tyurin and Richtárik, 2023) and Thompson, 1933"
    constants = "m = B / 3, shape 1"

    def __init__(self, setting: Setting, *, m: int | None = None, shape: float = 1.0, seed: int = 0) -> None:
        super().__init__(setting, _workers(m, setting.budget // 3, setting.n), EVERYTHING, shape, seed)


class RaceCaps(FixedRace):
    """The m fastest workers by Thompson draws share out B + d tasks by RAS, at most B each.

    The d tasks to spare insure against slow results; caps keep workers from tasks that would hardly be done in time.
    Ours, after backup tasks.

    - ``m``, ``d``: workers in the race, from 1 to n; by default B / 3, rounded up. Tasks to spare, at least 0; by
      default 2 B / 5.
    - ``shape``: as for ``RaceFastest``.
    """

    source = "ours, after Chen, Pan, Monga, Bengio and Jozefowicz, 2016, and Thompson, 1933"
    constants = "m = B / 3, d = 2 B / 5, shape 1"

    def __init__(
        self, setting: Setting, *, m: int | None = None, d: int | None = None, shape: float = 1.0, seed: int = 0
    ) -> None:
        workers = _workers(m, -(-setting.budget // 3), setting.n)
        spare = 2 * setting.budget // 5 if d is None else whole_number("d", d, least=0)
        super().__init__(setting, workers, setting.budget + spare, shape, seed)


class RaceBackup(RaceCaps):
    """Backup tasks: all workers share out B + d tasks by RAS on Thompson draws, and the first B results are taken.

    Chen et al. start backup workers with one task each; here fast workers may get more than one. Ours, after them.

    - ``d``, ``shape``: as for ``RaceCaps``.
    """

    source = "ours, after Chen, Pan, Monga, Bengio and Jozefowicz, Revisiting Distributed Synchronous SGD, 2016"
    constants = "d = 2 B / 5, shape 1"

    def __init__(self, setting: Setting, *, d: int | None = None, shape: float = 1.0, seed: int = 0) -> None:
        super().__init__(setting, m=setting.n, d=d, shape=shape, seed=seed)


class RaceOracle(AllocationPolicy):
    """The best race for the price with the distributions known: E[round time] + price * E[worker time] is least.

    It is found before the first round, by ``ata_policies.planning.race_search.best_race``, and kept.

    - ``tolerance``: at least 0: of the races that cost at most 1 + tolerance times the least it takes one with less
      worker time.
    """

    env_id = "ata_gym/TaskRace-v0"
    source = "ours"
    constants = "none"
    knows = "the distributions"
    assumes = "independent times"
    priced = True

    def __init__(self, setting: Setting, *, tolerance: float = 0.0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.fixed = best_race(setting.known_pool("race-oracle"), setting.budget, setting.price, tolerance).allocation

    def allocate(self, state: State) -> Ints:
        """The same race in every row."""
        return np.tile(self.fixed, (len(state.round), 1))
