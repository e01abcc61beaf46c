"""What a change is, the random numbers that it may draw, and the conditions that the changes of rows give."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtri

from ata_gym.changes.conditions import Conditions
from ata_gym.pools import Pool
from ata_gym.pools.distributions import Distributions
from ata_gym.simulation.disturbances import Disturbances
from ata_gym.simulation.keys import uniforms_of_round
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.ranges import FINITE
from ata_gym.utils.trees import as_lists
from ata_gym.utils.validation import in_range, whole_number


class RoundContext(NamedTuple):
    """The coming round of E rows, as one change sees it; its random numbers are the same for every policy."""

    keys: Keys  # (E,) each row's key
    episode: Ints  # (E,) counted from 0
    round: Ints  # (E,) counted from 0
    place: int  # of the change in the list of changes
    n: int  # how many workers there are

    def uniforms(self, kinds: int = 1) -> Floats:
        """Uniform numbers strictly between 0 and 1, shape (E, kinds, n); each call gives the same ones."""
        numbers = uniforms_of_round(self.keys, self.episode, self.round, self.place, kinds * self.n)
        return numbers.reshape(-1, kinds, self.n)

    def normals(self, kinds: int = 1) -> Floats:
        """Standard normal numbers, shape (E, kinds, n)."""
        return np.asarray(ndtri(self.uniforms(kinds)))


@dataclass(frozen=True)
class Change(ABC):
    """One way in which workers change from round to round.

    The fields are plain numbers and tuples; their metadata are limits, see ``number``, or the least whole number.
    Random numbers enter through a memory, one array per row and worker: the conditions of a round are a function of the
    memory and the round.
    """

    slots: ClassVar[int] = 0  # how many numbers per worker the memory holds
    timed: ClassVar[bool] = False  # whether the conditions depend on the round as well as on the memory
    single: ClassVar[bool] = False  # whether a scenario can have one only
    faulty: ClassVar[bool] = False  # whether workers may die of it

    def __post_init__(self) -> None:
        for field in fields(self):
            given = getattr(self, field.name)
            if "low" in field.metadata:
                number(self, field.name, **field.metadata)
            elif "least" in field.metadata and given is not field.default:
                name = f"{field.name} of {type(self).__name__}"
                vars(self)[field.name] = whole_number(name, given, **field.metadata)

    def fit(self, n: int) -> None:  # noqa: B027 - most fit any
        """ValueError if the change does not fit a pool of n workers."""

    def longest(self, time: float) -> float:
        """The longest that a task, or a wait in a round, can take where tasks take up to ``time`` without the change.

        It is inf if that overflows.
        """
        return time

    def first(self, now: RoundContext) -> Floats:
        """The memory in the first round of an episode, shape (E, slots, n)."""
        return np.zeros((len(now.keys), self.slots, now.n))

    def next(self, now: RoundContext, memory: Floats) -> Floats:
        """The memory in the coming round, from that in the last one; ``memory`` itself if it stays the same."""
        return memory

    def ranges(self, n: int) -> list[tuple[float, float]]:
        """The least and the largest number that each slot of the memory can hold, for n workers."""
        return [(-FINITE, FINITE)] * self.slots

    @abstractmethod
    def apply(self, conditions: Conditions, memory: Floats) -> Conditions:
        """The conditions of the round after this change."""

    def to_data(self) -> dict[str, Any]:
        """The name and the fields, as plain data."""
        return {"change": type(self).__name__.lower(), **as_lists(asdict(self))}


class TwoStates(Change):
    """Each worker is on or off, by a Markov chain that starts stationary; the memory is 1 where it is on, else 0.

    Workers ``rack * r`` to ``rack * r + rack - 1`` stand in rack r, and have the state of its first one: they turn on
    and off together, as what shares a switch, a power supply or a host does.
    """

    rack: int  # so many workers in turn share one state

    slots: ClassVar[int] = 1

    def ranges(self, n: int) -> list[tuple[float, float]]:
        return [(0.0, 1.0)]

    @abstractmethod
    def chain(self) -> tuple[float, float]:
        """Probability in each round that a rack turns on, and that it turns off."""

    def first(self, now: RoundContext) -> Floats:
        starts, ends = self.chain()
        return (self._uniforms(now) < starts / (starts + ends)).astype(np.float64)

    def next(self, now: RoundContext, memory: Floats) -> Floats:
        (starts, ends), u = self.chain(), self._uniforms(now)
        return np.where(memory > 0, u >= ends, u < starts).astype(np.float64)

    def _uniforms(self, now: RoundContext) -> Floats:
        return now.uniforms()[:, :, np.arange(now.n) // self.rack * self.rack]

    def to_data(self) -> dict[str, Any]:
        """The name and the fields, as plain data; without ``rack`` where each worker has a state of its own."""
        data = super().to_data()
        return {name: value for name, value in data.items() if (name, value) != ("rack", 1)}


class Autoregressive(Change):
    """The memory is standard normal, AR(1) over rounds, and starts stationary."""

    persistence: float  # its correlation from one round to the next

    def ranges(self, n: int) -> list[tuple[float, float]]:
        """As far as the largest numbers in all rounds would lead."""
        most = 1.01 * LARGEST_NORMAL * ((1 + self.persistence) / (1 - self.persistence)) ** 0.5
        return [(-most, most)] * self.slots

    def first(self, now: RoundContext) -> Floats:
        return now.normals(self.slots)

    def next(self, now: RoundContext, memory: Floats) -> Floats:
        return np.asarray(self.persistence * memory + (1 - self.persistence**2) ** 0.5 * now.normals(self.slots))


LARGEST_NORMAL = 8.3  # no normal number made from noise of 52 bits is larger
PROBABILITY = {"low": 0, "high": 1, "above": True}
SHARE = {"low": 0, "high": 1, "above": True, "below": True}
BELOW_1 = {"low": 0, "high": 1, "below": True}
POSITIVE = {"low": 0, "above": True}
NON_NEGATIVE = {"low": 0}
COUNT = {"least": 1}
WHOLE = {"least": 0}  # limits of fields


def number(owner: Change, name: str, low: float, high: float = np.inf, **exclusive: bool) -> None:
    """Turn a field into a float; ValueError unless it is in the range, see ``in_range``."""
    full_name = f"{name} of {type(owner).__name__}"
    vars(owner)[name] = in_range(full_name, getattr(owner, name), "number", low, high, **exclusive)


class ChangeProcess:
    """The conditions of E rows of n workers in the coming round (or in the one that has begun).

    ``catalogue`` are the distributions that workers can have. Without changes they are always these.
    """

    distributions: Distributions  # of the round
    disturbances: Disturbances | None = None  # of the round; None without changes
    conditions: Conditions  # from which both follow
    memories: list[Floats]  # what each change remembers, (E, slots, n)

    def __init__(self, catalogue: Pool, changes: Sequence[Change], rows: int, n: int) -> None:
        self._n, self._changes = n, changes
        self._timed = any(change.timed for change in changes)
        self._unchanged = self.distributions = catalogue.distributions
        self._median = catalogue.median() if changes else None
        self.conditions = Conditions.unchanged(np.zeros(rows, np.int64), n)
        self.memories = [np.zeros((rows, change.slots, n)) for change in changes]

    def start_episode(self, which: Mask | slice, keys: Keys, episode: Ints, round: Ints) -> None:
        """Put some rows at the start of their episodes."""
        for k, change in enumerate(self._changes):
            fresh = change.first(RoundContext(keys, episode, round, k, self._n))
            self.memories[k] = self.memories[k].copy()  # conditions hold views of the old one
            self.memories[k][which] = fresh[which]
        self.update_conditions(round)

    def next_round(self, rows: Mask | None, keys: Keys, episode: Ints, round: Ints) -> None:
        """Put some rows (None: all) at the start of their next ``round``."""
        same = not self._timed
        for k, change in enumerate(self._changes):
            memory = self.memories[k]
            after = change.next(RoundContext(keys, episode, round, k, self._n), memory)
            if after is not memory:
                self.memories[k] = after if rows is None else np.where(rows[:, None, None], after, memory)
                same = False
        if same:
            self.conditions = self.conditions._replace(round=round.copy())
        else:
            self.update_conditions(round)

    def update_conditions(self, round: Ints) -> None:
        """Derive the conditions from the memories."""
        if self._median is None:
            return
        conditions = Conditions.unchanged(round.copy(), self._n)
        for change, memory in zip(self._changes, self.memories, strict=True):
            conditions = change.apply(conditions, memory)
        self.conditions = conditions.with_survivor()
        self.distributions = self.conditions.distributions(self._unchanged)
        self.disturbances = self.conditions.disturbances(self._median)
