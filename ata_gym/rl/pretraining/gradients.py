"""The first part of the training: the gradient of one round's cost under the true means.

The network plays. In the rounds of its play, several allocations near its own are compared by their
costs under the workers' true means, which the network does not see. This is the policy gradient of
a contextual bandit, with a baseline for each round. It goes back through all rounds before, so that
the network learns what to remember. It gives no value to the knowledge from trying a worker.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ata_gym.envs.interface.shares import tasks_of_shares
from ata_gym.envs.interface.worker_features import Features
from ata_gym.rl.network import RecurrentWorkersNet
from ata_gym.rl.pretraining.rollouts import rollout, training_seed
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats
from ata_policies.learned.network import Network

ROWS = 48
"""The rows of a rollout."""
_MOST_ROWS = 20  # rows that an update takes at most
_LEAST_ROWS = 3  # and at least
_WAIT = 1.5
"""The time of a task of an absent worker, in deadlines: others do it after the deadline."""
_WORK = 12_000  # rounds x rows x workers of an update, as far as the bounds of the rows allow
_NOISE = 0.3  # standard deviation of the logits
_ALLOCATIONS = 8  # allocations that are compared in a round
_DRAWS = 3  # draws of task times for each allocation


class Rollout(NamedTuple):
    """A rollout from which the network learns: T rounds of E rows."""

    features: NDArray[np.float32]
    """The features that the network saw, shape (T, E, n, 20)."""
    mean: Floats
    """The true mean task times, shape (T, E, n).

    They are infinite where there is no worker, and the wait for a worker that is away.
    """
    sd: Floats
    """The true standard deviations of the task times, shape (T, E, n); 0 for workers away."""
    scenario: Scenario
    """The scenario that was played."""


def play_rollout(rng: np.random.Generator, network: Network, scenario: Scenario) -> Rollout:
    """Let the network play, and keep the features that it saw and the true task times.

    Args:
        rng: The generator of the seeds.
        network: The network that plays.
        scenario: The scenario.
    """
    features: list[Features] = []
    means: list[Floats] = []
    sds: list[Floats] = []
    catalogue = scenario.catalogue.sd()
    for step in rollout(network, scenario, ROWS, training_seed(rng, ROWS)):
        conditions = step.envs.unwrapped.conditions()
        mean = step.envs.unwrapped.means()
        sd = np.minimum(catalogue[conditions.distribution] * conditions.factor, 1e6)
        waits = np.broadcast_to(
            np.reshape(_WAIT * np.asarray(conditions.deadline), (-1, 1)), mean.shape
        )
        if conditions.present is None:
            present = True
        else:
            present = conditions.present
        away = (conditions.death_time == 0.0) & present & (waits > 0.0)
        features.append(step.features)
        means.append(np.where(away, waits, mean))
        sds.append(np.where(away, 0.0, sd))
    # The last step comes after the last round, and no action follows it.
    return Rollout(np.stack(features[:-1]), np.stack(means[:-1]), np.stack(sds[:-1]), scenario)


def update(
    rng: np.random.Generator,
    net: RecurrentWorkersNet,
    optimizer: torch.optim.Optimizer,
    data: Rollout,
) -> float:
    """Take one gradient step, and return the mean logarithm of the compared costs.

    Args:
        rng: The generator of rows, allocations and task times.
        net: The network, which is changed.
        optimizer: Its optimizer.
        data: A rollout of the network.
    """
    rounds, _, n, _ = data.features.shape
    rows = rng.permutation(ROWS)[: min(max(_WORK // (rounds * n), _LEAST_ROWS), _MOST_ROWS)]
    logits = net(torch.from_numpy(data.features[:, rows]))[0].reshape(-1, n)
    mean, sd = (values[:, rows].reshape(-1, n) for values in (data.mean, data.sd))
    available = np.isfinite(mean)
    # Each noise has its opposite among the allocations, which lowers the variance of the gradient.
    half = rng.standard_normal((_ALLOCATIONS // 2, *available.shape))
    noise = np.concatenate([half, -half])
    noisy_logits = logits.detach().numpy().astype(np.float64) + _NOISE * noise
    tasks = tasks_of_shares(
        noisy_logits, data.scenario.budget, 1.0, np.broadcast_to(available, noisy_logits.shape)
    )
    mean = np.where(available, mean, 0.0)
    sd = np.where(available, sd, 0.0)
    cost = np.log(_costs(rng, tasks, mean, sd, data.scenario.price)).mean(axis=0)
    advantage = cost.mean(axis=0) - cost
    advantage /= advantage.std() + 1e-6
    # The gradient of the logarithm of a normal density by its mean is noise / standard deviation.
    ascent = (advantage[..., None] * noise).mean(axis=0) / _NOISE * available
    # Its gradient by the logits is -ascent over the number of rows.
    weights = torch.from_numpy(ascent.astype(np.float32))
    loss = -(logits * weights).sum(dim=-1).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return float(cost.mean())


def _costs(
    rng: np.random.Generator,
    tasks: NDArray[np.int64],
    mean: Floats,
    sd: Floats,
    price: float,
) -> Floats:
    """The costs, (draws, k, m), of rounds of k allocations in m rounds, ``tasks`` (k, m, n).

    All allocations have the same skewed noise.
    """
    # A Gumbel number, shifted and scaled to mean 0 and variance 1.
    skewed = rng.gumbel(size=(_DRAWS, 1, *mean.shape)) / 1.2826 - 0.45
    noisy_times = tasks * mean + np.sqrt(tasks) * sd * np.clip(skewed, -2, 4)
    times = np.maximum(noisy_times, 0.1 * tasks * mean)
    return np.asarray(times.max(axis=-1) + price * (tasks * mean).sum(axis=-1))
