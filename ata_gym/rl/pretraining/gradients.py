"""The first part of the training: the gradient of one round's cost, where the true means of the workers are known.

The network plays, and in the rounds of its own play several allocations near its own are compared by what they would
cost under the workers' true means, which the network does not see: the gradient of a policy in a contextual bandit,
with a baseline for each round. It goes back through all rounds before, so that the network learns what to remember. It
does not value what is learned by trying a worker.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ata_gym.envs.interface.shares import tasks_of_shares
from ata_gym.rl.network import RecurrentWorkersNet
from ata_gym.rl.pretraining.rollouts import rollout, training_seed
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats
from ata_policies.learned.network import Network

ROWS, _MOST_ROWS, _LEAST_ROWS = 48, 20, 3  # rows of a rollout, and those that an update takes
_WAIT = 1.5  # what a task of a worker that is away takes, in deadlines, as others do it after the deadline
_WORK = 12_000  # rounds x rows x workers of an update, as far as these bounds allow
_NOISE, _ALLOCATIONS, _DRAWS = 0.3, 8, 3
"""Standard deviation of the logits, allocations that are compared at a moment, and draws of times for each."""


class Played(NamedTuple):
    """A rollout from which the network learns: T rounds of E rows."""

    features: NDArray[np.float32]  # (T, E, n, 20)
    mean: Floats
    """(T, E, n) true mean task times; infinite where there is no worker, and the wait for one that is away."""
    sd: Floats
    world: Scenario


def played(rng: np.random.Generator, network: Network, world: Scenario) -> Played:
    """Let the network play, and keep what it saw and what was true."""
    kept: list[tuple[Any, ...]] = []
    catalogue = world.catalogue.sd()
    for moment in rollout(network, world, ROWS, training_seed(rng, ROWS)):
        now, mean = moment.envs.unwrapped.conditions(), moment.envs.unwrapped.means()
        sd = np.minimum(catalogue[now.distribution] * now.factor, 1e6)
        waited = np.broadcast_to(np.reshape(_WAIT * np.asarray(now.deadline), (-1, 1)), mean.shape)
        away = (now.dies == 0.0) & (True if now.present is None else now.present) & (waited > 0.0)
        kept.append((moment.features, np.where(away, waited, mean), np.where(away, 0.0, sd)))
    features, mean, sd = (np.stack(part) for part in zip(*kept[:-1], strict=True))
    return Played(features, mean, sd, world)


def update(rng: np.random.Generator, net: RecurrentWorkersNet, optimizer: torch.optim.Optimizer, data: Played) -> float:
    """Take one step of gradient; the mean logarithm of the cost of the allocations that were compared."""
    rounds, _, n, _ = data.features.shape
    rows = rng.permutation(ROWS)[: min(max(_WORK // (rounds * n), _LEAST_ROWS), _MOST_ROWS)]
    logits = net(torch.from_numpy(data.features[:, rows]))[0].reshape(-1, n)
    mean, sd = (part[:, rows].reshape(-1, n) for part in (data.mean, data.sd))
    there = np.isfinite(mean)
    half = rng.standard_normal((_ALLOCATIONS // 2, *there.shape))
    noise = np.concatenate([half, -half])
    near = logits.detach().numpy().astype(np.float64) + _NOISE * noise
    tasks = tasks_of_shares(near, data.world.budget, 1.0, np.broadcast_to(there, near.shape))
    mean, sd = np.where(there, mean, 0.0), np.where(there, sd, 0.0)
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
    return np.asarray(times.max(axis=-1) + price * (tasks * mean).sum(axis=-1))
