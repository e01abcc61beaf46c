"""Agents of RL libraries as policies: for the benchmarks, the leaderboard and loops that do real work."""

from collections.abc import Callable
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.interface.actions import all_or, pick_idle, start_mask
from ata_gym.envs.interface.shares import SCALE, checked_shares, race_of_shares, tasks_of_shares
from ata_gym.envs.interface.worker_features import RoundFeatures, WorkerMemory, features_of, flat, present_in
from ata_gym.typing import Floats, Ints
from ata_policies.observations import Observation
from ata_policies.policy import DispatchPolicy, Policy, State
from ata_policies.registry import id_of
from ata_policies.setting import Setting


class Agent(Protocol):
    """The method that agents of Stable-Baselines3 and sb3-contrib have."""

    def predict(self, observation: NDArray[Any], deterministic: bool = False) -> Any:
        """Actions of a batch of observations, maybe with a state after them."""


def from_agent(
    agent: Agent | Callable[[NDArray[np.float32]], Any], env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any],
    *, any_size: bool = False, masked: bool = False,
) -> type[Policy]:  # fmt: skip
    """A class of policies that play as an agent does that was trained in ``env``, without its own randomness.

    Put the class into a module of your own, and name it ``package.module:Class`` in ``ata-gym bench`` and
    ``ata-gym leaderboard``. ValueError if the env is not one of this project, or shows the feedback itself.

    - ``agent``: an object with ``predict(observation, deterministic=True)``, as agents of Stable-Baselines3 have, or a
      function from a batch of observations, (E, ...) float32, to actions, (E, ...), such as a torch module behind
      ``torch.no_grad``.
    - ``env``: an env like that of the training, with ``observation="workers"`` or ``"flat"``. Its id, its forms of
      observations and actions, n and B count.
    - ``any_size``: whether the agent plays any n and B, as one with ``WorkersNet`` does. By default they are those of
      ``env``, and another setting raises ValueError.
    - ``masked``: whether ``predict`` takes ``action_masks``, as agents of sb3-contrib do.

    >>> import ata_gym
    >>> env = gym.make("ata_gym/TaskAllocation-v0", observation="workers", action="shares")
    >>> class Fastest(from_agent(lambda workers: -workers[..., 1], env)):
    ...     '''Shares that fall with the mean.'''
    >>> policy = Fastest(Setting.of(env))
    >>> policy.predict(gym.make("ata_gym/TaskAllocation-v0").reset(seed=0)[0])[0]
    array([2, 2, 2, 1, 1])
    """
    env_id, bare = id_of(env), getattr(env, "unwrapped", None)
    observation, action, _ = bare.interface_arguments  # type: ignore[union-attr]
    if observation == "feedback":
        raise ValueError('an agent sees features: make the env with observation="workers" or "flat"')
    size = None if any_size else (Setting.of(env).n, Setting.of(env).budget)
    contract = DispatchPolicy if env_id == DispatchPolicy.env_id else Policy
    members = {
        "__doc__": "An agent of an RL library.", "__module__": __name__, "env_id": env_id, "only_size": size,
        "agent": staticmethod(_answers(agent, masked)), "form": (observation, action),
    }  # fmt: skip
    return type("AgentPolicy", (_AgentPolicy, contract), members)


def _answers(agent: Any, masked: bool) -> Callable[..., NDArray[Any]]:
    if not hasattr(agent, "predict"):
        return lambda observation, mask=None: np.asarray(agent(observation))  # noqa: ARG005

    def predicted(observation: NDArray[np.float32], mask: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        masks = {"action_masks": mask} if masked and mask is not None else {}
        actions = agent.predict(observation, deterministic=True, **masks)
        return np.asarray(actions[0] if isinstance(actions, tuple) else actions)

    return predicted


class _AgentPolicy(Policy):
    """Computes the features from the feedback as the env does, asks the agent, and reads its form of actions."""

    source = "an agent of an RL library"
    constants = "those of the agent"
    assumes = "workers like those that it was trained on"
    priced = True
    nonstationary = True
    belief = WorkerMemory
    agent: Callable[..., NDArray[Any]]
    form: tuple[str, str]

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        read = {"shares": self._shares, "assign": self._assign, "start": self._start}.get(self.form[1], self._whole)
        action = read(state, seen)
        return action, state._replace(belief=state.belief.asked(action))

    def _whole(self, state: State, seen: Observation) -> Ints:
        return self.agent(self._observed(state, seen)).astype(np.int64)

    def _shares(self, state: State, seen: Observation) -> Ints:
        features = self._observed(state, seen)
        race = self.env_id == "ata_gym/TaskRace-v0"
        shares: Floats = checked_shares(self.agent(features), (len(features), self.setting.n + race))
        return (race_of_shares if race else tasks_of_shares)(shares, self.setting.budget, SCALE, present_in(seen))

    def _assign(self, state: State, seen: Observation) -> Ints:
        rows = np.arange(len(state.round))
        tasks = np.zeros((len(rows), self.setting.n), np.int64)
        mask = all_or(present_in(seen), tasks.shape)
        for _ in range(self.setting.budget):
            tasks[rows, self.agent(self._observed(state, seen, tasks), mask)] += 1
        return tasks

    def _start(self, state: State, seen: Observation) -> Ints:
        started = np.zeros((len(state.round), self.setting.n), np.int64)
        present = all_or(present_in(seen), started.shape)
        going = np.ones(len(started), np.bool_)  # rows that have not let time pass
        while going.any():
            idle = present & (seen["running"] == 0) & (started == 0)
            going &= idle.any(axis=1)
            chosen = self.agent(self._observed(state, seen, started), start_mask(idle, present))
            going &= pick_idle(idle & going[:, None], chosen, started)
        return started

    def _observed(self, state: State, seen: Observation, added: Ints | None = None) -> NDArray[np.float32]:
        setting = self.setting
        of_round = RoundFeatures(setting.budget, setting.price, setting.horizon)
        features: NDArray[np.float32] = features_of(state.belief, of_round, state.round - 1, seen, added)
        return features if self.form[0] == "workers" else flat(features)
