"""Agents of RL libraries as policies.

So they can play in benchmarks, on the leaderboard and in loops that do real work.
"""

from collections.abc import Callable
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.interface.actions import pick_idle, present_mask, start_mask
from ata_gym.envs.interface.shares import SCALE, checked_shares, race_of_shares, tasks_of_shares
from ata_gym.envs.interface.worker_features import (
    RoundFeatures,
    WorkerMemory,
    features_of,
    flat,
    present_in,
)
from ata_gym.typing import Floats, Ints
from ata_policies.beliefs.belief import NoPlan
from ata_policies.observations import Observation
from ata_policies.policy import DispatchPolicy, Policy, State
from ata_policies.registry import id_of
from ata_policies.setting import Setting


class Agent(Protocol):
    """The method that agents of Stable-Baselines3 and sb3-contrib have."""

    def predict(self, observation: NDArray[Any], deterministic: bool = False) -> Any:
        """Return actions for a batch of observations, maybe with a state after them.

        Args:
            observation: (E, ...) float32, a batch of E rows.
            deterministic: Whether the agent's own randomness is left out.
        """


def from_agent(
    agent: Agent | Callable[[NDArray[np.float32]], Any],
    env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any],
    *,
    any_size: bool = False,
    masked: bool = False,
) -> type[Policy]:
    """Make a class of policies that play as a trained agent does, without its own randomness.

    Put the class into a module of your own, and name it ``package.module:Class`` in ``ata-gym
    bench`` and ``ata-gym leaderboard``.

    Args:
        agent: An object with ``predict(observation, deterministic=True)``, as agents of
            Stable-Baselines3 have, or a function from a batch of observations, (E, ...) float32, to
            actions, (E, ...), such as a torch module behind ``torch.no_grad``.
        env: An env like the env of the training, with ``observation="workers"`` or ``"flat"``. Its
            id, its forms of observations and actions, n and B count, and whether its workers pay a
            latency: only such an agent sees latencies, another one sees times of whole shares.
        any_size: Whether the agent plays any n and B, as one with ``WorkersNet`` does. By default
            they are n and B of ``env``, and another setting raises ValueError.
        masked: Whether ``predict`` takes ``action_masks``, as agents of sb3-contrib do.

    Raises:
        ValueError: If the env is not one of this project, or shows the feedback itself.

    Example:
        >>> import ata_gym
        >>> env = gym.make("ata_gym/TaskAllocation-v0", observation="workers", action="shares")
        >>> class Fastest(from_agent(lambda workers: -workers[..., 1], env)):
        ...     '''Shares that fall with the mean.'''
        >>> policy = Fastest(Setting.from_env(env))
        >>> policy.predict(gym.make("ata_gym/TaskAllocation-v0").reset(seed=0)[0])[0]
        array([2, 2, 2, 1, 1])
    """
    env_id = id_of(env)
    bare: Any = getattr(env, "unwrapped", None)
    observation, action, _ = bare.interface_arguments
    if observation == "feedback":
        raise ValueError(
            'an agent sees features: make the env with observation="workers" or "flat"',
        )
    if any_size:
        size = None
    else:
        size = (Setting.from_env(env).n, Setting.from_env(env).budget)
    contract: Any
    if env_id == DispatchPolicy.env_id:
        contract = DispatchPolicy
    else:
        contract = Policy
    members = {
        "__doc__": "An agent of an RL library.",
        "__module__": __name__,
        "env_id": env_id,
        "only_size": size,
        "agent": staticmethod(_answers(agent, masked)),
        "form": (observation, action),
        "uses_latency": bare.pool.latency is not None,
    }
    return type("AgentPolicy", (_AgentPolicy, contract), members)


def _answers(agent: Any, masked: bool) -> Callable[..., NDArray[Any]]:
    """Return a function from observations, and a mask, to the agent's actions."""
    if not hasattr(agent, "predict"):
        return lambda observation, mask=None: np.asarray(agent(observation))  # noqa: ARG005

    def predicted(
        observation: NDArray[np.float32],
        mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[Any]:
        if masked and mask is not None:
            masks = {"action_masks": mask}
        else:
            masks = {}
        actions = agent.predict(observation, deterministic=True, **masks)
        # agents of Stable-Baselines3 answer with a state of their own, too
        if isinstance(actions, tuple):
            actions = actions[0]
        return np.asarray(actions)

    return predicted


class _AgentPolicy(Policy[WorkerMemory, NoPlan]):
    """Asks an agent for actions, on features computed from the feedback as the env does."""

    source = "an agent of an RL library"
    constants = "the agent's"
    assumes = "workers like those that it was trained on"
    priced = True
    nonstationary = True
    belief = WorkerMemory
    agent: Callable[..., NDArray[Any]]
    """From observations, and a mask, to actions."""
    form: tuple[str, str]
    """The forms of the agent's observations and of its actions."""

    def act(
        self, state: State[WorkerMemory, NoPlan], observation: Observation
    ) -> tuple[Ints, State[WorkerMemory, NoPlan]]:
        belief = state.belief.with_answers(observation)
        if self.uses_latency:
            belief = belief.with_latencies(observation)
        state = state._replace(belief=belief)
        forms = {"shares": self._shares, "assign": self._assign, "start": self._start}
        choose = forms.get(self.form[1], self._whole)
        action = choose(state, observation)
        return action, state._replace(belief=state.belief.with_assigned(action))

    def note_tasks(
        self, state: State[WorkerMemory, NoPlan], tasks: Ints
    ) -> State[WorkerMemory, NoPlan]:
        return state._replace(belief=state.belief.with_assigned(tasks))

    def _whole(self, state: State[WorkerMemory, NoPlan], observation: Observation) -> Ints:
        """Return the agent's actions as they are."""
        return self.agent(self._observed(state, observation)).astype(np.int64)

    def _shares(self, state: State[WorkerMemory, NoPlan], observation: Observation) -> Ints:
        """Return the tasks of the agent's shares; in a race, the last share is its size."""
        features = self._observed(state, observation)
        race = self.env_id == "ata_gym/TaskRace-v0"
        shape = len(features), self.setting.n + race
        shares: Floats = checked_shares(self.agent(features), shape)
        if race:
            return race_of_shares(shares, self.setting.budget, SCALE, present_in(observation))
        return tasks_of_shares(shares, self.setting.budget, SCALE, present_in(observation))

    def _assign(self, state: State[WorkerMemory, NoPlan], observation: Observation) -> Ints:
        """Return the tasks that the agent assigns one by one."""
        rows = np.arange(len(state.round))
        tasks = np.zeros((len(rows), self.setting.n), np.int64)
        mask = present_mask(present_in(observation), tasks.shape)
        for _ in range(self.setting.budget):
            tasks[rows, self.agent(self._observed(state, observation, tasks), mask)] += 1
        return tasks

    def _start(self, state: State[WorkerMemory, NoPlan], observation: Observation) -> Ints:
        """Return the workers that the agent starts one by one, until it lets time pass."""
        started = np.zeros((len(state.round), self.setting.n), np.int64)
        present = present_mask(present_in(observation), started.shape)
        # the rows that have not let time pass yet
        going = np.ones(len(started), np.bool_)
        while going.any():
            idle = present & (observation["running"] == 0) & (started == 0)
            going &= idle.any(axis=1)
            chosen = self.agent(
                self._observed(state, observation, started), start_mask(idle, present)
            )
            going &= pick_idle(idle & going[:, None], chosen, started)
        return started

    def _observed(
        self,
        state: State[WorkerMemory, NoPlan],
        observation: Observation,
        added: Ints | None = None,
    ) -> NDArray[np.float32]:
        """Return the features, with tasks that were ``added`` in this round already, (E, n)."""
        setting = self.setting
        of_round = RoundFeatures(setting.budget, setting.price, setting.horizon, self.uses_latency)
        features: NDArray[np.float32] = features_of(
            state.belief,
            of_round,
            state.round - 1,
            observation,
            added,
        )
        if self.form[0] == "workers":
            return features
        return flat(features)
