"""Workers that leave, die and return, while a round still gives exactly B results.

``ata_gym.simulation.rounds.race_round`` says what happens to their tasks. In dispatch their tasks
are not handed on, see ``ata_gym.simulation.dispatch.dispatch_step``. If all workers would die, the
last one (of equals the lowest) lives.
"""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from ata_gym.changes.change import (
    COUNT,
    NON_NEGATIVE,
    POSITIVE,
    PROBABILITY,
    WHOLE,
    Change,
    RoundContext,
    TwoStates,
)
from ata_gym.changes.conditions import Conditions
from ata_gym.typing import Floats


def with_deaths(conditions: Conditions, death_time: Floats, deadline: float) -> Conditions:
    """The conditions with workers that die, at the latest, at these times.

    Args:
        conditions: The conditions without them.
        death_time: When each worker dies in the round, shape (E, n); inf where it lives.
        deadline: The time from which tasks of dead workers are handed on.
    """
    first_death = np.minimum(conditions.death_time, death_time)
    last_deadline = np.maximum(conditions.deadline, deadline)
    return conditions._replace(death_time=first_death, deadline=last_deadline)


class _CrashColumns(NamedTuple):
    """The columns of the memory of ``Crash``."""

    rounds_away: int = 0
    """The rounds for which a worker is still away, with this one."""
    death_time: int = 1
    """When it dies in this round; inf where it lives."""


_CRASH = _CrashColumns()


@dataclass(frozen=True)
class Spot(TwoStates):
    """Workers leave and return between rounds, as spot instances do.

    Each does so by a Markov chain that starts stationary. A share leaves / (leaves + returns) of
    the workers is away.
    """

    leaves: float = field(metadata=PROBABILITY)
    """The probability in each round that a worker leaves."""
    returns: float = field(metadata=PROBABILITY)
    """The probability in each round that a worker that is away returns."""
    deadline: float = field(default=0.0, metadata=NON_NEGATIVE)
    """The time of a round from which tasks of workers that are away are handed on."""
    rack: int = field(default=1, metadata=COUNT)
    """The number of consecutive workers that share one state."""

    faulty: ClassVar[bool] = True

    def probabilities(self) -> tuple[float, float]:
        return self.leaves, self.returns

    def longest_time(self, time: float, tasks: int) -> float:
        return max(time, self.deadline)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return with_deaths(conditions, np.where(memory[:, 0] > 0, 0.0, np.inf), self.deadline)


@dataclass(frozen=True)
class Crash(Change):
    """Workers die in the middle of a round, and return some rounds later.

    If the round ends before a worker's death, the worker dies between rounds, so that its absence
    is the same for every policy.
    """

    probability: float = field(metadata=PROBABILITY)
    """The probability in each round that a worker that is present dies."""
    within: float = field(metadata=POSITIVE)
    """The latest time of death in a round; deaths are uniform between 0 and this time."""
    away: int = field(metadata=WHOLE)
    """The number of whole rounds after its death that a worker is away."""
    deadline: float = field(default=0.0, metadata=NON_NEGATIVE)
    """The time of a round from which a dead worker's tasks are handed on.

    They are not handed on before the worker's death.
    """

    slots: ClassVar[int] = len(_CRASH)
    """The columns of ``_CrashColumns``."""
    faulty: ClassVar[bool] = True

    def ranges(self, n: int) -> list[tuple[float, float]]:
        return [(0.0, self.away), (0.0, np.inf)]

    def first_memory(self, context: RoundContext) -> Floats:
        return self._deaths(context, np.zeros((len(context.keys), context.n)))

    def next_memory(self, context: RoundContext, memory: Floats) -> Floats:
        rounds_away = memory[:, _CRASH.rounds_away]
        death_time = memory[:, _CRASH.death_time]
        # A worker that was present and died in the last round is away from now on.
        died = (rounds_away == 0) & np.isfinite(death_time)
        return self._deaths(context, np.where(died, self.away, np.maximum(rounds_away - 1, 0)))

    def _deaths(self, context: RoundContext, rounds_away: Floats) -> Floats:
        u = context.uniforms(2)
        death_time = np.where(u[:, 0] < self.probability, self.within * u[:, 1], np.inf)
        return np.stack([rounds_away, np.where(rounds_away > 0, 0.0, death_time)], axis=1)

    def longest_time(self, time: float, tasks: int) -> float:
        return max(time, self.within, self.deadline)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return with_deaths(conditions, memory[:, _CRASH.death_time], self.deadline)
