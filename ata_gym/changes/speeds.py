"""Gradual and passing changes of speed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ata_gym.changes.chains import markov, stationary
from ata_gym.changes.change import Change, Now, number
from ata_gym.changes.conditions import Conditions, Floats, Ints


@dataclass(frozen=True)
class Periodic(Change):
    """A load that comes and goes: task times are multiplied by ``1 + amplitude * sin(2 pi (round / period + phase))``.

    Parameters
    ----------
    period
        In rounds.
    amplitude
        Below 1.
    apart
        How far the phases of the first worker and of the one after the last lie apart, in periods: 1 spreads the
        workers evenly over the period, 0 loads all at once.
    """

    period: float
    amplitude: float
    apart: float = 1.0

    timed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        number(self, "period", 0, above=True)
        number(self, "amplitude", 0, 1, below=True)
        number(self, "apart", 0, 1)

    def apply(self, conditions: Conditions, memory: Floats, round: Ints) -> Conditions:
        """The load of the round."""
        del memory
        n = conditions.factor.shape[1]
        phase = round[:, None] / self.period + self.apart * np.arange(n) / n
        return conditions._replace(factor=conditions.factor * (1 + self.amplitude * np.sin(2 * np.pi * phase)))


@dataclass(frozen=True)
class Walk(Change):
    """The logarithm of each worker's factor walks at random, and is reflected at its bounds.

    Parameters
    ----------
    step
        Each round it moves by a uniform amount of at most this.
    bound
        It stays within this of 0: ``log(2)`` keeps each worker between half and twice its pace. It starts at 0.
    """

    step: float
    bound: float

    slots: ClassVar[int] = 1

    def __post_init__(self) -> None:
        number(self, "bound", 0, 100, above=True)
        number(self, "step", 0, 2 * self.bound, above=True)

    def next(self, now: Now, memory: Floats) -> Floats:
        """One step, reflected."""
        moved = memory + self.step * (2 * now.uniforms() - 1)
        reflected = np.where(moved > self.bound, 2 * self.bound - moved, moved)
        return np.where(reflected < -self.bound, -2 * self.bound - reflected, reflected)

    def apply(self, conditions: Conditions, memory: Floats, round: Ints) -> Conditions:
        """The factor from its logarithm."""
        del round
        return conditions._replace(factor=conditions.factor * np.exp(memory[:, 0]))


@dataclass(frozen=True)
class OnOff(Change):
    """Stragglers that come and go: each worker is slow by spells, a Markov chain of its own that starts stationary.

    Parameters
    ----------
    factor
        Multiplies the task times of a slow worker.
    starts, ends
        Probability in each round that a spell starts, or ends: a share starts / (starts + ends) is slow, for 1 / ends
        rounds on average.
    """

    factor: float
    starts: float
    ends: float

    slots: ClassVar[int] = 1

    def __post_init__(self) -> None:
        number(self, "factor", 0, above=True)
        number(self, "starts", 0, 1, above=True)
        number(self, "ends", 0, 1, above=True)

    def first(self, now: Now) -> Floats:
        """As likely slow as in the long run."""
        return stationary(now, self.starts, self.ends)

    def next(self, now: Now, memory: Floats) -> Floats:
        """Spells start and end."""
        return markov(now, memory, self.starts, self.ends)

    def apply(self, conditions: Conditions, memory: Floats, round: Ints) -> Conditions:
        """Slow workers are slow."""
        del round
        return conditions._replace(factor=np.where(memory[:, 0] > 0, self.factor, 1.0) * conditions.factor)
