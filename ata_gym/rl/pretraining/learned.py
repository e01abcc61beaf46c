"""The training of ``learned``: gradients of one round's cost, where the workers are known, then search over episodes.

In the first part the network plays, and at a quarter of its moments several allocations near its own are compared by
what they would cost under the workers' true means, which the network does not see: the gradient of a policy in a
contextual bandit, with a baseline for each moment. It does not value what is learned by trying a worker. The second
part does, as it compares whole episodes: it is the cross-entropy method over the network's linear part.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ata_gym.envs.interface.shares import tasks_of_shares
from ata_gym.envs.interface.worker_features import OF_WORKER, WIDTH
from ata_gym.rl.network import WorkersNet
from ata_gym.rl.pretraining.rollouts import WORLDS, cost_of, new_net, rollout, some_worlds, training_seed, weights_of
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats
from ata_policies.learned.network import Network
from ata_policies.learned.policy import LearnedAllocation

_ROWS, _KEPT, _ROLLOUTS = 48, 0.25, 40
"""Rows of a rollout, the share of its moments that are kept, and the rollouts that are learned from."""
_NOISE, _ALLOCATIONS, _DRAWS = 0.3, 8, 3
"""Standard deviation of the logits, allocations that are compared at a moment, and draws of times for each."""
_UPDATES, _RATE, _LAST_RATE = 300, 1e-3, 3e-5
_POWER = 1.5  # the network begins with shares in proportion to mean^-1.5

_POPULATION, _ELITE, _SEARCH_ROWS, _WITH_MANY, _SEARCH_WORLDS = 20, 5, 24, 2, 5
_SPREAD = {"log count": 0.4, "log mean": 0.4, "log recent": 0.4, "spread": 0.2, "untried": 0.4, "last duration": 0.4}
"""First standard deviation of the search for each feature's weight."""
_LONGEST = 200


class Moments(NamedTuple):
    """Moments of a rollout that are learned from."""

    features: NDArray[np.float32]
    mean: Floats
    """(m, n) true mean task times; infinite where there is no worker, or it is away."""
    sd: Floats
    world: Scenario


def train(iterations: int, generations: int, seed: int = 0, hidden: int = 32) -> Iterator[tuple[str, WorkersNet]]:
    """Train, in two turns of both parts, and yield a line on each step with the network after it.

    What the search adds to the linear part is kept apart while gradients are taken, which would undo it, as they do not
    value what is learned by trying. But the network that plays has it.
    """
    rng, net = np.random.default_rng(seed), new_net(seed, hidden)
    with torch.no_grad():
        net.direct.weight[0, OF_WORKER.index("log mean")] = -_POWER
    optimizer, data = torch.optim.Adam(net.parameters(), _RATE), list[Moments]()
    added = np.zeros(WIDTH)
    for k in range(iterations):
        network = weights_of(_with(net, added))
        for world in some_worlds(rng, WORLDS, len(WORLDS) if k == 0 else 6, any_price=0.5):
            data.append(_played(rng, network, world))
        del data[:-_ROLLOUTS]
        for group in optimizer.param_groups:
            group["lr"] = _RATE + (_LAST_RATE - _RATE) * k / iterations
        cost = np.mean([_update(rng, net, optimizer, data[rng.integers(len(data))]) for _ in range(_UPDATES)])
        yield f"iteration {k + 1}: mean logarithm of a round's cost {cost:.4f}", _with(net, added)
        if k + 1 in (iterations // 2, iterations):
            first = k + 1 < iterations
            turns = generations // 2 if first else generations - generations // 2
            for line, middle in _search(rng, net, added, turns):
                added = middle
                yield line, _with(net, added)


def _played(rng: np.random.Generator, network: Network, world: Scenario) -> Moments:
    """Let the network play, and keep some moments."""
    kept: list[tuple[Any, ...]] = []
    catalogue = world.catalogue.sd()
    for moment in rollout(LearnedAllocation, network, world, _ROWS, training_seed(rng, _ROWS)):
        some = rng.random(_ROWS) < _KEPT
        now = moment.envs.unwrapped.conditions()
        sd = np.minimum(catalogue[now.distribution] * now.factor, 1e6)
        kept.append((moment.features[some], moment.envs.unwrapped.means()[some], sd[some]))
    features, mean, sd = (np.concatenate(part) for part in zip(*kept, strict=True))
    return Moments(features, mean, sd, world)


def _update(rng: np.random.Generator, net: WorkersNet, optimizer: torch.optim.Optimizer, data: Moments) -> float:
    """Take one step of gradient; the mean logarithm of the cost of the allocations that were compared."""
    some = rng.integers(len(data.features), size=512 if data.features.shape[1] < 20 else 192)
    logits = net(torch.from_numpy(data.features[some]))[0][..., 0]
    there = np.isfinite(data.mean[some])
    half = rng.standard_normal((_ALLOCATIONS // 2, *there.shape))
    noise = np.concatenate([half, -half])
    near = logits.detach().numpy().astype(np.float64) + _NOISE * noise
    tasks = tasks_of_shares(near, data.world.budget, 1.0, np.broadcast_to(there, near.shape))
    mean, sd = np.where(there, data.mean[some], 0.0), np.where(there, data.sd[some], 0.0)
    cost = np.log(_costs(rng, tasks, mean, sd, data.world.price)).mean(axis=0)
    advantage = cost.mean(axis=0) - cost
    advantage /= advantage.std() + 1e-6
    ascent = (advantage[..., None] * noise).mean(axis=0) / _NOISE * there
    loss = -(logits * torch.from_numpy(ascent.astype(np.float32))).sum(dim=-1).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return float(cost.mean())


def _costs(rng: np.random.Generator, tasks: NDArray[np.int64], mean: Floats, sd: Floats, price: float) -> Floats:
    """The costs of rounds of allocations (k, m, n), (draws, k, m), with the same skewed noise for all allocations."""
    skewed = rng.gumbel(size=(_DRAWS, 1, *mean.shape)) / 1.2826 - 0.45  # of mean 0 and variance 1
    times = np.maximum(tasks * mean + np.sqrt(tasks) * sd * np.clip(skewed, -2, 4), 0.1 * tasks * mean)
    costs: Floats = times.max(axis=-1) + price * (tasks * mean).sum(axis=-1)
    return costs


def _search(rng: np.random.Generator, net: WorkersNet, added: Floats, generations: int) -> Iterator[tuple[str, Floats]]:
    """The cross-entropy method over what is added to the weights of the linear part."""
    middle = added
    spread = np.array([_SPREAD.get(name, 0.0) for name in OF_WORKER] + [0.0] * (WIDTH - len(OF_WORKER)))
    longer = [replace(world, horizon=min(2 * (world.horizon or _LONGEST), _LONGEST)) for world in WORLDS]
    many = [world for world in longer if world.pool.n == max(one.pool.n for one in longer)]  # most to explore
    for g in range(generations):
        chosen = [(many, _WITH_MANY), (longer, _SEARCH_WORLDS)]
        worlds = [these[k] for these, count in chosen for k in rng.permutation(len(these))[:count]]
        seed = training_seed(rng, _SEARCH_ROWS)
        tried = middle + spread * rng.standard_normal((_POPULATION, WIDTH))
        tried[0] = middle
        networks = [weights_of(_with(net, one)) for one in tried]
        costs = np.array(
            [[cost_of(LearnedAllocation, one, world, _SEARCH_ROWS, seed) for world in worlds] for one in networks]
        )
        score = (costs - costs.mean(axis=0)).mean(axis=1)
        elite = tried[np.argsort(score)[:_ELITE]]
        middle = 0.5 * middle + 0.5 * elite.mean(axis=0)
        spread = np.where(spread > 0, 0.5 * spread + 0.5 * elite.std(axis=0), 0.0)
        yield f"generation {g + 1}: the best costs {np.exp(score.min() - score[0]):.4f} of the middle", middle


def _with(net: WorkersNet, added: Floats) -> WorkersNet:
    """A copy of the network with the weights that the search has added."""
    copy = deepcopy(net)
    with torch.no_grad():
        copy.direct.weight += torch.from_numpy(added.astype(np.float32))
    return copy
