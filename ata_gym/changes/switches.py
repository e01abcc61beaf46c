"""Abrupt changes: workers exchange their distributions, or become faster or slower from one round to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ata_gym.changes.change import POSITIVE, Change, RoundContext
from ata_gym.changes.conditions import Conditions
from ata_gym.typing import Floats
from ata_gym.utils.validation import whole_number


def _whole_numbers(name: str, values: Sequence[int], least: int) -> tuple[int, ...]:
    return tuple(whole_number(f"each of {name}", value, least) for value in np.atleast_1d(np.asarray(values, object)))


@dataclass(frozen=True)
class Switch(Change):
    """All workers exchange their distributions, every so many rounds or in given ones.

    Parameters
    ----------
    every
        Rounds between two switches; or else
    at
        the rounds of the switches, counted from 0.
    permutation
        Worker i gets the distribution that worker ``permutation[i]`` had. By default a fresh random permutation each
        time, all equally likely.

    Examples
    --------
    >>> import gymnasium, ata_gym
    >>> pool = {"family": "deterministic", "scale": [1.0, 2.0, 3.0]}
    >>> changes = [Switch(at=(1,), permutation=(2, 0, 1))]
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=pool, changes=changes, budget=3).unwrapped
    >>> _ = env.reset(seed=0)
    >>> _ = env.step(np.array([1, 1, 1]))
    >>> env.means()
    array([3., 1., 2.])
    """

    every: int | None = None
    at: tuple[int, ...] = ()
    permutation: tuple[int, ...] | None = None

    slots: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", _whole_numbers("at of Switch", self.at, 1))
        if (self.every is None) == (not self.at):
            raise ValueError("Switch needs either every=... (rounds between two switches) or at=(...) (their rounds)")
        if self.every is not None:
            object.__setattr__(self, "every", whole_number("every of Switch", self.every))
        if self.permutation is not None:
            order = _whole_numbers("permutation of Switch", self.permutation, 0)
            if sorted(order) != list(range(len(order))):
                raise ValueError(f"permutation of Switch must hold each worker from 0 once, not {order}")
            object.__setattr__(self, "permutation", order)

    def fit(self, n: int) -> None:
        """A permutation has one entry per worker."""
        if self.permutation is not None and len(self.permutation) != n:
            raise ValueError(f"permutation of Switch must hold each of {n} workers once, not {self.permutation}")

    def first(self, now: RoundContext) -> Floats:
        """In the first round each worker has its own distribution."""
        return np.tile(np.arange(now.n, dtype=np.float64), (len(now.keys), 1, 1))

    def next(self, now: RoundContext, memory: Floats) -> Floats:
        """Permute, in the rows whose round has a switch."""
        due = np.isin(now.round, self.at) if self.every is None else now.round % self.every == 0
        if not due.any():
            return memory
        if self.permutation is None:
            permuted = np.argsort(now.uniforms(), axis=2).astype(np.float64)
        else:
            permuted = memory[:, :, list(self.permutation)]
        return np.where(due[:, None, None], permuted, memory)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        """Each worker has the distribution of the one that the memory names."""
        return conditions._replace(
            distribution=np.take_along_axis(conditions.distribution, memory[:, 0].astype(np.int64), axis=1)
        )


@dataclass(frozen=True)
class Jump(Change):
    """From one round on, some workers' task times are multiplied by a factor.

    Parameters
    ----------
    at
        The first such round, counted from 0.
    workers
        Which workers, counted from 0.
    factor
        Multiplies their task times: 0.05 makes them 20 times faster.
    until
        The first round in which they are as before; None: they stay so.
    """

    at: int
    workers: tuple[int, ...]
    factor: float = field(metadata=POSITIVE)
    until: int | None = None

    timed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "at", whole_number("at of Jump", self.at, 0))
        object.__setattr__(self, "workers", _whole_numbers("workers of Jump", self.workers, 0))
        if self.until is not None:
            object.__setattr__(self, "until", whole_number("until of Jump", self.until, self.at + 1))

    def fit(self, n: int) -> None:
        """The workers must be among n."""
        if max(self.workers, default=0) >= n:
            raise ValueError(f"workers of Jump must be below {n}, the number of workers, not {max(self.workers)}")

    def longest(self, time: float) -> float:
        """Of the workers that become slower, if the factor makes them so."""
        return time * max(1.0, self.factor)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        """Multiply in the rows whose round is in the range."""
        round = conditions.round
        now = (round >= self.at) & (True if self.until is None else round < self.until)
        factor = conditions.factor.copy()
        factor[:, list(self.workers)] *= np.where(now, self.factor, 1.0)[:, None]
        return conditions._replace(factor=factor)
