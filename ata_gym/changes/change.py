"""What a change is, its random numbers, and the conditions that the changes of rows give."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ata_gym.changes.conditions import Conditions
from ata_gym.pools import Pool
from ata_gym.pools.distributions import Distributions
from ata_gym.simulation.disturbances import Disturbances, undisturbed
from ata_gym.simulation.keys import keys_of_change, uniforms_of_round
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.ranges import FINITE
from ata_gym.utils.trees import as_lists
from ata_gym.utils.validation import in_range, whole_number


class LastRound(NamedTuple):
    """What a round that has ended asked of the workers of E rows."""

    tasks: Ints
    """The tasks that each worker started in it, shape (E, n)."""
    busy_time: Floats
    """How long each worker was busy in it, with its latency, shape (E, n)."""
    round_time: Floats
    """The time of the round, shape (E,)."""
    absent: Mask
    """Whether each worker was away in it, or died, shape (E, n)."""


class RoundContext(NamedTuple):
    """The coming round of E rows, as one change sees it.

    Its random numbers are the same for every policy. What the last round asked is not.
    """

    keys: Keys
    """The key of each row, shape (E,)."""
    episode: Ints
    """The episode of each row, counted from 0, shape (E,)."""
    round: Ints
    """The coming round of each row, counted from 0, shape (E,)."""
    place: int
    """The index of the change in the list of changes."""
    n: int
    """The number of workers."""
    last_round: LastRound | None = None
    """The round before; None at the start of an episode, and if no change follows the load."""

    def uniforms(self, kinds: int = 1) -> Floats:
        """Uniform numbers strictly between 0 and 1, shape (E, kinds, n).

        Each call gives the same numbers.
        """
        numbers = uniforms_of_round(self.keys, self.episode, self.round, self.place, kinds * self.n)
        return numbers.reshape(-1, kinds, self.n)

    def normals(self, kinds: int = 1) -> Floats:
        """Standard normal numbers, shape (E, kinds, n)."""
        return np.asarray(ndtri(self.uniforms(kinds)))


@dataclass(frozen=True)
class Change(ABC):
    """One way in which workers change from round to round.

    The fields are plain numbers and tuples; their metadata are limits, see ``set_number``, or the
    least whole number. Random numbers enter through a memory, one array per row and worker: the
    conditions of a round are a function of the memory and the round.
    """

    slots: ClassVar[int] = 0
    """How many numbers per worker the memory holds."""
    timed: ClassVar[bool] = False
    """Whether the conditions depend on the round as well as on the memory."""
    single: ClassVar[bool] = False
    """Whether a scenario can have only one change of this kind."""
    faulty: ClassVar[bool] = False
    """Whether the change may make workers die."""
    follows_load: ClassVar[bool] = False
    """Whether the conditions depend on what is asked of the workers."""
    needs_allocation: ClassVar[bool] = False
    """Whether they depend on the allocation of the round itself."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if "low" in field.metadata:
                set_number(self, field.name, **field.metadata)
            elif "least" in field.metadata and value is not field.default:
                name = f"{field.name} of {type(self).__name__}"
                vars(self)[field.name] = whole_number(name, value, **field.metadata)

    @property
    def parts(self) -> "tuple[Change, ...]":
        """The change, and the changes that it may make."""
        return (self,)

    def check_fit(self, n: int) -> None:  # noqa: B027 - most fit any
        """Check that the change fits a pool of n workers.

        Raises:
            ValueError: If the change does not fit.
        """

    def longest_time(self, time: float, tasks: int) -> float:
        """The longest time that a task, or a wait in a round, can take with the change.

        Args:
            time: The longest time of a task without the change.
            tasks: The most tasks that a worker can have in a round.

        Returns:
            The time; it is inf if the computation overflows.
        """
        return time

    def first_memory(self, context: RoundContext) -> Floats:
        """The memory in the first round of an episode, shape (E, slots, n)."""
        return np.zeros((len(context.keys), self.slots, context.n))

    def next_memory(self, context: RoundContext, memory: Floats) -> Floats:
        """The memory in the coming round, shape (E, slots, n).

        Args:
            context: The coming round.
            memory: The memory in the last round, shape (E, slots, n). It is returned itself if it
                stays the same.
        """
        return memory

    def ranges(self, n: int) -> list[tuple[float, float]]:
        """The least and the largest number that each slot of the memory can hold.

        Args:
            n: The number of workers.
        """
        return [(-FINITE, FINITE)] * self.slots

    @abstractmethod
    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        """The conditions of the round after this change.

        Args:
            conditions: The conditions of the round before this change.
            memory: The memory of the change in the round, shape (E, slots, n).
        """

    def apply_allocation(
        self, conditions: Conditions, memory: Floats, allocation: NDArray[np.integer[Any]]
    ) -> Conditions:
        """The conditions of the round under its allocation, where ``needs_allocation`` is set.

        Args:
            conditions: The conditions of the round without its allocation.
            memory: The memory of the change in the round, shape (E, slots, n).
            allocation: The tasks of each worker, shape (E, n).
        """
        return conditions

    def to_data(self) -> dict[str, Any]:
        """The name and the fields, as plain data."""
        return {"change": type(self).__name__.lower(), **as_lists(asdict(self))}


class TwoStates(Change):
    """Each worker is on or off, by a Markov chain that starts stationary.

    The memory is 1 where a worker is on, else 0. Workers ``rack * r`` to ``rack * r + rack - 1``
    stand in rack r, and have the state of its first worker. They turn on and off together, as
    machines do that share a switch, a power supply or a host.
    """

    rack: int
    """The number of consecutive workers that share one state."""

    slots: ClassVar[int] = 1

    def ranges(self, n: int) -> list[tuple[float, float]]:
        return [(0.0, 1.0)]

    @abstractmethod
    def probabilities(self) -> tuple[float, float]:
        """The probabilities in each round that a rack turns on, and that it turns off."""

    def first_memory(self, context: RoundContext) -> Floats:
        starts, ends = self.probabilities()
        return (self._uniforms(context) < starts / (starts + ends)).astype(np.float64)

    def next_memory(self, context: RoundContext, memory: Floats) -> Floats:
        starts, ends = self.probabilities()
        u = self._uniforms(context)
        return np.where(memory > 0, u >= ends, u < starts).astype(np.float64)

    def _uniforms(self, context: RoundContext) -> Floats:
        # All workers of a rack take the number of its first worker.
        return context.uniforms()[:, :, np.arange(context.n) // self.rack * self.rack]

    def to_data(self) -> dict[str, Any]:
        """The name and the fields, as plain data.

        ``rack`` is left out where each worker has a state of its own.
        """
        data = super().to_data()
        return {name: value for name, value in data.items() if (name, value) != ("rack", 1)}


class Autoregressive(Change):
    """The memory is standard normal, AR(1) over rounds, and starts stationary."""

    persistence: float
    """The correlation of the memory from one round to the next."""

    def ranges(self, n: int) -> list[tuple[float, float]]:
        """The range that the memory reaches with the largest numbers in all rounds."""
        # The moves of all rounds add up to at most sqrt(1 - p^2) / (1 - p) of the largest number;
        # 1% is left for rounding.
        bound = 1.01 * LARGEST_NORMAL * ((1 + self.persistence) / (1 - self.persistence)) ** 0.5
        return [(-bound, bound)] * self.slots

    def first_memory(self, context: RoundContext) -> Floats:
        return context.normals(self.slots)

    def next_memory(self, context: RoundContext, memory: Floats) -> Floats:
        return np.asarray(
            self.persistence * memory
            + (1 - self.persistence**2) ** 0.5 * context.normals(self.slots),
        )


LARGEST_NORMAL = 8.3
"""An upper bound on the normal numbers that are made from noise of 52 bits."""

# Limits of fields: ranges of numbers, then the least values of whole numbers.
PROBABILITY = {"low": 0, "high": 1, "above": True}
SHARE = {"low": 0, "high": 1, "above": True, "below": True}
BELOW_1 = {"low": 0, "high": 1, "below": True}
POSITIVE = {"low": 0, "above": True}
NON_NEGATIVE = {"low": 0}
COUNT = {"least": 1}
WHOLE = {"least": 0}


def set_number(
    change: Change, name: str, low: float, high: float = np.inf, **exclusive: bool
) -> None:
    """Turn a field into a float in a range.

    Args:
        change: The change, whose field is replaced.
        name: The name of the field.
        low: The lower bound.
        high: The upper bound.
        **exclusive: Which bounds are excluded, see ``in_range``.

    Raises:
        ValueError: If the field is not in the range.
    """
    full_name = f"{name} of {type(change).__name__}"
    vars(change)[name] = in_range(
        full_name, getattr(change, name), "number", low, high, **exclusive
    )


_LATENCY_PLACE = 2**40
"""The place of the noise of latencies, beyond the places of all changes."""


class ChangeProcess:
    """The conditions of E rows of n workers in the coming round.

    Once a round has begun, they are the conditions of that round. Without changes the workers
    always have the distributions of the catalogue. Where workers pay a latency, the latencies of
    the round are drawn here, with noise of their own.

    Args:
        catalogue: The distributions that workers can have.
        changes: The changes, in the order in which they are applied.
        rows: The number of rows, E.
        n: The number of workers.
    """

    distributions: Distributions
    """The distributions of the round."""
    disturbances: Disturbances | None = None
    """The disturbances of the round; None without changes and latencies."""
    conditions: Conditions
    """The conditions of the round, from which the distributions and disturbances follow."""
    memories: list[Floats]
    """The memory of each change, shape (E, slots, n)."""

    def __init__(self, catalogue: Pool, changes: Sequence[Change], rows: int, n: int) -> None:
        self._n = n
        self._changes = changes
        self._timed = any(change.timed for change in changes)
        self._needs_allocation = any(change.needs_allocation for change in changes)
        self._catalogue_distributions = self.distributions = catalogue.distributions
        self._latency = catalogue.latency
        self.varies = bool(changes) or self._latency is not None
        """Whether a round differs from another in more than the noise of its tasks."""
        self._median = catalogue.median() if self.varies else None
        self.conditions = Conditions.unchanged(np.zeros(rows, np.int64), n)
        self.memories = [np.zeros((rows, change.slots, n)) for change in changes]

    def start_episode(self, rows: Mask | slice, keys: Keys, episode: Ints, round: Ints) -> None:
        """Put some rows at the start of their episodes.

        Args:
            rows: The rows.
            keys: The key of each row, shape (E,).
            episode: The episode of each row, shape (E,).
            round: The coming round of each row, shape (E,).
        """
        for k, change in enumerate(self._changes):
            first_memory = change.first_memory(RoundContext(keys, episode, round, k, self._n))
            # Earlier conditions hold views of the old memory, which must not change.
            self.memories[k] = self.memories[k].copy()
            self.memories[k][rows] = first_memory[rows]
        self.update_conditions(keys, episode, round)

    def next_round(
        self,
        rows: Mask | None,
        keys: Keys,
        episode: Ints,
        round: Ints,
        last_round: LastRound | None,
    ) -> None:
        """Put some rows at the start of their next round.

        Args:
            rows: The rows, shape (E,); None means all.
            keys: The key of each row, shape (E,).
            episode: The episode of each row, shape (E,).
            round: The coming round of each row, shape (E,).
            last_round: The round that has ended; None only if no change follows the load.
        """
        unchanged = not self._timed and self._latency is None
        for k, change in enumerate(self._changes):
            memory = self.memories[k]
            context = RoundContext(keys, episode, round, k, self._n, last_round)
            next_memory = change.next_memory(context, memory)
            # A change whose memory stays gives the same array back, and conditions stay, too.
            if next_memory is not memory:
                if rows is None:
                    self.memories[k] = next_memory
                else:
                    self.memories[k] = np.where(rows[:, None, None], next_memory, memory)
                unchanged = False
        if unchanged:
            self.conditions = self.conditions._replace(round=round.copy())
        else:
            self.update_conditions(keys, episode, round)

    def update_conditions(self, keys: Keys, episode: Ints, round: Ints) -> None:
        """Derive the conditions of the rounds from the memories.

        Args:
            keys: The key of each row, shape (E,).
            episode: The episode of each row, shape (E,).
            round: The round of each row, shape (E,).
        """
        if self._median is None:
            return
        conditions = Conditions.unchanged(round.copy(), self._n)
        for change, memory in zip(self._changes, self.memories, strict=True):
            conditions = change.apply(conditions, memory)
        self.conditions = conditions.with_survivor()
        self.distributions = self.conditions.distributions(self._catalogue_distributions)
        if self._latency is None:
            latency = undisturbed(self._n).latency
        else:
            latency_keys = keys_of_change(keys, episode, _LATENCY_PLACE)
            latency = self.conditions.latency(self._latency, latency_keys)
        self.disturbances = self.conditions.disturbances(self._median, latency)

    def under(
        self, allocation: NDArray[np.integer[Any]]
    ) -> tuple[Distributions, Disturbances | None]:
        """The distributions and disturbances of the round under its allocation, shape (E, n)."""
        if not self._needs_allocation or self.disturbances is None or self._median is None:
            return self.distributions, self.disturbances
        conditions = self.conditions
        for change, memory in zip(self._changes, self.memories, strict=True):
            conditions = change.apply_allocation(conditions, memory, allocation)
        return (
            conditions.distributions(self._catalogue_distributions),
            conditions.disturbances(self._median, self.disturbances.latency),
        )
