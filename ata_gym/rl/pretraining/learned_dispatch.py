"""The training of ``learned-dispatch``: the network imitates the policy ``dispatch`` on what it meets when it plays.

At each moment of its own play the network sees what the planner would do, and learns that; this is DAgger (Ross,
Gordon and Bagnell, 2011). In the first iteration the planner plays half of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits

from ata_gym.rl.network import WorkersNet
from ata_gym.rl.pretraining.rollouts import DRAWN, new_net, rollout, some_worlds, training_seed, weights_of
from ata_gym.scenarios import Scenario
from ata_policies.learned.network import Network
from ata_policies.learned.policy import LearnedDispatch
from ata_policies.policy import Policy, Setting, State
from ata_policies.registry import make_for

_ROWS, _ROUNDS, _ROLLOUTS, _WORLDS = 64, 25, 60, 5
_UPDATES, _RATE, _LAST_RATE = 600, 1e-3, 5e-5


class Decisions(NamedTuple):
    """What the planner would do at moments of a rollout."""

    features: NDArray[np.float32]
    working: NDArray[np.float32]  # (m, n) 1 where a worker should be working
    counts: NDArray[np.float32]  # (m, n) 1 where that makes a difference: the worker is idle and present


def train(iterations: int, seed: int = 0, hidden: int = 16) -> Iterator[tuple[str, WorkersNet]]:
    """Train, and yield a line on each iteration with the network after it."""
    rng, net = np.random.default_rng(seed), new_net(seed, hidden)
    optimizer, data = torch.optim.Adam(net.parameters(), _RATE), list[Decisions]()
    for k in range(iterations):
        network = weights_of(net)
        for world in some_worlds(rng, DRAWN, len(DRAWN) if k == 0 else _WORLDS, any_price=1.0):
            data.append(_played(rng, network, world))
        del data[:-_ROLLOUTS]
        for group in optimizer.param_groups:
            group["lr"] = _RATE + (_LAST_RATE - _RATE) * k / iterations
        loss = np.mean([_update(rng, net, optimizer, data[rng.integers(len(data))]) for _ in range(_UPDATES)])
        yield f"iteration {k + 1}: cross-entropy {loss:.4f}", net


def _played(rng: np.random.Generator, network: Network, world: Scenario) -> Decisions:
    """Let the network play, and ask the planner at each moment."""
    kept: list[tuple[Any, ...]] = []
    planner: Policy | None = None
    state: State | None = None
    steps = _ROUNDS * world.budget
    for moment in rollout(LearnedDispatch, network, world, _ROWS, training_seed(rng, _ROWS), steps):
        planner = planner or make_for("dispatch", Setting.of(moment.envs), LearnedDispatch.env_id)
        seen = moment.observation
        decided, state = planner.predict(seen, state)
        kept.append((moment.features, decided > 0, (seen["running"] == 0) & (seen.get("present", 1) > 0)))
    features, working, counts = (np.concatenate(part).astype(np.float32) for part in zip(*kept, strict=True))
    return Decisions(features, working, counts)


def _update(rng: np.random.Generator, net: WorkersNet, optimizer: torch.optim.Optimizer, data: Decisions) -> float:
    """Take one step of gradient; the loss."""
    some = rng.integers(len(data.features), size=512 if data.features.shape[1] < 20 else 256)
    features, working, counts = (torch.from_numpy(part[some]) for part in data)
    logits = net(features)[0][..., 0]
    each = binary_cross_entropy_with_logits(logits, working, reduction="none")
    loss = (each * counts).sum() / counts.sum().clamp(min=1.0)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()
