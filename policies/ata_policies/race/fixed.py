"""Races of a fixed size.

More tasks are started than needed, and the first B results end the round.
"""

import numpy as np

from ata_gym.typing import Ints
from ata_gym.utils.validation import real, whole_number
from ata_policies.allocation.estimates.thompson import draw_means
from ata_policies.beliefs.belief import NoPlan
from ata_policies.beliefs.moments import Exposure
from ata_policies.planning.races.search import EVERYTHING, race_allocation
from ata_policies.policy import AllocationPolicy, State
from ata_policies.setting import Setting


class FixedRace(AllocationPolicy[Exposure, NoPlan]):
    """A race of a fixed size: the fastest workers by Thompson draws share out some tasks.

    With K_i results in the time S_i, spent on results and cancelled tasks, a draw is 1 / lambda,
    lambda ~ Gamma(1 + c K_i, rate c S_i), see ``draw_means``, where c is the ``shape``. The 1
    stands for the task that would come in next, so a worker whose tasks were all cancelled is drawn
    as fast as t with probability exp(-c S_i / t): it is tried again, ever more seldom. No round of
    a race waits for a worker never tried, so each starts B tasks at once.

    Args:
        setting: What the policy may know.
        fastest: Workers in the race.
        tasks: Tasks that they share out.
        shape: The shape c of the draws, above 0.
        seed: Of the draws.
    """

    belief = Exposure
    env_id = "ata_gym/TaskRace-v0"
    assumes = (
        "exponential times in its draws only: it explores longer than needed where times vary less"
    )

    def __init__(self, setting: Setting, fastest: int, tasks: int, shape: float, seed: int) -> None:
        super().__init__(setting, seed=seed)
        self.fastest = fastest
        self.tasks = tasks
        self.shape = real("shape", shape)

    def allocate(self, state: State[Exposure, NoPlan]) -> Ints:
        """Start the fastest by the draws, and all workers never tried."""
        untried = state.belief.untried()
        budget = self.setting.budget
        draws = draw_means(
            state.belief.counts,
            state.belief.busy,
            self.shape,
            state.round_keys(),
            prior=1.0,
        )
        race = race_allocation(np.where(untried, np.inf, draws), self.fastest, self.tasks, budget)
        return np.where(untried, budget, race)


def _workers(m: int | None, default: int, n: int) -> int:
    """Return the number of workers in a race, which must be at most n."""
    if m is None:
        return min(max(default, 1), n)
    if whole_number("m", m) > n:
        raise ValueError(f"m must be at most the number of workers, {n}, not {m}")
    return int(m)


class RaceFastest(FixedRace):
    """The m fastest workers by Thompson draws start B tasks each.

    The first round is GTA's, since no worker was tried; with m = n all rounds are. Ours, after GTA.

    Args:
        m: Workers in the race, from 1 to n; by default B / 3, rounded down.
        shape: 1 / (coefficient of variation)^2 of the task times, for the draws (``draw_means``).
    """

    source = "ours, after Rennala SGD (Tyurin and Richtárik, 2023) and Thompson, 1933"
    constants = "m = B / 3, shape 1"

    def __init__(
        self,
        setting: Setting,
        *,
        m: int | None = None,
        shape: float = 1.0,
        seed: int = 0,
    ) -> None:
        workers = _workers(m, setting.budget // 3, setting.n)
        super().__init__(setting, workers, EVERYTHING, shape, seed)


class RaceCaps(FixedRace):
    """The m fastest workers by Thompson draws share out B + d tasks by RAS, at most B each.

    The d tasks to spare insure against slow results; caps keep workers from tasks that would hardly
    be done in time. Ours, after backup tasks.

    Args:
        m: Workers in the race, from 1 to n; by default B / 3, rounded up.
        d: Tasks to spare, at least 0; by default 2 B / 5.
        shape: As for ``RaceFastest``.
    """

    source = "ours, after Chen, Pan, Monga, Bengio and Jozefowicz, 2016, and Thompson, 1933"
    constants = "m = B / 3, d = 2 B / 5, shape 1"

    def __init__(
        self,
        setting: Setting,
        *,
        m: int | None = None,
        d: int | None = None,
        shape: float = 1.0,
        seed: int = 0,
    ) -> None:
        workers = _workers(m, -(-setting.budget // 3), setting.n)
        if d is None:
            spare = 2 * setting.budget // 5
        else:
            spare = whole_number("d", d, least=0)
        super().__init__(setting, workers, setting.budget + spare, shape, seed)


class RaceBackup(RaceCaps):
    """Backup tasks: all workers share out B + d tasks, and the first B results are taken.

    The tasks are shared out by RAS on Thompson draws. Chen et al. start backup workers with one
    task each; here fast workers may get more than one. Ours, after them.

    Args:
        d: As for ``RaceCaps``.
        shape: As for ``RaceFastest``.
    """

    source = (
        "ours, after Chen, Pan, Monga, Bengio and Jozefowicz, Revisiting Distributed Synchronous"
        " SGD, 2016"
    )
    constants = "d = 2 B / 5, shape 1"

    def __init__(
        self,
        setting: Setting,
        *,
        d: int | None = None,
        shape: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(setting, m=setting.n, d=d, shape=shape, seed=seed)
