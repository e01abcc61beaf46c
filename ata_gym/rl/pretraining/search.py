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

from ata_gym.envs.interface.worker_features import WIDTH, WORKER_FEATURES
from ata_gym.rl.network import RecurrentWorkersNet
from ata_gym.rl.pretraining.rollouts import cost_of, network_of, training_seed
from ata_gym.rl.pretraining.scenarios import SCENARIOS, with_random_price
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats

_POPULATION = 24  # candidates of a generation
_ELITE = 6  # candidates that the next generation follows from
_ROWS = 24  # episodes of a candidate in a scenario
_LARGE_SCENARIOS = 3  # scenarios of a generation with many workers
_FURTHER_SCENARIOS = 5  # other scenarios of a generation
_LONGEST = 200  # rounds of an episode at most
_LEAST_WORKERS = 20  # workers of the scenarios in which there is most to try
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


class SearchState(NamedTuple):
    """The state of a search: the numbers added to the linear part and to the last layer."""

    middle: Floats
    """The middle of the next generation, shape (20 + h,)."""
    spread: Floats
    """The standard deviations of the next generation, shape (20 + h,)."""

    @classmethod
    def begin(cls, hidden: int) -> SearchState:
        """The state before a search, in which only untried workers get a larger logit."""
        linear = [_SPREAD.get(name, 0.0) for name in WORKER_FEATURES] + [0.0] * (
            WIDTH - len(WORKER_FEATURES)
        )
        spread = np.concatenate([linear, np.full(hidden, _SPREAD_OF_LAST)])
        middle = np.zeros(len(spread))
        middle[WORKER_FEATURES.index("untried")] = _FOR_UNTRIED
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
    state: SearchState,
    progress: Callable[[float], None],
) -> tuple[str, SearchState]:
    """Play candidates on some scenarios, and move to the best.

    Args:
        rng: The generator of scenarios and candidates.
        net: The network.
        state: The state of the search.
        progress: Called with the share that is done, from 0 to 1.

    Returns:
        A line on the generation, and the next state.
    """
    longer_scenarios = [
        replace(scenario, horizon=min(2 * (scenario.horizon or _LONGEST), _LONGEST))
        for scenario in SCENARIOS
    ]
    large_scenarios = [
        scenario for scenario in longer_scenarios if scenario.pool.n >= _LEAST_WORKERS
    ]
    scenarios: list[Scenario] = []
    for group, count in (
        (large_scenarios, _LARGE_SCENARIOS),
        (longer_scenarios, _FURTHER_SCENARIOS),
    ):
        scenarios += [
            with_random_price(rng, group[k]) for k in rng.permutation(len(group))[:count].tolist()
        ]
    seed = training_seed(rng, _ROWS)
    candidates = state.middle + state.spread * rng.standard_normal((_POPULATION, len(state.middle)))
    # The middle itself is the first candidate. All candidates play the same seeds.
    candidates[0] = state.middle
    costs = np.empty((_POPULATION, len(scenarios)))
    for k, candidate in enumerate(candidates):
        network = network_of(state.added_to(net, candidate))
        costs[k] = [cost_of(network, scenario, _ROWS, seed) for scenario in scenarios]
        progress((k + 1) / _POPULATION)
    score = (costs - costs.mean(axis=0)).mean(axis=1)
    elite = candidates[np.argsort(score)[:_ELITE]]
    middle = 0.5 * state.middle + 0.5 * elite.mean(axis=0)
    spread = np.where(state.spread > 0, 0.7 * state.spread + 0.3 * elite.std(axis=0), 0.0)
    line = f"the best costs {np.exp(score.min() - score[0]):.4f} of the middle"
    return line, SearchState(middle, spread)
