"""Workers that leave, die and return. A round still gives exactly B results.

``ata_gym.simulation.rounds.race_round`` says what becomes of their tasks; for dispatch, where these are not handed on,
``ata_gym.simulation.dispatch.dispatch_step`` does. If all workers would die, the last one (of equals the lowest) lives.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ata_gym.changes.change import COUNT, NON_NEGATIVE, POSITIVE, PROBABILITY, WHOLE, Change, RoundContext, TwoStates
from ata_gym.changes.conditions import Conditions
from ata_gym.typing import Floats


def _with_deaths(conditions: Conditions, dies: Floats, deadline: float) -> Conditions:
    first, last = np.minimum(conditions.dies, dies), np.maximum(conditions.deadline, deadline)
    return conditions._replace(dies=first, deadline=last)


@dataclass(frozen=True)
class Spot(TwoStates):
    """Workers leave and return between rounds, as spot instances do; each by a Markov chain that starts stationary."""

    leaves: float = field(metadata=PROBABILITY)  # probability in each round that a worker leaves
    returns: float = field(metadata=PROBABILITY)  # ... or returns: a share leaves / (leaves + returns) is away
    deadline: float = field(default=0.0, metadata=NON_NEGATIVE)
    """From this time of a round on, tasks of workers that are away are handed on."""
    rack: int = field(default=1, metadata=COUNT)  # so many workers in turn share one state

    faulty: ClassVar[bool] = True

    def chain(self) -> tuple[float, float]:
        return self.leaves, self.returns

    def longest(self, time: float) -> float:
        return max(time, self.deadline)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return _with_deaths(conditions, np.where(memory[:, 0] > 0, 0.0, np.inf), self.deadline)


@dataclass(frozen=True)
class Crash(Change):
    """Workers die in the middle of a round, and return some rounds later.

    If the round ends before its death, a worker dies between rounds, so that its absence is the same for every policy.
    """

    probability: float = field(metadata=PROBABILITY)  # in each round that a worker which is there dies
    within: float = field(metadata=POSITIVE)  # it dies at a uniform time between the round's start and this one
    away: int = field(metadata=WHOLE)  # how many whole rounds after that it is away
    deadline: float = field(default=0.0, metadata=NON_NEGATIVE)
    """From this time of a round on, and not before a worker's death, its tasks are handed on."""

    slots: ClassVar[int] = 2  # rounds that it is still away, with this one, and when it dies in this one
    faulty: ClassVar[bool] = True

    def ranges(self, n: int) -> list[tuple[float, float]]:
        return [(0.0, self.away), (0.0, np.inf)]

    def first(self, now: RoundContext) -> Floats:
        return self._fate(now, np.zeros((len(now.keys), now.n)))

    def next(self, now: RoundContext, memory: Floats) -> Floats:
        left, dies = memory[:, 0], memory[:, 1]
        return self._fate(now, np.where((left == 0) & np.isfinite(dies), self.away, np.maximum(left - 1, 0)))

    def _fate(self, now: RoundContext, left: Floats) -> Floats:
        u = now.uniforms(2)
        dies = np.where(u[:, 0] < self.probability, self.within * u[:, 1], np.inf)
        return np.stack([left, np.where(left > 0, 0.0, dies)], axis=1)

    def longest(self, time: float) -> float:
        return max(time, self.within, self.deadline)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        return _with_deaths(conditions, memory[:, 1], self.deadline)
