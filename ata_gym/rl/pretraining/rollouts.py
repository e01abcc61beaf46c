"""Rollouts in which a network plays drawn workers as its policy in the zoo does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from ata_gym.envs.interface.worker_features import Features
from ata_gym.rl.network import WorkersNet
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats
from ata_policies.learned.network import Network
from ata_policies.learned.policy import LearnedAllocation, LearnedDispatch
from ata_policies.policy import Setting

Learned = LearnedAllocation | LearnedDispatch


class Moment(NamedTuple):
    """One step of a rollout, before it is taken."""

    envs: Any  # the vector env, which shows its privileged conditions
    observation: dict[str, NDArray[Any]]
    features: Features  # (E, n, 15) what the network saw
    cost: Floats  # (E,) the cost of the episode so far


class _Watched:
    """A network that keeps the features that it was asked for last."""

    def __init__(self, network: Network) -> None:
        self._network, self.last_bias = network, network.last_bias
        self.features: Features = np.empty(0, np.float32)

    def __call__(self, features: Features) -> NDArray[np.float32]:
        self.features = features
        return self._network(features)


def weights_of(net: WorkersNet) -> Network:
    """The weights of a torch module as the zoo plays them."""
    return Network.of({name: tensor.detach().numpy() for name, tensor in net.state_dict().items()})


def rollout(
    kind: type[Learned], network: Network, world: Scenario, rows: int, seed: int, steps: int | None = None
) -> Iterator[Moment]:
    """Play an episode in each row; ``steps`` ends it before, and the last moment comes after the last step."""
    envs: Any = gym.make_vec(kind.env_id, num_envs=rows, scenario=world)
    watched: Any = _Watched(network)
    policy, state = kind(Setting.of(envs), network=watched), None
    observation, _ = envs.reset(seed=seed)
    cost, taken, ended = np.zeros(rows), 0, False
    while not ended:
        action, state = policy.predict(observation, state)
        yield Moment(envs, observation, watched.features, cost)
        observation, reward, _, truncated, _ = envs.step(action)
        cost, taken = cost - reward, taken + 1
        ended = bool(truncated.all()) or taken == steps
    yield Moment(envs, observation, watched.features, cost)


def cost_of(kind: type[Learned], network: Network, world: Scenario, rows: int, seed: int) -> float:
    """The mean logarithm of what an episode costs."""
    *_, last = rollout(kind, network, world, rows, seed)
    return float(np.log(last.cost).mean())


def new_net(seed: int, hidden: int) -> WorkersNet:
    """A network with one number for each worker and none for the row's value."""
    torch.manual_seed(seed)
    return WorkersNet(for_worker=1, for_row=1, hidden=hidden)
