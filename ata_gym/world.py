"""What an env is made of: a world that stays the same, and what its rows remember of their episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ata_gym.checks import whole_number
from ata_gym.pools import Pool
from ata_gym.pools.families import CODES
from ata_gym.scenarios import Scenario
from ata_gym.scenarios import scenario as find_scenario
from ata_gym.simulation import Ints, Outcome, stream_keys

Observation = dict[str, NDArray[Any]]
PoolLike = Pool | Mapping[str, Any] | Sequence[Any]
Play = Callable[..., Outcome]

_TASK_NOISE = 0  # the stream of keys for task times
_LARGEST = float(np.finfo(np.float64).max)
_ENDLESS = np.iinfo(np.int64).max


@dataclass(frozen=True)
class World:
    """What stays the same over all episodes of an env."""

    pool: Pool
    budget: int
    horizon: int | None
    price: float
    scenario: Scenario | None

    @classmethod
    def of(
        cls,
        scenario: str | Scenario | None,
        pool: PoolLike | None,
        budget: int | None,
        horizon: int | None,
        price: float,
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
        if isinstance(price, bool) or not isinstance(price, (int, float, np.number)) or not 0 <= price < np.inf:
            raise ValueError(f"price must be a finite number of at least 0, not {price!r}")
        checked = cls(
            Pool.from_data(pool if named is None else named.pool),  # type: ignore[arg-type]
            whole_number("budget", budget),
            None if horizon is None else whole_number("horizon", horizon),
            float(price),
            named,
        )
        if checked.exhausted(np.zeros((1, checked.pool.n), np.int64), np.zeros(1, np.int64)).any():
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

    def exhausted(self, started: Ints, round_index: Ints) -> NDArray[np.bool_]:
        """Whether the pool's recorded times may not fill the next round of each row, shape (E,)."""
        if not self.ends:
            return np.zeros(len(started), np.bool_)
        laws = self.pool.laws
        by_round = laws.family == CODES["trace-by-round"]
        needed = np.where(by_round, round_index[:, None] + 1, started + self.budget)
        short: NDArray[np.bool_] = np.any(needed > laws.limit, axis=1)
        return short

    def observation_space(self) -> spaces.Space[Any]:
        """The feedback of one round."""
        n, budget = self.pool.n, self.budget
        return spaces.Dict(
            {
                "worker": spaces.Box(-1, n - 1, (budget,), np.int64),
                "time": spaces.Box(0.0, _LARGEST, (budget,), np.float64),
                "elapsed": spaces.Box(0.0, _LARGEST, (n,), np.float64),
            }
        )


class Episodes:
    """What E rows remember of their episodes; the one state behind the single and the vector env."""

    _FIELDS = ("keys", "episode", "round", "started", "runtime", "total_worker_time")

    def __init__(self, world: World, rows: int, play: Play) -> None:
        self.world, self.source = world, play
        self.keys = np.zeros(rows, np.uint64)
        self.episode = np.full(rows, -1, np.int64)  # -1: never reset
        self.round = np.zeros(rows, np.int64)
        self.started = np.zeros((rows, world.pool.n), np.int64)
        self.runtime = np.zeros(rows)
        self.total_worker_time = np.zeros(rows)

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

    def play(self, allocation: Ints) -> Outcome:
        """Run one round of every row."""
        outcome = self.source(
            self.world.pool.laws,
            self.keys,
            self.episode,
            self.round,
            self.started,
            allocation,
            self.world.budget,
        )
        self.started = outcome.started
        self.round += 1
        self.runtime += outcome.round_time
        self.total_worker_time += outcome.worker_time
        return outcome

    def over(self) -> NDArray[np.bool_]:
        """Which rows have reached their last round, shape (E,)."""
        over: NDArray[np.bool_] = self.world.exhausted(self.started, self.round)
        if self.world.horizon is not None:
            over |= self.round >= self.world.horizon
        return over

    def blank(self, rows: int) -> Observation:
        """No feedback: what a row sees after a reset."""
        n, budget = self.world.pool.n, self.world.budget
        return {
            "worker": np.full((rows, budget), -1, np.int64),
            "time": np.zeros((rows, budget)),
            "elapsed": np.zeros((rows, n)),
        }

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

    def _remembered(self, over: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in self._FIELDS} | {"over": over}


class Face:
    """What the single and the vector env say of their world, and what they remember."""

    _world: World
    _episodes: Episodes
    _over: NDArray[np.bool_]
    """Rows whose episode has ended, shape (E,); before the first reset none has begun either."""

    @property
    def pool(self) -> Pool:
        """The workers and the law of their task times, for those who may know."""
        return self._world.pool

    @property
    def n(self) -> int:
        """How many workers there are."""
        return self._world.pool.n

    @property
    def budget(self) -> int:
        """Results B that a round needs."""
        return self._world.budget

    @property
    def horizon(self) -> int | None:
        """Rounds in an episode; None: no end."""
        return self._world.horizon

    @property
    def price(self) -> float:
        """What one unit of worker time costs in units of runtime."""
        return self._world.price

    @property
    def scenario(self) -> Scenario | None:
        """The named world, if it has a name."""
        return self._world.scenario

    def checkpoint(self) -> dict[str, NDArray[Any]]:
        """Everything that the env remembers, as arrays to save; ``restore`` goes on from there bit for bit."""
        return self._episodes.checkpoint(self._over)

    def restore(self, checkpoint: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a ``checkpoint`` of an env of the same world and as many rows.

        Raises
        ------
        ValueError
            If it does not fit; the env stays as it was.
        """
        self._episodes.restore(checkpoint, self._over)
