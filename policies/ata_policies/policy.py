"""The contract of a policy."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ata_gym.changes import Conditions
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
    price: float = 0.0
    """What one unit of worker time costs in units of runtime."""
    now: Callable[[], Conditions] | None = None
    """Tells the conditions of the coming round, in an env whose rounds differ: an oracle's eyes, for no learner."""

    @classmethod
    def of(cls, env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]) -> Setting:
        """What a single or a vector env of this project tells."""
        bare: Any = env.unwrapped
        try:
            now = bare.conditions if bare.pool.changes or "trace-by-round" in bare.pool.families else None
            return cls(bare.n, bare.budget, bare.pool, bare.scenario, bare.price, now)
        except AttributeError:
            raise ValueError(f"{env} is not an env of ata_gym: make one with gymnasium.make") from None


class State(NamedTuple):
    """What a policy carries from round to round: E rows of belief, plan, and of its own randomness."""

    belief: Any
    """What was learned: a named tuple of arrays with a leading row axis, by default a ``Belief``."""
    plan: Any
    """What was worked out from the belief and is kept for a while: likewise, by default empty."""
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

    Start from ``AllocationPolicy`` or ``DispatchPolicy``. Row e of a batch has the randomness of a policy with seed
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
    """Its constants."""
    knows: ClassVar[str] = "nothing"
    """What it must know before it starts, beside n and B."""
    assumes: ClassVar[str] = "nothing"
    """What its rule or guarantee assumes of the task times."""
    learns: ClassVar[bool] = True
    """Whether it learns; those that do not are baselines."""
    priced: ClassVar[bool] = False
    """Whether what it does depends on the price of worker time."""
    follows: ClassVar[bool] = False
    """Whether it is made for a world that changes."""

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
        """Choose the next action, in the manner of Stable-Baselines3.

        Parameters
        ----------
        observation
            The feedback of the last step, of one env or of a batch of E rows.
        state
            What the last call returned; None to start.
        episode_start
            (E,) rows whose episode has just begun and whose belief starts anew; a row without feedback does so anyway.
        deterministic
            Ignored: a policy's own randomness is part of its rule.

        Returns
        -------
        The action, shape (n,) or (E, n), and the new state.
        """
        del deterministic
        seen = {name: np.atleast_2d(field) for name, field in observation.items()}
        anew = seen["worker"][:, 0] < 0
        if state is None:
            state = self.first_state(len(anew))
        if episode_start is not None:
            anew = anew | np.reshape(episode_start, -1)
            seen["worker"] = np.where(anew[:, None], -1, seen["worker"])
            seen["elapsed"] = np.where(anew[:, None], 0.0, seen["elapsed"])
        belief, plan, round = state.belief, state.plan, state.round
        if anew.any():
            blank = self.first_state(len(anew))
            belief, plan, round = _chosen(anew, (blank.belief, blank.plan, blank.round), (belief, plan, round))
        belief = belief.observe(seen["worker"], seen["time"], seen["elapsed"])
        state = State(belief, plan, round + self.begins(seen), state.episode + anew, state.key)
        action, state = self.act(state, seen)
        return action if observation["worker"].ndim > 1 else action[0], state

    def first_state(self, rows: int) -> State:
        """The state of ``rows`` rows that have seen nothing."""
        zeros = np.zeros(rows, np.int64)
        keys = stream_keys(self.seed, rows, _OWN_RANDOMNESS)
        return State(self.first_belief(rows), self.first_plan(rows), zeros, zeros, keys)

    def first_belief(self, rows: int) -> Any:
        """The belief of ``rows`` rows that have seen nothing.

        A named tuple of arrays with ``observe(worker, time, elapsed)`` (see ``Belief``).
        """
        return Belief.empty(rows, self.setting.n)

    def first_plan(self, rows: int) -> Any:
        """The plan of ``rows`` rows that have seen nothing: a named tuple of arrays, or nothing at all."""
        del rows
        return ()

    def begins(self, seen: Observation) -> NDArray[np.bool_] | bool:
        """Which rows begin a round with this step, shape (E,)."""
        del seen
        return True

    @abstractmethod
    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Choose an action for each row, (E, n); give it with the state, and in that what was worked out and is kept.

        ``seen`` is the observation as a batch.
        """


class AllocationPolicy(Policy):
    """A policy of ``ata_gym/TaskAllocation-v0`` or ``ata_gym/TaskRace-v0``: ``allocate`` says what to do in a state.

    Examples
    --------
    A policy of your own:

    >>> import gymnasium, ata_gym
    >>> from ata_gym import allocate
    >>> class Optimist(AllocationPolicy):
    ...     def allocate(self, state):
    ...         fastest = np.where(state.belief.untried(), 0.0, 0.9 * np.nan_to_num(state.belief.mean()))
    ...         return allocate(fastest, self.setting.budget, state.round_keys(), state.belief.untried())
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
    >>> allocation, state = Optimist(Setting.of(env)).predict(env.reset(seed=0)[0])
    >>> int(allocation.sum())
    5
    """

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Allocate, and keep nothing."""
        del seen
        return self.allocate(state), state

    @abstractmethod
    def allocate(self, state: State) -> Ints:
        """Tasks for each worker in each row, shape (E, n)."""


class DispatchPolicy(Policy):
    """A policy of ``ata_gym/TaskDispatch-v0``: ``act`` says at each completion who should be working, as 0 and 1."""

    env_id = "ata_gym/TaskDispatch-v0"

    def begins(self, seen: Observation) -> NDArray[np.bool_]:
        """A round begins when all B results are missing."""
        fresh: NDArray[np.bool_] = seen["missing"][:, 0] == self.setting.budget
        return fresh


def _chosen(rows: NDArray[np.bool_], first: Any, second: Any) -> Any:
    """Take ``first`` in some rows and ``second`` in the others, for nested tuples of arrays with a leading row axis."""
    if isinstance(first, tuple):
        parts = [_chosen(rows, one, other) for one, other in zip(first, second, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    return np.where(np.reshape(rows, (-1,) + (1,) * (np.ndim(first) - 1)), first, second)
