"""Abrupt changes: workers exchange distributions, jump to another speed, or are drawn anew."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.changes.change import COUNT, POSITIVE, WHOLE, Change, RoundContext
from ata_gym.changes.conditions import Conditions
from ata_gym.pools.pool_distribution import PoolDistribution, ordered_pair
from ata_gym.typing import Floats
from ata_gym.utils.validation import short, whole_number


class _RedrawColumns(NamedTuple):
    """The first columns of the memory of ``Redraw``; the changes of its lists follow."""

    place: int = 0
    """The worker's place in the catalogue."""
    mean: int = 1
    """Its mean task time."""
    present: int = 2
    """1 if it is present, else 0."""
    price: int = 3
    """The price of its row."""
    choice: int = 4
    """The index of the list of changes that its row has."""


_REDRAW = _RedrawColumns()
_PLACES_PER_CHANGE = 1000
"""Places of random numbers that each change of a list keeps for the changes inside it."""


def _whole_numbers(name: str, values: Sequence[int], lowest: int) -> tuple[int, ...]:
    return tuple(
        whole_number(f"each of {name}", value, lowest)
        for value in np.atleast_1d(np.asarray(values, object))
    )


@dataclass(frozen=True)
class Switch(Change):
    """All workers exchange their distributions, at regular intervals or in given rounds.

    Of workers that are drawn anew, the drawn mean is a part of the distribution, and empty places
    take no part. Factors of other changes stay with their worker, whether these changes stand
    before or after this one.

    Example:
        >>> import gymnasium, ata_gym
        >>> pool = {"family": "deterministic", "scale": [1.0, 2.0, 3.0]}
        >>> changes = [Switch(at=(1,), permutation=(2, 0, 1))]
        >>> env = gymnasium.make(
        ...     "ata_gym/TaskAllocation-v0", pool=pool, changes=changes, budget=3
        ... ).unwrapped
        >>> _ = env.reset(seed=0), env.step(np.array([1, 1, 1]))
        >>> env.means()
        array([3., 1., 2.])
    """

    every: int | None = field(default=None, metadata=COUNT)
    """The rounds between two switches; either this or ``at`` is given."""
    at: tuple[int, ...] = ()
    """The rounds of the switches, counted from 0."""
    permutation: tuple[int, ...] | None = None
    """The order of the exchange; by default a fresh random permutation each time.

    Worker i gets the distribution that worker ``permutation[i]`` had.
    """

    slots: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self)["at"] = _whole_numbers("at of Switch", self.at, 1)
        if (self.every is None) == (not self.at):
            raise ValueError(
                "Switch needs either every=... (rounds between two switches) or at=(...) (their"
                " rounds)",
            )
        if self.permutation is not None:
            order = _whole_numbers("permutation of Switch", self.permutation, 0)
            if sorted(order) != list(range(len(order))):
                raise ValueError(
                    f"permutation of Switch must hold each worker from 0 once, not {order}",
                )
            vars(self)["permutation"] = order

    def check_fit(self, n: int) -> None:
        if self.permutation is not None and len(self.permutation) != n:
            raise ValueError(
                f"permutation of Switch must hold each of {n} workers once, not {self.permutation}",
            )

    def ranges(self, n: int) -> list[tuple[float, float]]:
        return [(0.0, n - 1)]

    def first_memory(self, context: RoundContext) -> Floats:
        return np.tile(np.arange(context.n, dtype=np.float64), (len(context.keys), 1, 1))

    def next_memory(self, context: RoundContext, memory: Floats) -> Floats:
        if self.every is None:
            due = np.isin(context.round, self.at)
        else:
            due = context.round % self.every == 0
        if not due.any():
            return memory
        if self.permutation is None:
            permuted = np.argsort(context.uniforms(), axis=2).astype(np.float64)
        else:
            permuted = memory[:, :, list(self.permutation)]
        return np.where(due[:, None, None], permuted, memory)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        order = memory[:, 0].astype(np.int64)
        if conditions.present is not None:
            # Workers stand before empty places. A stable sort keeps the order of the workers, and
            # none exchanges with an empty place.
            empty = ~np.take_along_axis(conditions.present, order, axis=1)
            order = np.take_along_axis(order, np.argsort(empty, axis=1, kind="stable"), axis=1)
        changed = conditions._replace(
            distribution=np.take_along_axis(conditions.distribution, order, axis=1),
        )
        if conditions.drawn_mean is None:
            return changed
        # The drawn mean moves with the distribution; the rest of the factor stays.
        drawn_mean = np.take_along_axis(conditions.drawn_mean, order, axis=1)
        return changed._replace(
            drawn_mean=drawn_mean, factor=conditions.factor / conditions.drawn_mean * drawn_mean
        )


@dataclass(frozen=True)
class Jump(Change):
    """From one round on, the task times of some workers are multiplied by a factor."""

    at: int = field(metadata=WHOLE)
    """The first round with the factor, counted from 0."""
    workers: tuple[int, ...]
    """The workers with the factor, counted from 0."""
    factor: float = field(metadata=POSITIVE)
    """The factor of the task times: 0.05 makes the workers 20 times faster."""
    until: int | None = None
    """The first round in which the workers are as before; by default the factor stays."""

    timed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self)["workers"] = _whole_numbers("workers of Jump", self.workers, 0)
        if self.until is not None:
            vars(self)["until"] = whole_number("until of Jump", self.until, self.at + 1)

    def check_fit(self, n: int) -> None:
        if max(self.workers, default=0) >= n:
            raise ValueError(
                f"workers of Jump must be below {n}, the number of workers, not"
                f" {max(self.workers)}",
            )

    def longest_time(self, time: float, tasks: int) -> float:
        return time * max(1.0, self.factor)

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        round = conditions.round[:, None]
        active = round >= self.at
        if self.until is not None:
            active = active & (round < self.until)
        affected = np.isin(np.arange(conditions.factor.shape[1]), self.workers)
        return conditions.scaled(np.where(active & affected, self.factor, 1.0))


@dataclass(frozen=True)
class Redraw(Change):
    """All workers are drawn anew at the start of each episode.

    This change must be the first one of a scenario. A pool given as a ``PoolDistribution`` gives a
    scenario this change. The draws follow from the row's seed and the episode alone, so that all
    policies meet the same workers. A place without a worker counts as a worker that is away: the
    observation's ``present`` is 0 there, and tasks that the place is given are handed on.

    Example:
        >>> import gymnasium, ata_gym
        >>> pools = PoolDistribution(6, fewest=3)
        >>> redraw = Redraw(pools, price=(0.01, 1), among=((), (Switch(every=20),)))
        >>> env = gymnasium.make(
        ...     "ata_gym/TaskAllocation-v0", pool=pools, changes=[redraw], budget=8, horizon=50
        ... )
        >>> observation, _ = env.reset(seed=2)
        >>> observation["present"]
        array([1, 1, 1, 1, 0, 0], dtype=int8)
    """

    pools: PoolDistribution
    """The distribution of the pools that are drawn; also as plain data."""
    price: tuple[float, float] | None = None
    """The least and the largest price of an episode; by default the scenario's price.

    Prices are log-uniform in between, or uniform if the least is 0.
    """
    among: tuple[tuple[Change, ...], ...] = ()
    """Lists of changes, of which an episode has one, all equally likely.

    The empty list () is allowed. Changes of which a scenario can have one only are not.
    """
    every: int | None = field(default=None, metadata=COUNT)
    """The rounds after which workers are drawn again in an episode; by default they stay."""

    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.iterable(self.among):
            lists = self.among
        else:
            lists = (self.among,)
        members: list[Any] = []
        for changes in lists:
            if np.iterable(changes):
                members.extend(changes)
            else:
                # It is no list, and so refused below.
                members.append(None)
        for member in members:
            if not isinstance(member, Change) or member.single:
                raise ValueError(
                    "among of Redraw must be lists of changes of which a scenario can have"
                    f" several, such as Switch or Walk; not {short(self.among)}",
                )
        vars(self).update(
            pools=PoolDistribution.from_data(self.pools),
            among=tuple(map(tuple, lists)),
        )
        if self.price is not None:
            vars(self)["price"] = ordered_pair("price of Redraw", self.price, 0.0, 1e6)
        # The memory holds the numbers of the changes within behind the columns of ``_REDRAW``.
        listed = self._listed_changes
        timed = any(change.timed for change in listed)
        faulty = any(change.faulty for change in listed)
        vars(self).update(
            slots=len(_REDRAW) + sum(change.slots for change in listed),
            timed=timed,
            faulty=faulty or self._pads,
            follows_load=any(change.follows_load for change in listed),
            needs_allocation=any(change.needs_allocation for change in listed),
        )

    @property
    def parts(self) -> tuple[Change, ...]:
        return (self, *self._listed_changes)

    @property
    def _pads(self) -> bool:
        """Whether pools may have fewer workers than places."""
        return self.pools.fewest != self.pools.n

    @property
    def _listed_changes(self) -> list[Change]:
        """All changes of the lists of ``among``, in order."""
        return [change for changes in self.among for change in changes]

    def check_fit(self, n: int) -> None:
        if self.pools.n != n:
            raise ValueError(
                f"Redraw draws {self.pools.n} workers, and the pool has {n}: give"
                " pool=PoolDistribution(...)",
            )
        for change in self._listed_changes:
            change.check_fit(n)

    def longest_time(self, time: float, tasks: int) -> float:
        slowest = time * self.pools.heterogeneity[1]
        lists = ((), *self.among)
        return max(
            reduce(lambda longest, change: change.longest_time(longest, tasks), changes, slowest)
            for changes in lists
        )

    def ranges(self, n: int) -> list[tuple[float, float]]:
        # In the order of ``_REDRAW``.
        largest = (
            self.pools.catalogue.n - 1,
            self.pools.heterogeneity[1],
            1.0,
            1e6,
            max(len(self.among) - 1, 0),
        )
        return [
            *((0.0, high) for high in largest),
            *(bounds for change in self._listed_changes for bounds in change.ranges(n)),
        ]

    def first_memory(self, context: RoundContext) -> Floats:
        u = context.uniforms(PoolDistribution.KINDS + 2)
        workers = self.pools.draw(u[:, : PoolDistribution.KINDS])
        # A row has one price and one choice: the numbers of the first worker give them.
        price = u[:, -2, :1]
        choice = u[:, -1, :1]
        if self.price is None:
            low = 0.0
            high = 0.0
        else:
            low, high = self.price
        if low == 0:
            prices = low + (high - low) * price
        else:
            prices = low * (high / low) ** price
        choices = np.floor(choice * max(1, len(self.among)))
        prices, choices, _ = np.broadcast_arrays(prices, choices, workers.mean)
        # In the order of ``_REDRAW``.
        draws = [workers.place, workers.mean, workers.present, prices, choices]
        inner_memories = [
            change.first_memory(inner_context)
            for change, inner_context in self._inner_changes(context)
        ]
        return np.concatenate([np.stack(draws, axis=1), *inner_memories], axis=1)

    def next_memory(self, context: RoundContext, memory: Floats) -> Floats:
        parts = [memory[:, : len(_REDRAW)]]
        start = len(_REDRAW)
        unchanged = True
        for change, inner_context in self._inner_changes(context):
            change_memory = memory[:, start : start + change.slots]
            parts.append(change.next_memory(inner_context, change_memory))
            start = start + change.slots
            # A change whose memory stays gives the same array back.
            unchanged = unchanged and parts[-1] is change_memory
        if unchanged:
            next_memory = memory
        else:
            next_memory = np.concatenate(parts, axis=1)
        if self.every is None:
            return next_memory
        due = context.round % self.every == 0
        if due.any():
            return np.where(due[:, None, None], self.first_memory(context), next_memory)
        return next_memory

    def _inner_changes(self, context: RoundContext) -> list[tuple[Change, RoundContext]]:
        """The changes of the lists, each with random numbers that no other change draws."""
        return [
            (change, context._replace(place=(context.place + 1) * _PLACES_PER_CHANGE + k))
            for k, change in enumerate(self._listed_changes)
        ]

    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        place = memory[:, _REDRAW.place].astype(np.int64)
        mean = memory[:, _REDRAW.mean].copy()
        conditions = conditions._replace(distribution=place, factor=mean, drawn_mean=mean)
        if self._pads:
            present = memory[:, _REDRAW.present] > 0
            conditions = conditions._replace(
                present=present,
                death_time=np.where(present, conditions.death_time, 0.0),
            )
        if self.price is not None:
            conditions = conditions._replace(price=memory[:, _REDRAW.price, 0].copy())
        return self._by_choice(conditions, memory, lambda change, *state: change.apply(*state))

    def apply_allocation(
        self, conditions: Conditions, memory: Floats, allocation: NDArray[np.integer[Any]]
    ) -> Conditions:
        return self._by_choice(
            conditions,
            memory,
            lambda change, *state: change.apply_allocation(*state, allocation),
        )

    def _by_choice(
        self,
        conditions: Conditions,
        memory: Floats,
        step: Callable[[Change, Conditions, Floats], Conditions],
    ) -> Conditions:
        """The conditions after a step of each change of the list of each row.

        Args:
            conditions: The conditions before.
            memory: The memory of this change, shape (E, slots, n).
            step: The conditions after a change, from those before it and from its memory.
        """
        # Each list is applied to all rows; a row keeps the result of the list of its choice.
        result = conditions
        start = len(_REDRAW)
        for k, changes in enumerate(self.among):
            changed = conditions
            for change in changes:
                changed = step(change, changed, memory[:, start : start + change.slots])
                start += change.slots
            result = result.with_rows(memory[:, _REDRAW.choice, 0] == k, changed)
        return result

    def to_data(self) -> dict[str, Any]:
        return super().to_data() | {
            "among": [[change.to_data() for change in changes] for changes in self.among],
        }
