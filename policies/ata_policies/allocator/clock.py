"""An env and a policy as a clock for any loop: it says what time it would be."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_gym.envs.allocation import TaskAllocationEnv
from ata_gym.envs.dispatch import TaskDispatchEnv
from ata_gym.typing import Ints, Mask, Worker
from ata_gym.utils.ranges import Size, Times, Wholes, check_ranges
from ata_gym.utils.validation import whole_number
from ata_policies.allocator.allocator import Allocator
from ata_policies.allocator.state import check_seal, plain, restored, sealed
from ata_policies.observations import Observation, checked_observation
from ata_policies.policy import Policy, State
from ata_policies.registry import make
from ata_policies.steps import decide


class ClockCounts(NamedTuple):
    """The counts of a clock, as its state holds them."""

    rounds: Wholes
    """Rounds played."""
    runtime: Times
    """Their round times added up."""
    total_worker_time: Times
    """The time that all workers were busy in them."""
    ended: Mask
    """Whether the episode has ended."""
    allocation: Wholes
    """(n,) the tasks of each worker in the last round; 0 before the first."""


class Clock:
    """A clock tells a loop once per step what time it would be, from a simulated env.

    It is the simulated counterpart of ``Allocator``. Each ``tick`` is a round of the env, played by
    the policy.

    Args:
        env: A single ``TaskAllocation-v0``, ``TaskRace-v0`` or ``TaskDispatch-v0``, maybe in
            wrappers that leave actions and observations as they are. It is reset, and belongs to
            the clock from now on.
        policy: The name of a policy (see ``ata_policies.make``), or a policy that is made already;
            oracles, too.
        seed: The seed of the task times, and of a policy that is given by its name.

    Raises:
        TypeError: If the env is any other.
        ValueError: If the policy plays another env, or is made for another number of workers or
            budget.

    Example:
        >>> import gymnasium, ata_gym
        >>> pool = {"family": "deterministic", "scale": [1, 3]}
        >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=pool, budget=4)
        >>> clock = Clock(env, "certainty-equivalence")
        >>> for batch in range(3):
        ...     print(clock.tick(), clock.allocation)
        6.0 [2 2]
        9.0 [3 1]
        12.0 [3 1]
    """

    rounds: int = 0
    """Rounds played."""
    runtime: float = 0.0
    """Their round times added up."""
    total_worker_time: float = 0.0
    """The time that all workers were busy in them."""
    allocation: Ints | None = None
    """(n,) the tasks that each worker was given in the last round, or started in dispatch.

    None before the first round.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        policy: str | Policy = "default",
        *,
        seed: int = 0,
    ) -> None:
        base_env: Any = getattr(env, "unwrapped", None)
        if not isinstance(base_env, TaskAllocationEnv | TaskDispatchEnv):
            raise TypeError(
                f"a clock is a single env of ata_gym, made with gymnasium.make, not {env}",
            )
        self.env = env
        self._bare = base_env
        seed = whole_number("seed", seed, least=0)
        if isinstance(policy, Policy):
            self.policy = policy
        else:
            self.policy = make(policy, env, seed)
        if (self.policy.setting.n, self.policy.setting.budget) != (base_env.n, base_env.budget):
            raise ValueError(
                f"the policy must be made for the env's {base_env.n} workers and B ="
                f" {base_env.budget}",
            )
        self._observation: Observation = env.reset(seed=seed)[0]
        self._state: State | None = None
        self._ended = False

    def tick(self) -> float:
        """Play one round, and return the runtime so far.

        Raises:
            ValueError: If the episode has ended, at its horizon or with the recorded task times.
        """
        if self._ended:
            raise ValueError(
                f"the episode ended after {self.rounds} rounds: make the env with a longer horizon"
                ' or none, and traces that wrap (end="wrap")',
            )
        dispatches = isinstance(self._bare, TaskDispatchEnv)
        # In dispatch the allocation is what was started in the round, and no single action.
        if dispatches:
            started_before = self._bare.checkpoint()["started"]
        else:
            started_before = None
        round_over = False
        while not round_over:
            action, self._state = decide(self.policy, self.env, self._observation, self._state)
            self._observation, _, terminated, truncated, info = self.env.step(action)
            round_over = info.get("round_over", True)
        self.rounds = self.rounds + 1
        self._ended = terminated or truncated
        self.runtime = info["runtime"]
        self.total_worker_time = info["total_worker_time"]
        if dispatches:
            self.allocation = (self._bare.checkpoint()["started"] - started_before)[0]
        else:
            self.allocation = action
        return self.runtime

    def allocator(self, workers: Iterable[Worker]) -> Allocator:
        """Return an allocator that goes on with what the policy has learned here.

        It is the same, bit for bit, as one that was given the times of all rounds so far.

        Args:
            workers: The names of the workers, as many as the env has, in its order.

        Raises:
            ValueError: In dispatch, or if there are more workers or fewer.

        Example:
            >>> import gymnasium, ata_gym
            >>> pool = {"family": "deterministic", "scale": [1, 3]}
            >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=pool, budget=4)
            >>> clock = Clock(env, "certainty-equivalence")
            >>> clock.tick()
            6.0
            >>> clock.allocator(["fast", "slow"]).allocate()
            {'fast': 3, 'slow': 1}
        """
        if isinstance(self._bare, TaskDispatchEnv):
            raise ValueError(  # noqa: TRY004 - as for all arguments
                "an allocator decides before each round, and this clock plays dispatch",
            )
        start_more = self.policy.env_id == "ata_gym/TaskRace-v0"
        allocator = Allocator(workers, self._bare.budget, self.policy, start_more=start_more)
        if self.allocation is not None and self._state is not None:
            allocator._go_on_after(self.allocation, self._observation, self._state)
        return allocator

    def state_dict(self) -> dict[str, Any]:
        """Return the whole memory as numbers in nested lists; see ``Allocator.state_dict``."""
        return sealed(_plain(self._parts()))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on, bit for bit, from the ``state_dict`` of a clock made with the same arguments.

        Raises:
            ValueError: If the values do not fit, if no state can have them, or if their checksum
                belongs to other values. Nothing changes then.
        """
        parts = {name: restored(part, state, name) for name, part in self._parts().items()}
        check_seal(state, _plain(parts))
        counts, env, observation, policy_state = parts.values()
        n = self._bare.n
        budget = self._bare.budget
        check_ranges(counts, Size(n, budget), "clock")
        checked_observation(observation, n, budget, self.policy.env_id)
        self.policy.check_state(policy_state, 1)
        self._bare.restore(env)
        self._observation = observation
        if counts.rounds > 0:
            self._state = policy_state
        else:
            self._state = None
        self.rounds = int(counts.rounds)
        self._ended = bool(counts.ended)
        self.runtime = float(counts.runtime)
        self.total_worker_time = float(counts.total_worker_time)
        if self.rounds:
            self.allocation = counts.allocation
        else:
            self.allocation = None

    def _parts(self) -> dict[str, Any]:
        """Return all that the state holds, as trees of arrays by name."""
        if self.allocation is None:
            tasks = np.zeros(self._bare.n, np.int64)
        else:
            tasks = self.allocation
        values = self.rounds, self.runtime, self.total_worker_time, self._ended, tasks
        counts = ClockCounts(*map(np.asarray, values))
        policy_state = self._state or self.policy.first_state(1)
        return {
            "clock": counts,
            "env": self._bare.checkpoint(),
            "observation": self._observation,
            "policy": policy_state,
        }


def _plain(parts: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, part in parts.items():
        values |= plain(part, name)
    return values
