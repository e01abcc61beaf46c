"""The contract of a policy."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ata_gym.pools import Pool
from ata_gym.scenarios import Scenario
from ata_gym.simulation import Ints, Keys, derive_keys, stream_keys
from ata_policies.beliefs import Belief

Observation = dict[str, NDArray[Any]]

_OWN_RANDOMNESS = 1  # the stream of keys for policies; the task times have another


class Setting(NamedTuple):
    """What a policy may know before it starts."""

    n: int
    """Workers."""
    budget: int
    """Results B that a round needs."""
    pool: Pool | None = None
    """The law of the task times: for oracles, and for the psi1 norms where no scenario publishes any."""
    scenario: Scenario | None = None
    """The named world, with its published hyperparameters."""

    @classmethod
    def of(cls, env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]) -> Setting:
        """What a single or a vector env of this project tells."""
        bare: Any = env.unwrapped
        try:
            return cls(bare.n, bare.budget, bare.pool, bare.scenario)
        except AttributeError:
            raise ValueError(f"{env} is not an env of ata_gym: make one with gymnasium.make") from None


class State(NamedTuple):
    """What a policy carries from round to round: E rows of belief and of its own randomness."""

    belief: Belief
    round: Ints
    """(E,) the current round, from 1 on."""
    episode: Ints
    """(E,) episodes begun before; with the round, the counter of the row's own randomness."""
    key: Keys
    """(E,) the key of the row's own randomness."""

    def round_keys(self) -> Keys:
        """A fresh key for the randomness of each row's round, shape (E,)."""
        return derive_keys(self.key, self.episode, self.round)


class Policy(ABC):
    """Hyperparameters and a seed; what is learned lives in the state that ``predict`` takes and returns.

    A subclass says in ``allocate`` what to do in a state. Row e of a batch has the randomness of a policy with seed
    ``seed + e``, so it does not depend on its batch.

    Parameters
    ----------
    setting
        What the policy may know.
    seed
        Seeds the policy's own randomness.
    """

    env_id: ClassVar[str] = "ata_gym/TaskAllocation-v0"
    """The env that the policy plays."""
    source: ClassVar[str] = ""
    """Where it comes from."""
    constants: ClassVar[str] = ""
    """Its constants, and what it assumes."""

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ValueError(f"seed must be a whole number of at least 0, not {seed!r}")
        self.setting, self.seed = setting, int(seed)

    @classmethod
    def summary(cls) -> str:
        """The first line of the class's docstring."""
        return (inspect.getdoc(cls) or "").partition("\n")[0]

    def predict(
        self,
        observation: Observation,
        state: State | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
    ) -> tuple[Ints, State]:
        """Choose the next allocation, in the manner of Stable-Baselines3.

        Parameters
        ----------
        observation
            The feedback of the last round, of one env or of a batch of E rows.
        state
            What the last call returned; None to start.
        episode_start
            (E,) rows whose episode has just begun and whose belief starts anew; a row without feedback does so anyway.
        deterministic
            Ignored: a policy's own randomness is part of its rule.

        Returns
        -------
        The allocation, shape (n,) or (E, n), and the new state.
        """
        del deterministic
        worker, time = np.atleast_2d(observation["worker"]), np.atleast_2d(observation["time"])
        if state is None:
            state = self.first_state(len(worker))
        if episode_start is not None and np.any(episode_start):
            worker = np.where(np.reshape(episode_start, (-1, 1)), -1, worker)
        anew = worker[:, 0] < 0
        state = State(
            state.belief.observe(worker, time),
            np.where(anew, 1, state.round + 1),
            state.episode + anew,
            state.key,
        )
        allocation = self.allocate(state)
        return allocation if observation["worker"].ndim > 1 else allocation[0], state

    def first_state(self, rows: int) -> State:
        """The state of ``rows`` rows that have seen nothing."""
        n = self.setting.n
        zeros = np.zeros(rows, np.int64)
        return State(Belief.empty(rows, n), zeros, zeros, stream_keys(self.seed, rows, _OWN_RANDOMNESS))

    @abstractmethod
    def allocate(self, state: State) -> Ints:
        """Tasks for each worker in each row, shape (E, n)."""
