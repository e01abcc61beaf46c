"""The second part of the training: the cross-entropy method over whole episodes.

It makes the network try workers, whose effect shows in later rounds only.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from ata_gym.envs.interface.worker_features import OF_WORKER, WIDTH
from ata_gym.rl.network import RecurrentWorkersNet
from ata_gym.rl.pretraining.rollouts import cost_of, training_seed, weights_of
from ata_gym.rl.pretraining.worlds import WORLDS, at_any_price
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats

_POPULATION = 24  # candidates of a generation
_ELITE = 6  # candidates that the next generation follows from
_ROWS = 24  # episodes of a candidate in a world
_LARGE_WORLDS = 3  # worlds of a generation with many workers
_OTHER_WORLDS = 5  # other worlds of a generation
_LONGEST = 200  # rounds of an episode at most
_LEAST_WORKERS = 20  # workers of the worlds in which there is most to try
_SPREAD = {
    "untried": 1.0,
    "log count": 0.7,
    "silence": 0.5,
    "log mean": 0.2,
    "log recent": 0.2,
    "log level": 0.2,
}
"""The first standard deviations of the numbers added to the linear part, by feature."""
_SPREAD_OF_LAST = 0.1  # the same for the last layer
_FOR_UNTRIED = 1.0  # the number that is added at first to the logit of an untried worker


class Found(NamedTuple):
    """The state of a search: the numbers added to the linear part and to the last layer."""

    middle: Floats
    """The middle of the next generation, shape (20 + h,)."""
    spread: Floats
    """The standard deviations of the next generation, shape (20 + h,)."""

    @classmethod
    def begin(cls, hidden: int) -> Found:
        """The state before a search, in which only untried workers get a larger logit."""
        linear = [_SPREAD.get(name, 0.0) for name in OF_WORKER] + [0.0] * (WIDTH - len(OF_WORKER))
        spread = np.concatenate([linear, np.full(hidden, _SPREAD_OF_LAST)])
        middle = np.zeros(len(spread))
        middle[OF_WORKER.index("untried")] = _FOR_UNTRIED
        return cls(middle, spread)

    def added_to(
        self,
        net: RecurrentWorkersNet,
        added: Floats | None = None,
    ) -> RecurrentWorkersNet:
        """A copy of the network with the middle, or with other numbers, added.

        Args:
            net: The network.
            added: Other numbers, shape (20 + h,).
        """
        copy = deepcopy(net)
        if added is None:
            added = self.middle
        numbers = torch.from_numpy(added.astype(np.float32))
        with torch.no_grad():
            copy.direct.weight += numbers[:WIDTH]
            copy.of_worker[-1].weight += numbers[WIDTH:]  # type: ignore[operator]
        return copy


def next_generation(
    rng: np.random.Generator,
    net: RecurrentWorkersNet,
    found: Found,
    progress: Callable[[float], None],
) -> tuple[str, Found]:
    """Play candidates on some worlds, and move to the best.

    Args:
        rng: The generator of worlds and candidates.
        net: The network.
        found: The state of the search.
        progress: Called with the share that is done, from 0 to 1.

    Returns:
        A line on the generation, and the next state.
    """
    longer_worlds = [
        replace(world, horizon=min(2 * (world.horizon or _LONGEST), _LONGEST)) for world in WORLDS
    ]
    large_worlds = [world for world in longer_worlds if world.pool.n >= _LEAST_WORKERS]
    worlds: list[Scenario] = []
    for group, count in ((large_worlds, _LARGE_WORLDS), (longer_worlds, _OTHER_WORLDS)):
        worlds += [
            at_any_price(rng, group[k]) for k in rng.permutation(len(group))[:count].tolist()
        ]
    seed = training_seed(rng, _ROWS)
    candidates = found.middle + found.spread * rng.standard_normal((_POPULATION, len(found.middle)))
    # The middle itself is the first candidate. All candidates play the same seeds.
    candidates[0] = found.middle
    costs = np.empty((_POPULATION, len(worlds)))
    for k, candidate in enumerate(candidates):
        network = weights_of(found.added_to(net, candidate))
        costs[k] = [cost_of(network, world, _ROWS, seed) for world in worlds]
        progress((k + 1) / _POPULATION)
    score = (costs - costs.mean(axis=0)).mean(axis=1)
    elite = candidates[np.argsort(score)[:_ELITE]]
    middle = 0.5 * found.middle + 0.5 * elite.mean(axis=0)
    spread = np.where(found.spread > 0, 0.7 * found.spread + 0.3 * elite.std(axis=0), 0.0)
    line = f"the best costs {np.exp(score.min() - score[0]):.4f} of the middle"
    return line, Found(middle, spread)
