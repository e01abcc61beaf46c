"""What an env is made of: a world that stays the same, and what its rows remember of their episodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ata_gym.changes.conditions import Conditions
from ata_gym.changes.course import Course
from ata_gym.checks import whole_number
from ata_gym.dispatch_space import Dispatch
from ata_gym.pools import Pool
from ata_gym.pools.families import CODES
from ata_gym.pools.laws import Laws
from ata_gym.scenarios import Scenario
from ata_gym.scenarios import scenario as find_scenario
from ata_gym.simulation import Floats, Ints, stream_keys
from ata_gym.spaces import Allocation

Observation = dict[str, NDArray[Any]]
Actions = Allocation | Dispatch
PoolLike = Pool | Mapping[str, Any] | Sequence[Any]

LARGEST = float(np.finfo(np.float64).max)
"""The bound of times."""

_TASK_NOISE = 0  # the stream of keys for task times
_ENDLESS = np.iinfo(np.int64).max


@dataclass(frozen=True)
class World:
    """What stays the same over all episodes of an env."""

    pool: Pool
    budget: int
    horizon: int | None
    price: float
    scenario: Scenario | None
    signals: bool

    @classmethod
    def of(
        cls,
        scenario: str | Scenario | None,
        pool: PoolLike | None,
        budget: int | None,
        horizon: int | None,
        price: float,
        signals: bool = False,
    ) -> World:
        """Check the arguments of an env; what a scenario gives may be overridden, but not its pool."""
        if (scenario is None) == (pool is None):
            raise ValueError('give either scenario="..." or pool=... (with budget=...), and not both')
        named = find_scenario(scenario) if isinstance(scenario, str) else scenario
        if named is not None:
            budget = named.budget if budget is None else budget
            horizon = named.horizon if horizon is None else horizon
        if budget is None:
            raise ValueError("a pool needs budget=..., the number of results that a round needs")
        if signals not in (True, False):
            raise ValueError(f"signals must be True or False, not {signals!r}")
        if isinstance(price, bool) or not isinstance(price, (int, float, np.number)) or not 0 <= price < np.inf:
            raise ValueError(f"price must be a finite number of at least 0, not {price!r}")
        checked = cls(
            Pool.from_data(pool if named is None else named.pool),  # type: ignore[arg-type]
            whole_number("budget", budget),
            None if horizon is None else whole_number("horizon", horizon),
            float(price),
            named,
            bool(signals),
        )
        if checked.exhausted(checked.pool.laws, np.zeros((1, checked.pool.n), np.int64), np.zeros(1, np.int64)).any():
            rows = int(checked.pool.laws.limit.min())
            raise ValueError(
                f"the trace cannot fill one round: its shortest worker has {rows} rows and a round may ask one worker "
                f'for {checked.budget} tasks; use end="wrap" or a smaller budget'
            )
        return checked

    @cached_property
    def ends(self) -> bool:
        """Whether the pool has recorded times that end the episode."""
        return bool(self.pool.laws.limit.min() < _ENDLESS)

    def exhausted(self, laws: Laws, started: Ints, round_index: Ints) -> NDArray[np.bool_]:
        """Whether the recorded times of the next round's laws may not fill it, shape (E,)."""
        if not self.ends:
            return np.zeros(len(started), np.bool_)
        by_round = laws.family == CODES["trace-by-round"]
        needed = np.where(by_round, round_index[:, None] + 1, started + self.budget)
        short: NDArray[np.bool_] = np.any(needed > laws.limit, axis=1)
        return short


class Turn(NamedTuple):
    """What one step gave E rows."""

    observation: Observation
    """Fresh arrays with a leading row axis."""
    time: Floats
    """(E,) time that passed."""
    worker_time: Floats
    """(E,) time that all workers were busy in it."""
    info: dict[str, NDArray[Any]]
    """Fresh arrays of shape (E,)."""
    over: NDArray[np.bool_]
    """(E,) whether the episode ended."""


class Episodes(ABC):
    """What E rows remember of their episodes; the one state behind the single and the vector env of an id.

    Parameters
    ----------
    world
        What stays the same.
    rows
        How many rows E.
    results
        Results in each step's feedback.
    """

    _FIELDS = ("keys", "episode", "round", "started", "runtime", "total_worker_time")

    def __init__(self, world: World, rows: int, results: int) -> None:
        self.world, self.results = world, results
        self.keys = np.zeros(rows, np.uint64)
        self.episode = np.full(rows, -1, np.int64)  # -1: never reset
        self.round = np.zeros(rows, np.int64)
        self.started = np.zeros((rows, world.pool.n), np.int64)
        self.runtime = np.zeros(rows)  # of the finished rounds, like the next one
        self.total_worker_time = np.zeros(rows)
        self.course = Course(world.pool, rows)

    @abstractmethod
    def actions(self, rows: int | None = None) -> Actions:
        """The action space, with a row axis if ``rows`` are given."""

    @abstractmethod
    def play(self, action: NDArray[Any]) -> Turn:
        """Take one step in every row with an action that the space has checked."""

    def observations(self) -> spaces.Dict:
        """The space of what a row sees: the feedback."""
        n, results = self.world.pool.n, self.results
        seen: dict[str, spaces.Space[Any]] = {
            "worker": spaces.Box(-1, n - 1, (results,), np.int64),
            "time": spaces.Box(0.0, LARGEST, (results,), np.float64),
            "elapsed": spaces.Box(0.0, LARGEST, (n,), np.float64),
        }
        if self.world.signals:
            seen["signal"] = spaces.Box(0.0, 1.0, (n, 2), np.float64)
        return spaces.Dict(seen)

    def blank(self, which: NDArray[Any] | slice) -> Observation:
        """No feedback: what some rows see after their reset."""
        rows = len(self.round[which])
        blank = {
            "worker": np.full((rows, self.results), -1, np.int64),
            "time": np.zeros((rows, self.results)),
            "elapsed": np.zeros((rows, self.world.pool.n)),
        }
        if self.world.signals:
            blank["signal"] = self.signals()[which]
        return blank

    def conditions(self) -> Conditions:
        """What the workers are like in the coming round, or in the one under way."""
        now = self.course.conditions
        return now if self.world.pool.changes else now._replace(round=self.round.copy())

    def signals(self) -> Floats:
        """The workers' loads, shape (E, n, 2), in an array of its own."""
        return self.course.conditions.signal.copy()

    def rekey(self, row: int, seed: int) -> None:
        """Give a row the noise of a seed; its next episode is episode 0."""
        self.keys[row] = stream_keys(seed, stream=_TASK_NOISE)[0]
        self.episode[row] = -1

    def seeded(self) -> bool:
        """Whether every row has been given a seed, and begun an episode."""
        return bool((self.episode >= 0).all())

    def begin(self, rows: NDArray[Any] | slice) -> None:
        """Start the next episode of some rows."""
        self.episode[rows] += 1
        for field in (self.round, self.started, self.runtime, self.total_worker_time):
            field[rows] = 0
        self.course.begin(rows, self.keys, self.episode, self.round)

    def finish(self, rows: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Put some rows (None: all), whose round is over, before the next; whether that was their last, shape (E,)."""
        self.round += 1 if rows is None else rows
        if self.world.pool.changes:
            self.course.go_on(rows, self.keys, self.episode, self.round)
        return self.over()

    def over(self) -> NDArray[np.bool_]:
        """Which rows, at a round's end, have reached their last round, shape (E,)."""
        over: NDArray[np.bool_] = self.world.exhausted(self.course.laws, self.started, self.round)
        if self.world.horizon is not None:
            over |= self.round >= self.world.horizon
        return over

    def checkpoint(self, over: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        """Everything there is to remember, as arrays; ``over`` marks the rows whose episode has ended."""
        return {name: field.copy() for name, field in self._remembered(over).items()}

    def restore(self, checkpoint: Mapping[str, NDArray[Any]], over: NDArray[np.bool_]) -> None:
        """Go on from what ``checkpoint`` gave, and write into ``over``; what does not fit changes nothing."""
        here = self._remembered(over)
        for name, field in here.items():
            if name not in checkpoint or np.shape(checkpoint[name]) != field.shape:
                raise ValueError(
                    f"this checkpoint does not fit the env: {name!r} must be an array of shape {field.shape}"
                )
        for name, field in here.items():
            field[...] = checkpoint[name]
        self.course.look(self.round)

    def _remembered(self, over: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        changes = {f"change_{k}": memory for k, memory in enumerate(self.course.memories)}
        return {name: getattr(self, name) for name in self._FIELDS} | changes | {"over": over}
