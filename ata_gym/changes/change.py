"""What a change is, and what it may draw on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ata_gym import kernels
from ata_gym.changes.conditions import Conditions, Floats, Ints


class Now(NamedTuple):
    """The coming round of E rows, as one change of their pool sees it."""

    keys: kernels.Keys
    """(E,) each row's key"""
    episode: Ints
    """(E,) counted from 0"""
    round: Ints
    """(E,) counted from 0"""
    place: int
    """of the change among those of its pool"""
    n: int
    """how many workers there are"""

    def uniforms(self, kinds: int = 1) -> Floats:
        """Fresh uniform numbers strictly between 0 and 1, shape (E, kinds, n): the same whatever a policy does."""
        numbers = np.empty((len(self.keys), kinds * self.n))
        kernels.fill_uniforms_of_round(self.keys, self.episode, self.round, self.place, numbers)
        return numbers.reshape(-1, kinds, self.n)


@dataclass(frozen=True)
class Change(ABC):
    """One way in which workers change from round to round.

    Its fields are plain numbers and tuples. What is random goes by way of a memory, one array per row and worker, so
    that the conditions of a round are a function of the memory and the round.
    """

    slots: ClassVar[int] = 0
    """Numbers per worker that it remembers."""
    timed: ClassVar[bool] = False
    """Whether the conditions depend on the round as well as on the memory."""
    single: ClassVar[bool] = False
    """Whether a pool can have one only."""

    faulty: ClassVar[bool] = False
    """Whether workers may die of it."""

    def fit(self, n: int) -> None:  # noqa: B027 - most fit any
        """Raise ValueError if it does not fit a pool of n workers."""

    def first(self, now: Now) -> Floats:
        """What it remembers in the first round of an episode, shape (E, slots, n)."""
        return np.zeros((len(now.keys), self.slots, now.n))

    def next(self, now: Now, memory: Floats) -> Floats:
        """What it remembers in the coming round, from what it did in the last; ``memory`` itself where that stays."""
        del now
        return memory

    @abstractmethod
    def apply(self, conditions: Conditions, memory: Floats, round: Ints) -> Conditions:
        """The conditions, changed."""

    def to_data(self) -> dict[str, Any]:
        """Its name and fields, as plain data."""
        return {"change": type(self).__name__.lower(), **asdict(self)}


def number(
    owner: Change, name: str, low: float, high: float = np.inf, *, above: bool = False, below: bool = False
) -> None:
    """Turn a field into a float, or raise unless it is a number from ``low`` to ``high`` (above and below them)."""
    value: Any = getattr(owner, name)
    okay = isinstance(value, int | float | np.number) and not isinstance(value, bool) and np.isfinite(value)
    if not okay or value < low or value > high or (above and value == low) or (below and value == high):
        least = f"{'above' if above else 'of at least'} {low:g}"
        most = "" if high == np.inf else f" and {'below' if below else 'at most'} {high:g}"
        raise ValueError(f"{name} of {type(owner).__name__} must be a number {least}{most}, not {value!r}")
    object.__setattr__(owner, name, float(value))
