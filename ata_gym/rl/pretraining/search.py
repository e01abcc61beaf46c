"""The second part of the training: the cross-entropy method over whole episodes, so that the network tries workers."""

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

_POPULATION, _ELITE, _ROWS, _WITH_MANY, _OTHERS = 24, 6, 24, 3, 5
_LONGEST = 200
_LEAST_MANY = 20  # workers of the worlds in which there is most to try
_SPREAD = {"untried": 1.0, "log count": 0.7, "silence": 0.5, "log mean": 0.2, "log recent": 0.2, "log level": 0.2}
_SPREAD_OF_LAST, _FOR_UNTRIED = 0.1, 1.0
"""First standard deviation of what is added to the weights of the linear part by feature, and of the last layer;
and what is added at first to the logit of an untried worker."""


class Found(NamedTuple):
    """Where a search stands: what is added to the weights of the linear part and of the last layer."""

    middle: Floats  # (20 + h,)
    spread: Floats  # (20 + h,)

    @classmethod
    def begin(cls, hidden: int) -> Found:
        """A worker that was never tried gets more than without the search, and nothing else is added yet."""
        linear = [_SPREAD.get(name, 0.0) for name in OF_WORKER] + [0.0] * (WIDTH - len(OF_WORKER))
        spread = np.concatenate([linear, np.full(hidden, _SPREAD_OF_LAST)])
        middle = np.zeros(len(spread))
        middle[OF_WORKER.index("untried")] = _FOR_UNTRIED
        return cls(middle, spread)

    def added_to(self, net: RecurrentWorkersNet, added: Floats | None = None) -> RecurrentWorkersNet:
        """A copy of the network with what was found, or with other numbers, added."""
        copy, numbers = deepcopy(net), torch.from_numpy((self.middle if added is None else added).astype(np.float32))
        with torch.no_grad():
            copy.direct.weight += numbers[:WIDTH]
            copy.of_worker[-1].weight += numbers[WIDTH:]  # type: ignore[operator]
        return copy


def next_generation(
    rng: np.random.Generator, net: RecurrentWorkersNet, found: Found, progress: Callable[[float], None]
) -> tuple[str, Found]:
    """Play candidates on some worlds, and move to the best; a line on it."""
    longer = [replace(world, horizon=min(2 * (world.horizon or _LONGEST), _LONGEST)) for world in WORLDS]
    many = [world for world in longer if world.pool.n >= _LEAST_MANY]
    worlds: list[Scenario] = []
    for these, count in ((many, _WITH_MANY), (longer, _OTHERS)):
        worlds += [at_any_price(rng, these[k]) for k in rng.permutation(len(these))[:count].tolist()]
    seed = training_seed(rng, _ROWS)
    tried = found.middle + found.spread * rng.standard_normal((_POPULATION, len(found.middle)))
    tried[0] = found.middle
    costs = np.empty((_POPULATION, len(worlds)))
    for k, one in enumerate(tried):
        network = weights_of(found.added_to(net, one))
        costs[k] = [cost_of(network, world, _ROWS, seed) for world in worlds]
        progress((k + 1) / _POPULATION)
    score = (costs - costs.mean(axis=0)).mean(axis=1)
    elite = tried[np.argsort(score)[:_ELITE]]
    middle = 0.5 * found.middle + 0.5 * elite.mean(axis=0)
    spread = np.where(found.spread > 0, 0.7 * found.spread + 0.3 * elite.std(axis=0), 0.0)
    return f"the best costs {np.exp(score.min() - score[0]):.4f} of the middle", Found(middle, spread)
