"""The specification of an agent: an env, an algorithm, a form of actions, hyperparameters."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from ata_gym.envs.states.batch_state import BatchState
from ata_gym.envs.states.dispatch import DispatchState
from ata_gym.envs.states.rounds import AllocationState, RaceState
from ata_gym.utils.extras import require
from ata_gym.utils.validation import unknown
from ata_policies.agent import from_agent
from ata_policies.policy import Policy
from ata_policies.registry import ids_by_name

_STATES: dict[str, type[BatchState]] = {
    "allocation": AllocationState,
    "race": RaceState,
    "dispatch": DispatchState,
}
ACTIONS = {
    env: tuple(form for form in state.forms if form != "allocation")
    for env, state in _STATES.items()
}
"""The forms of actions that agents are trained with, by the short name of the env.

No library has a space for allocations.
"""


class _Algorithm(NamedTuple):
    """An algorithm of Stable-Baselines3 or sb3-contrib."""

    module: str
    """The library."""
    name: str
    """The class in the library."""
    workers: bool
    """Whether it takes ``WorkersPolicy``.

    Else it gets a network of layers, and the features in one row.
    """
    masked: bool
    """Whether it takes masks of actions."""
    actions: tuple[str, ...] = ("shares", "assign", "dispatch", "start")
    """The forms of actions that it takes."""


_CHOICES = ("assign", "start")
_ALGORITHMS = {
    "ppo": _Algorithm("stable_baselines3", "PPO", workers=True, masked=False),
    "a2c": _Algorithm("stable_baselines3", "A2C", workers=True, masked=False),
    "maskable-ppo": _Algorithm(
        "sb3_contrib",
        "MaskablePPO",
        workers=False,
        masked=True,
        actions=_CHOICES,
    ),
    "dqn": _Algorithm("stable_baselines3", "DQN", workers=False, masked=False, actions=_CHOICES),
}

_NO_HYPERPARAMETERS = {
    "self",
    "policy",
    "env",
    "seed",
    "device",
    "verbose",
    "tensorboard_log",
    "_init_setup_model",
    # These draw numbers between rollouts, where a run is saved.
    "use_sde",
    "sde_sample_freq",
    "rollout_buffer_class",
    "rollout_buffer_kwargs",
    "replay_buffer_class",
    "replay_buffer_kwargs",
    "monitor_wrapper",
    "optimize_memory_usage",
}
"""The parameters of the algorithms that are no hyperparameters here."""


@dataclass(frozen=True)
class AgentSpec:
    """An agent before it is trained.

    Raises:
        ValueError: For an unknown name or hyperparameter, or an action that the algorithm does not
            take.

    Example:
        >>> spec = AgentSpec("allocation", "ppo", hyperparameters={"gamma": 0.9})
        >>> spec.action, spec.hyperparameters["gamma"], spec.hyperparameters["n_steps"]
        ('shares', 0.9, 25)
    """

    env: str
    """The short name of the env: allocation, race or dispatch."""
    algorithm: str = "ppo"
    """The algorithm: ppo, a2c, maskable-ppo or dqn."""
    action: str = ""
    """The form of actions; by default the first one of the env that the algorithm takes."""
    seed: int = 0
    """The seed of the training."""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """The hyperparameters of the algorithm.

    For ppo, ``ata_gym.rl.sb3.policy.PPO_SETTINGS`` are the defaults, else the library's own are.
    """

    def __post_init__(self) -> None:
        if self.env not in ACTIONS:
            raise unknown("env", self.env, ACTIONS)
        if self.algorithm not in _ALGORITHMS:
            raise unknown("algorithm", self.algorithm, _ALGORITHMS)
        usable = [action for action in ACTIONS[self.env] if action in self._algorithm.actions]
        if not usable:
            raise ValueError(
                f"{self.algorithm} takes none of the actions of {self.env}: use ppo or a2c",
            )
        if not self.action:
            object.__setattr__(self, "action", usable[0])
        if self.action not in usable:
            raise unknown(f"action of {self.algorithm} in {self.env}", self.action, usable)
        names = [
            name
            for name in inspect.signature(self._class()).parameters
            if name not in _NO_HYPERPARAMETERS
        ]
        for name in self.hyperparameters:
            if name not in names:
                raise unknown(f"hyperparameter of {self.algorithm}", name, names)
        # The dataclass is frozen, so its fields are completed by ``object.__setattr__``.
        if self.algorithm == "ppo":
            from ata_gym.rl.sb3.policy import PPO_SETTINGS  # noqa: PLC0415 - it imports torch

            object.__setattr__(self, "hyperparameters", {**PPO_SETTINGS, **self.hyperparameters})

    @property
    def _algorithm(self) -> _Algorithm:
        return _ALGORITHMS[self.algorithm]

    def _class(self) -> Any:
        """The class of the algorithm, with MissingExtraError without its library."""
        library = require(
            self._algorithm.module, extra="rl", purpose=f"The algorithm {self.algorithm}"
        )
        return getattr(library, self._algorithm.name)

    @property
    def env_id(self) -> str:
        """The id of the env."""
        return ids_by_name()[self.env]

    @property
    def any_size(self) -> bool:
        """Whether the agent plays with any number of workers and any budget."""
        return self._algorithm.workers

    def form(self) -> dict[str, Any]:
        """Arguments of the env: observations, actions and the unit of rewards."""
        if self._algorithm.workers:
            observation = "workers"
        else:
            observation = "flat"
        return {"observation": observation, "action": self.action, "reward_unit": "even round"}

    def config(self) -> dict[str, Any]:
        """The specification as plain data."""
        settings = {
            "env": self.env,
            "algorithm": self.algorithm,
            "action": self.action,
            "seed": self.seed,
        }
        return {**settings, "hyperparameters": dict(self.hyperparameters)}

    def make(self, envs: Any) -> Any:
        """Make the untrained agent on a ``VecEnv``, on the CPU.

        Args:
            envs: The ``VecEnv`` that the agent is trained in.

        Raises:
            ValueError: For a hyperparameter that the algorithm does not take.
        """
        return self._make(envs, self.hyperparameters)

    def make_for_play(self, envs: Any) -> Any:
        """Make an agent for loaded weights, with the hyperparameters of the network only.

        Args:
            envs: A ``VecEnv`` with the spaces of the agent.

        Raises:
            ValueError: As for :meth:`make`.
        """
        networks = {
            name: value for name, value in self.hyperparameters.items() if name == "policy_kwargs"
        }
        # An agent that only plays needs no replay buffer.
        if self.algorithm == "dqn":
            memory = {"buffer_size": 1}
        else:
            memory = {}
        return self._make(envs, {**networks, **memory})

    def _make(self, envs: Any, hyperparameters: Mapping[str, Any]) -> Any:
        """Make an agent with some hyperparameters."""
        try:
            return self._class()(
                self._policy(),
                envs,
                seed=self.seed,
                device="cpu",
                **hyperparameters,
            )
        except (TypeError, ValueError, AssertionError, AttributeError, KeyError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"{self.algorithm} does not take these hyperparameters: {reason}",
            ) from error

    def policy_class(
        self,
        agent: Any,
        env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any],
    ) -> type[Policy]:
        """A class of policies that play as the agent does.

        They use the weights that the agent has at the time of each decision.

        Args:
            agent: The agent.
            env: An env with the spaces of the agent.
        """
        return from_agent(agent, env, any_size=self.any_size, masked=self._algorithm.masked)

    def _policy(self) -> Any:
        """The policy class of the library, or its name there."""
        if not self._algorithm.workers:
            return "MlpPolicy"
        from ata_gym.rl.sb3.policy import WorkersPolicy  # noqa: PLC0415 - it imports torch

        return WorkersPolicy


_AGENT_CLASSES = {
    "allocation": "LearnedAgent",
    "race": "LearnedRaceAgent",
    "dispatch": "LearnedDispatchAgent",
}


def policy_name(env: str, folder: Path) -> str:
    """The name of the agent in a folder, for ``ata-gym bench`` and ``ata_policies.make``.

    Args:
        env: The short name of the env.
        folder: The folder of the agent.

    Example:
        >>> policy_name("race", Path("results"))
        'ata_gym.rl.agent:LearnedRaceAgent:folder=results'
    """
    return f"ata_gym.rl.agent:{_AGENT_CLASSES[env]}:folder={folder.as_posix()}"
