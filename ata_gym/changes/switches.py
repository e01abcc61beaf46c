"""Abrupt changes: workers exchange their distributions, jump to another speed, or are all drawn anew."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from ata_gym.changes.change import COUNT, POSITIVE, WHOLE, Change, RoundContext
from ata_gym.changes.conditions import Conditions
from ata_gym.pools.pool_distribution import PoolDistribution, ordered
from ata_gym.typing import Floats
from ata_gym.utils.validation import short, whole_number

_OWN = 5
"""Numbers per worker in the memory: place in the catalogue, mean, present or not, and of its row price and choice."""
_PLACES = 1000  # places of random numbers that each change of a list keeps for changes inside it


def _whole_numbers(name: str, values: Sequence[int], least: int) -> tuple[int, ...]:
    return tuple(whole_number(f"each of {name}", value, least) for value in np.atleast_1d(np.asarray(values, object)))


@dataclass(frozen=True)
class Switch(Change):
    """All workers exchange their distributions, every so many rounds or in given ones.

    Of workers that are drawn anew, the drawn mean is a part of the distribution, and empty places take no part. Factors
    of other changes stay with their worker, whether these changes stand before or after this one.

    >>> import gymnasium, ata_gym
    >>> pool = {"family": "deterministic", "scale": [1.0, 2.0, 3.0]}
    >>> changes = [Switch(at=(1,), permutation=(2, 0, 1))]
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=pool, changes=changes, budget=3).unwrapped
    >>> _ = env.reset(seed=0), env.step(np.array([1, 1, 1]))
    >>> env.means()
    array([3., 1., 2.])
    """

    every: int | None = field(default=None, metadata=COUNT)  # rounds between two switches; or else
    at: tuple[int, ...] = ()  # the rounds of the switches, counted from 0
    permutation: tuple[int, ...] | None = None
    """Worker i gets the distribution that worker ``permutation[i]`` had; by default a fresh random one each time."""

    slots: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self)["at"] = _whole_numbers("at of Switch", self.at, 1)
        if (self.every is None) == (not self.at):
            raise ValueError("Switch needs either every=... (rounds between two switches) or at=(...) (their rounds)")
        if self.permutation is not None:
            order = _whole_numbers("permutation of Switch", self.permutation, 0)
            if sorted(order) != list(range(len(order))):
                raise ValueError(f"permutation of Switch must hold each worker from 0 once, not {order}")
            vars(self)["permutation"] = order

    def fit(self, n: int) -> None:
        if self.permutation is not None and len(self.permutation) != n:
            raise ValueError(f"permutation of Switch must hold each of {n} workers once, not {self.permutation}")

    def ranges(self, n: int) -> list[tuple[float, float]]:
        return [(0.0, n - 1)]

    def first(self, now: RoundContext) -> Floats:
        return np.tile(np.arange(now.n, dtype=np.float64), (len(now.keys), 1, 1))

    def next(self, now: RoundContext, memory: Floats) -> Floats:
        due = np.isin(now.round, self.at) if self.every is None else now.round % self.every == 0
        if not due.any():
            return memory
        if self.permutation is None:
            permuted = np.argsort(now.uniforms(), axis=2).astype(np.float64)
        else:
            permuted = memory[:, :, list(self.permutation)]
        return np.where(due[:, None, None], permuted, memory)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        order = memory[:, 0].astype(np.int64)
        if conditions.present is not None:  # workers stand before empty places, and exchange with none
            empty = ~np.take_along_axis(conditions.present, order, axis=1)
            order = np.take_along_axis(order, np.argsort(empty, axis=1, kind="stable"), axis=1)
        changed = conditions._replace(distribution=np.take_along_axis(conditions.distribution, order, axis=1))
        if conditions.drawn is None:
            return changed
        drawn = np.take_along_axis(conditions.drawn, order, axis=1)
        return changed._replace(drawn=drawn, factor=conditions.factor / conditions.drawn * drawn)


@dataclass(frozen=True)
class Jump(Change):
    """From one round on, some workers' task times are multiplied by a factor."""

    at: int = field(metadata=WHOLE)  # the first such round, counted from 0
    workers: tuple[int, ...]  # which workers, counted from 0
    factor: float = field(metadata=POSITIVE)  # 0.05 makes them 20 times faster
    until: int | None = None  # the first round in which they are as before; None: they stay so

    timed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self)["workers"] = _whole_numbers("workers of Jump", self.workers, 0)
        if self.until is not None:
            vars(self)["until"] = whole_number("until of Jump", self.until, self.at + 1)

    def fit(self, n: int) -> None:
        if max(self.workers, default=0) >= n:
            raise ValueError(f"workers of Jump must be below {n}, the number of workers, not {max(self.workers)}")

    def longest(self, time: float) -> float:
        return time * max(1.0, self.factor)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        round = conditions.round[:, None]
        now = (round >= self.at) & (True if self.until is None else round < self.until)
        theirs = np.isin(np.arange(conditions.factor.shape[1]), self.workers)
        return conditions.times(np.where(now & theirs, self.factor, 1.0))


@dataclass(frozen=True)
class Redraw(Change):
    """All workers are drawn anew at the start of each episode; the first change of a scenario, if it has one.

    A pool given as a ``PoolDistribution`` gives a scenario this change. What is drawn follows from the row's seed and
    the episode alone, so that all policies meet the same workers. Places without a worker are those of workers that are
    away: the observation's ``present`` is 0 there, and tasks that they are given are handed on.

    >>> import gymnasium, ata_gym
    >>> worlds = Redraw(PoolDistribution(6, fewest=3), price=(0.01, 1), among=((), (Switch(every=20),)))
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=worlds.pools, changes=[worlds], budget=8, horizon=50)
    >>> observation, _ = env.reset(seed=2)
    >>> observation["present"]
    array([1, 1, 1, 1, 0, 0], dtype=int8)
    """

    pools: PoolDistribution  # what is drawn; also as plain data
    price: tuple[float, float] | None = None
    """The least and the largest price of an episode, log-uniform in between, or uniform if the least is 0; by default
    the scenario's price."""
    among: tuple[tuple[Change, ...], ...] = ()
    """Lists of changes, of which an episode has one, all equally likely; () is a list, too. There can be no change of
    which a scenario can have one only."""
    every: int | None = field(
        default=None, metadata=COUNT
    )  # rounds after which workers are drawn again within an episode; by default they stay

    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        lists = self.among if np.iterable(self.among) else (self.among,)
        for each in (one for changes in lists for one in (changes if np.iterable(changes) else (None,))):
            if not isinstance(each, Change) or each.single:
                raise ValueError(
                    "among of Redraw must be lists of changes of which a scenario can have several, such as Switch or "
                    f"Walk; not {short(self.among)}"
                )
        vars(self).update(pools=PoolDistribution.from_data(self.pools), among=tuple(map(tuple, lists)))
        if self.price is not None:
            vars(self)["price"] = ordered("price of Redraw", self.price, 0.0, 1e6)
        within = self._within  # the memory holds their numbers behind its own
        timed, faulty = any(change.timed for change in within), any(change.faulty for change in within)
        vars(self).update(slots=_OWN + sum(change.slots for change in within), timed=timed, faulty=faulty or self._pads)

    @property
    def _pads(self) -> bool:  # whether pools may have fewer workers than places
        return self.pools.fewest != self.pools.n

    @property
    def _within(self) -> list[Change]:
        return [change for changes in self.among for change in changes]

    def fit(self, n: int) -> None:
        if self.pools.n != n:
            raise ValueError(
                f"Redraw draws {self.pools.n} workers, and the pool has {n}: give pool=PoolDistribution(...)"
            )
        for change in self._within:
            change.fit(n)

    def longest(self, time: float) -> float:
        slowest = time * self.pools.heterogeneity[1]
        lists = ((), *self.among)
        return max(reduce(lambda most, change: change.longest(most), changes, slowest) for changes in lists)

    def ranges(self, n: int) -> list[tuple[float, float]]:
        most = self.pools.catalogue.n - 1, self.pools.heterogeneity[1], 1.0, 1e6, max(len(self.among) - 1, 0)
        return [*((0.0, high) for high in most), *(bounds for change in self._within for bounds in change.ranges(n))]

    def first(self, now: RoundContext) -> Floats:
        u = now.uniforms(PoolDistribution.KINDS + 2)
        drawn = self.pools.draw(u[:, : PoolDistribution.KINDS])
        price, choice = u[:, -2, :1], u[:, -1, :1]
        low, high = (0.0, 0.0) if self.price is None else self.price
        prices = low + (high - low) * price if low == 0 else low * (high / low) ** price
        choices = np.floor(choice * max(1, len(self.among)))
        own = [drawn.place, drawn.mean, drawn.present, *np.broadcast_arrays(prices, choices, drawn.mean)[:2]]
        return np.concatenate([np.stack(own, axis=1), *(c.first(at) for c, at in self._inside(now))], axis=1)

    def next(self, now: RoundContext, memory: Floats) -> Floats:
        parts, start, same = [memory[:, :_OWN]], _OWN, True
        for change, at in self._inside(now):
            own = memory[:, start : start + change.slots]
            parts.append(change.next(at, own))
            start, same = start + change.slots, same and parts[-1] is own
        after = memory if same else np.concatenate(parts, axis=1)
        if self.every is None:
            return after
        due = now.round % self.every == 0
        return np.where(due[:, None, None], self.first(now), after) if due.any() else after

    def _inside(self, now: RoundContext) -> list[tuple[Change, RoundContext]]:
        return [(change, now._replace(place=(now.place + 1) * _PLACES + k)) for k, change in enumerate(self._within)]

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        place, mean = memory[:, 0].astype(np.int64), memory[:, 1].copy()
        conditions = conditions._replace(distribution=place, factor=mean, drawn=mean)
        if self._pads:
            present = memory[:, 2] > 0
            conditions = conditions._replace(present=present, dies=np.where(present, conditions.dies, 0.0))
        if self.price is not None:
            conditions = conditions._replace(price=memory[:, 3, 0].copy())
        after, start = conditions, _OWN
        for k, changes in enumerate(self.among):
            changed = conditions
            for change in changes:
                changed = change.apply(changed, memory[:, start : start + change.slots])
                start += change.slots
            after = after.where(memory[:, 4, 0] == k, changed)
        return after

    def to_data(self) -> dict[str, Any]:
        return super().to_data() | {"among": [[change.to_data() for change in changes] for changes in self.among]}
