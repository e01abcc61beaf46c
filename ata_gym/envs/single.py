"""What all envs share, single and vector; and what all single envs share: seeds, resets, rewards and info."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from ata_gym.changes import Change, Conditions
from ata_gym.envs.batch_state import Backend, BatchState, Observation
from ata_gym.envs.spaces import Allocation, Dispatch
from ata_gym.scenarios import PoolData, Scenario, resolve
from ata_gym.typing import Floats, Mask
from ata_gym.utils.validation import flag


class EnvProperties:
    """A mixin: the scenario of an env, its privileged information and its checkpoints."""

    scenario: Scenario
    """The pool, its changes, the budget, the horizon and the price; its name is "" if it has none."""
    _state_class: type[Any]
    """The ``BatchState`` of this id."""
    _state: BatchState
    _ended: Mask
    """(E,) rows that need a reset before their next step."""

    pool = property(attrgetter("scenario.pool"), doc="The workers and the distributions of their task times.")
    n = property(attrgetter("scenario.pool.n"), doc="How many workers there are.")
    budget = property(attrgetter("scenario.budget"), doc="Results B that a round needs.")
    horizon = property(attrgetter("scenario.horizon"), doc="Rounds in an episode; None: no end.")
    price = property(attrgetter("scenario.price"), doc="What one unit of worker time costs in units of runtime.")

    def conditions(self) -> Conditions:
        """Privileged information: what the workers are like in the coming round, or in the one that has begun.

        The arrays have a leading row axis in a vector env only.
        """
        return self._state.conditions()

    def means(self) -> Floats:
        """Exact mean task times under these conditions, shape (n,), or (E, n) of a vector env.

        The mean is infinite for a worker that is away from the round's start. For a trace replayed by round it is the
        recorded time of the round. Without changes the other means are those of the pool.
        """
        return self._state.conditions().means(self.pool)

    def checkpoint(self) -> dict[str, NDArray[Any]]:
        """Everything that the env remembers, as arrays to save; after ``restore`` it goes on bit for bit."""
        return self._state.checkpoint(self._ended)

    def restore(self, checkpoint: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a ``checkpoint`` of an env of the same scenario and as many rows.

        ValueError if it does not fit; the env stays as it was.
        """
        self._state.restore(checkpoint, self._ended)


class SingleEnv(EnvProperties, gym.Env[Observation, NDArray[Any]]):
    """One row, without the row axis."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(
        self,
        scenario: str | Scenario | None = None,
        pool: PoolData | None = None,
        budget: int | None = None,
        horizon: int | None = None,
        price: float | None = None,
        changes: Iterable[Change | Mapping[str, Any]] | None = None,
        signals: bool = False,
        backend: Backend | None = None,
    ) -> None:
        self.scenario = resolve(scenario, pool, budget, horizon, price, changes)
        self._state = self._state_class(self.scenario, 1, flag("signals", signals), backend)
        self._ended = np.ones(1, np.bool_)
        self.observation_space: Space[Any] = self._state.observation_space()
        self.action_space: Allocation | Dispatch = self._state.action_space()

    def conditions(self) -> Conditions:  # noqa: D102 - the mixin says it
        return super().conditions().row(0)

    def means(self) -> Floats:  # noqa: D102
        means: Floats = super().means()[0]
        return means

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode: with a seed, episode 0 of that seed; without one, the next episode."""
        super().reset(seed=seed, options=options)
        if seed is not None or not self._state.seeded():
            self.np_random  # noqa: B018 - draws a seed where none was given
            self._state.seed_row(0, self.np_random_seed)
        self._state.start_episode(slice(None))
        self._ended[:] = False
        return {name: field[0] for name, field in self._state.no_feedback(slice(None)).items()}, {}

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take one step with an action of shape (n,)."""
        if self._ended[0]:
            raise ValueError("no episode is running: call reset() first")
        result = self._state.step(self.action_space.check(action)[None])
        self._ended = result.ended
        observation = {name: field[0] for name, field in result.observation.items()}
        reward = -(result.time.item() + self.scenario.price * result.worker_time.item())
        info = {name: value.item() for name, value in result.info.items()}
        return observation, reward, False, result.ended.item(), info
