"""Workers that leave, die and return. A round does without them, and still gives exactly B results.

The task that a worker runs when it dies is lost. There is no entry for it in ``worker`` and ``time``: its time so far
is the worker's ``elapsed``, as if it were cancelled, and counts as worker time; ``info["lost"]`` counts such tasks.
From the deadline on, what those who live will not do by themselves is handed to the living worker that became idle
first. Who is away from the start loses nothing. If nobody would live, who would die last (of equals the lowest worker)
does not die. All of it is told in ``ata_gym.simulation.race_round``, and for dispatch, where nothing is handed on, in
``dispatch_step``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ata_gym.changes.chains import markov, stationary
from ata_gym.changes.change import Change, Now, number
from ata_gym.changes.conditions import Conditions, Floats, Ints
from ata_gym.checks import whole_number


def _also(conditions: Conditions, dies: Floats, deadline: float) -> Conditions:
    """Of several faults the first death and the last deadline hold."""
    return conditions._replace(dies=np.minimum(conditions.dies, dies), deadline=max(conditions.deadline, deadline))


@dataclass(frozen=True)
class Spot(Change):
    """Workers leave and return between rounds, as spot machines do; each is a Markov chain that starts stationary.

    Parameters
    ----------
    leaves, returns
        Probability in each round that a worker leaves, or returns: a share leaves / (leaves + returns) is away.
    deadline
        From this time of a round on the tasks of those who are away are handed on.
    """

    leaves: float
    returns: float
    deadline: float = 0.0

    slots: ClassVar[int] = 1
    faulty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        number(self, "leaves", 0, 1, above=True)
        number(self, "returns", 0, 1, above=True)
        number(self, "deadline", 0)

    def first(self, now: Now) -> Floats:
        """As likely away as in the long run."""
        return stationary(now, self.leaves, self.returns)

    def next(self, now: Now, memory: Floats) -> Floats:
        """Some leave, some return."""
        return markov(now, memory, self.leaves, self.returns)

    def apply(self, conditions: Conditions, memory: Floats, round: Ints) -> Conditions:
        """Who is away is dead from the start."""
        del round
        return _also(conditions, np.where(memory[:, 0] > 0, 0.0, np.inf), self.deadline)


@dataclass(frozen=True)
class Mortal(Change):
    """Workers die in the middle of a round, and return some rounds later.

    Parameters
    ----------
    probability
        With which a worker that is there dies in a round.
    within
        It does so at a uniform time from the round's start to this one. If the round is over before, it dies between
        rounds: its absence is the same for every policy.
    away
        For how many whole rounds after that it is away.
    deadline
        From this time of a round on, and not before their death, the tasks of the dead are handed on.
    """

    probability: float
    within: float
    away: int
    deadline: float = 0.0

    slots: ClassVar[int] = 2  # the rounds that it stays away, with this one, and when it dies in this one
    faulty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        number(self, "probability", 0, 1, above=True)
        number(self, "within", 0, above=True)
        object.__setattr__(self, "away", whole_number("away of Mortal", self.away, 0))
        number(self, "deadline", 0)

    def first(self, now: Now) -> Floats:
        """At first all are there."""
        return self._fate(now, np.zeros((len(now.keys), now.n)))

    def next(self, now: Now, memory: Floats) -> Floats:
        """Who died in the last round stays away; who was away comes nearer."""
        left, dies = memory[:, 0], memory[:, 1]
        return self._fate(now, np.where((left == 0) & np.isfinite(dies), self.away, np.maximum(left - 1, 0)))

    def _fate(self, now: Now, left: Floats) -> Floats:
        u = now.uniforms(2)
        dies = np.where(u[:, 0] < self.probability, self.within * u[:, 1], np.inf)
        return np.stack([left, np.where(left > 0, 0.0, dies)], axis=1)

    def apply(self, conditions: Conditions, memory: Floats, round: Ints) -> Conditions:
        """Who is away is dead from the start."""
        del round
        return _also(conditions, memory[:, 1], self.deadline)
