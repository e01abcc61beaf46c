"""Rollouts in which a network plays as its policy in the zoo does, and the workers that are drawn for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from ata_gym.changes import Change, OnOff, Redraw, Switch, Walk
from ata_gym.envs.interface.worker_features import Features
from ata_gym.pools import Pool, PoolDistribution, shifted_exponential
from ata_gym.rl.network import WorkersNet
from ata_gym.scenarios import SPLITS, Scenario
from ata_gym.scenarios.for_agents import FAMILIES, HEAVY_TAILED
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


_CHANGING: tuple[tuple[Change, ...], ...] = (
    (), (), (Switch(every=50),), (Walk(0.05, 1.0),), (OnOff(6.0, 0.01, 0.05),)
)  # fmt: skip
_ORDER = np.random.default_rng(0).permutation(51)
"""The order of workers whose means grow with their place, so that the first ones are not the fastest."""
_PRICES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)


def _world(
    pools: PoolDistribution, budget: int, horizon: int, price: float = 0.0, changes: tuple[tuple[Change, ...], ...] = ()
) -> Scenario:
    return Scenario(pools.typical(), budget, horizon, (Redraw(pools, among=changes),), price)


def _growing(place: NDArray[np.floating[Any]], power: float) -> Pool:
    """Shifted exponential times whose means grow with a power of the worker's place, as in published scenarios."""
    return shifted_exponential(place**power, place**power)


DRAWN: tuple[Scenario, ...] = (
    _world(PoolDistribution(6, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 8, 50),
    _world(PoolDistribution(6, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 8, 50, price=0.1),
    _world(PoolDistribution(4, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 16, 100, price=0.02),
    _world(PoolDistribution(12, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 24, 100, price=0.01),
    _world(PoolDistribution(12, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 12, 100, price=0.3),
    _world(PoolDistribution(16, 3, FAMILIES, (1.5, 30), (0.1, 1.5)), 32, 100),
    _world(PoolDistribution(30, None, FAMILIES, (2, 60), (0.1, 1.5)), 20, 100),
    _world(PoolDistribution(51, None, FAMILIES, (2, 60), (0.1, 1.5)), 23, 150),
    _world(PoolDistribution(51, None, FAMILIES, (2, 60), (0.1, 1.5)), 23, 100, price=0.1),
    _world(PoolDistribution(8, None, HEAVY_TAILED, (2, 20), (1, 4)), 12, 150),
    _world(PoolDistribution(12, None, FAMILIES, (1.5, 30), (0.1, 1.0)), 24, 150, changes=_CHANGING),
    _world(PoolDistribution(10, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 60, 80, price=0.03),
    _world(PoolDistribution(20, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 64, 80),
    _world(PoolDistribution(24, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 10, 100, price=1.0),
)
"""Pools of many kinds, drawn anew in each episode: each with a budget, a number of rounds and a price."""

WORLDS: tuple[Scenario, ...] = (
    *DRAWN,
    *(Scenario(_growing(_ORDER + 1.0, power), 23, 150) for power in (1.0, 0.5)),
    Scenario(_growing(_ORDER[_ORDER < 17] + 1.0, 1.0), 23, 100),
    Scenario(_growing(np.where(_ORDER[_ORDER < 36] < 4, 1.0, 12.0), 1.0), 18, 150),
)
"""Those of ``DRAWN``, and pools where one or a few workers get a large share of the best allocation."""


def some_worlds(
    rng: np.random.Generator, worlds: Sequence[Scenario], count: int, any_price: float
) -> Iterator[Scenario]:
    """Some worlds in random order, each with another price with probability ``any_price``."""
    for k in rng.permutation(len(worlds))[:count].tolist():
        other = rng.random() < any_price
        yield replace(worlds[k], price=float(rng.choice(_PRICES))) if other else worlds[k]


def training_seed(rng: np.random.Generator, rows: int) -> int:
    """The first seed of some rows, all of the split "train"."""
    seeds = SPLITS["train"]
    return int(rng.integers(seeds.start, seeds.stop - rows))
