"""Rollouts in which a network plays as its policy in the zoo does."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.interface.worker_features import Features
from ata_gym.rl.network import RecurrentWorkersNet
from ata_gym.scenarios import SPLITS, Scenario
from ata_gym.typing import Floats
from ata_policies.learned.network import Network, NetworkMemory
from ata_policies.learned.policy import Learned
from ata_policies.setting import Setting


class RolloutStep(NamedTuple):
    """One round of a rollout, before it is played."""

    envs: Any
    """The vector env, which shows its privileged conditions."""
    features: Features
    """The features that the network saw, shape (E, n, 20)."""
    cost: Floats
    """The cost of the episode so far, shape (E,)."""


class _RecordingNetwork:
    """A network that keeps the features of its last call."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.begin = network.begin
        self.features: Features = np.empty(0, np.float32)

    def __call__(
        self,
        features: Features,
        memory: NetworkMemory,
    ) -> tuple[NDArray[np.float32], NetworkMemory]:
        self.features = features
        return self._network(features, memory)


def network_of(net: RecurrentWorkersNet) -> Network:
    """The weights of a torch module, as a network of the zoo."""
    return Network.from_tensors(
        {name: tensor.detach().numpy() for name, tensor in net.state_dict().items()}
    )


def rollout(network: Network, scenario: Scenario, rows: int, seed: int) -> Iterator[RolloutStep]:
    """Play an episode in each row; the last step comes after the last round.

    Args:
        network: The network that plays.
        scenario: The scenario.
        rows: The number of rows E.
        seed: Seed of the first row; the others follow.
    """
    envs: Any = gym.make_vec(Learned.env_id, num_envs=rows, scenario=scenario)
    recording_network: Any = _RecordingNetwork(network)
    policy = Learned(Setting.from_env(envs), network=recording_network)
    state = None
    observation, _ = envs.reset(seed=seed)
    cost = np.zeros(rows)
    ended = False
    while not ended:
        action, state = policy.predict(observation, state)
        yield RolloutStep(envs, recording_network.features, cost)
        observation, reward, _, truncated, _ = envs.step(action)
        cost = cost - reward
        ended = bool(truncated.all())
    yield RolloutStep(envs, recording_network.features, cost)


def cost_of(network: Network, scenario: Scenario, rows: int, seed: int) -> float:
    """The mean logarithm of the cost of an episode, over the rows of a rollout."""
    *_, last_step = rollout(network, scenario, rows, seed)
    return float(np.log(last_step.cost).mean())


def training_seed(rng: np.random.Generator, rows: int) -> int:
    """Draw the first seed of some rows, all in the split "train"."""
    seeds = SPLITS["train"]
    return int(rng.integers(seeds.start, seeds.stop - rows))
