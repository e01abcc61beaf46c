"""An env and a policy as a clock for any loop: it says what time it would be."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_gym.envs.allocation import TaskAllocationEnv
from ata_gym.envs.dispatch import TaskDispatchEnv
from ata_gym.typing import Ints, Mask
from ata_gym.utils.ranges import Size, Times, Wholes, check_ranges
from ata_gym.utils.validation import whole_number
from ata_policies.allocator.state import check_seal, plain, restored, sealed
from ata_policies.observations import Observation, checked_observation
from ata_policies.policy import Policy, State
from ata_policies.registry import make
from ata_policies.steps import decide


class Played(NamedTuple):
    """The counts of a clock."""

    rounds: Wholes
    runtime: Times
    total_worker_time: Times
    ended: Mask  # whether the episode has ended
    allocation: Wholes  # (n,)


class Clock:
    """A clock is the simulated twin of ``Allocator``: a loop asks once per step what time it would be.

    Each ``tick`` is a round of the env, played by the policy.

    - ``env``: A single ``TaskAllocation-v0``, ``TaskRace-v0`` or ``TaskDispatch-v0``, maybe in wrappers that leave
      actions and observations as they are. It is reset, and belongs to the clock from now on. TypeError for any other.
    - ``policy``: the name of a policy (see ``ata_policies.make``), or a policy that is made already; oracles, too.
      ValueError for a policy of another env.
    - ``seed``: the seed of the task times, and of a policy that is given by its name.

    >>> import gymnasium, ata_gym
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool={"family": "deterministic", "scale": [1, 3]}, budget=4)
    >>> clock = Clock(env, "certainty-equivalence")
    >>> for batch in range(3):  # the steps of any loop
    ...     print(clock.tick(), clock.allocation)
    6.0 [2 2]
    9.0 [3 1]
    12.0 [3 1]
    """

    rounds: int = 0  # rounds played
    runtime: float = 0.0  # their round times added up
    total_worker_time: float = 0.0  # the time that all workers were busy in them
    allocation: Ints | None = None
    """(n,) the tasks that each worker was given in the last round, or started in dispatch; None before the first."""

    def __init__(self, env: gym.Env[Any, Any], policy: str | Policy = "default", *, seed: int = 0) -> None:
        bare: Any = getattr(env, "unwrapped", None)
        if not isinstance(bare, TaskAllocationEnv | TaskDispatchEnv):
            raise TypeError(f"a clock is a single env of ata_gym, made with gymnasium.make, not {env}")
        self.env, self._bare, seed = env, bare, whole_number("seed", seed, least=0)
        self.policy = policy if isinstance(policy, Policy) else make(policy, env, seed)
        if (self.policy.setting.n, self.policy.setting.budget) != (bare.n, bare.budget):
            raise ValueError(f"the policy must be made for the env's {bare.n} workers and B = {bare.budget}")
        self._observation: Observation = env.reset(seed=seed)[0]
        self._state: State | None = None
        self._ended = False

    def tick(self) -> float:
        """Play one round, and return the runtime so far.

        ValueError if the episode has ended, at its horizon or with the recorded task times.
        """
        if self._ended:
            raise ValueError(
                f"the episode ended after {self.rounds} rounds: make the env with a longer horizon or none, and traces "
                'that wrap (end="wrap")'
            )
        dispatches = isinstance(self._bare, TaskDispatchEnv)
        before = self._bare.checkpoint()["started"] if dispatches else None
        over = False
        while not over:
            action, self._state = decide(self.policy, self.env, self._observation, self._state)
            self._observation, _, terminated, truncated, info = self.env.step(action)
            over = info.get("round_over", True)
        self.rounds, self._ended = self.rounds + 1, terminated or truncated
        self.runtime, self.total_worker_time = info["runtime"], info["total_worker_time"]
        self.allocation = (self._bare.checkpoint()["started"] - before)[0] if dispatches else action
        return self.runtime

    def state_dict(self) -> dict[str, Any]:
        """Everything that is remembered, as numbers in nested lists; see ``Allocator.state_dict``."""
        return sealed(_plain(self._parts()))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on, bit for bit, from the ``state_dict`` of a clock that was made with the same arguments.

        ValueError as for ``Allocator.load_state_dict``.
        """
        parts = {name: restored(part, state, name) for name, part in self._parts().items()}
        check_seal(state, _plain(parts))
        played, env, observation, learned = parts.values()
        n, budget = self._bare.n, self._bare.budget
        check_ranges(played, Size(n, budget), "clock")
        checked_observation(observation, n, budget, self.policy.env_id)
        self.policy.check_state(learned, 1)
        self._bare.restore(env)
        self._observation, self._state = observation, learned if played.rounds > 0 else None
        self.rounds, self._ended = int(played.rounds), bool(played.ended)
        self.runtime, self.total_worker_time = float(played.runtime), float(played.total_worker_time)
        self.allocation = played.allocation if self.rounds else None

    def _parts(self) -> dict[str, Any]:
        tasks = np.zeros(self._bare.n, np.int64) if self.allocation is None else self.allocation
        counted = self.rounds, self.runtime, self.total_worker_time, self._ended, tasks
        played, learned = Played(*map(np.asarray, counted)), self._state or self.policy.first_state(1)
        return {"clock": played, "env": self._bare.checkpoint(), "observation": self._observation, "policy": learned}


def _plain(parts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for name, part in parts.items() for key, value in plain(part, name).items()}
