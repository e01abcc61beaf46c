"""The training of ``learned``: gradients of one round's cost, and search over episodes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ata_gym.envs.interface.worker_features import WORKER_FEATURES
from ata_gym.rl.network import RecurrentWorkersNet
from ata_gym.rl.pretraining.gradients import play_rollout, update
from ata_gym.rl.pretraining.rollouts import network_of
from ata_gym.rl.pretraining.scenarios import SCENARIOS, with_random_price
from ata_gym.rl.pretraining.search import SearchState, next_generation

_GRADIENTS = "gradients"
_SEARCH = "search"
_UPDATES = 400  # gradient steps of an iteration
_RATE = 2e-3  # the first learning rate
_LAST_RATE = 3e-5
_POWER = 1.5  # the network begins with shares in proportion to mean^-1.5


class Pretraining:
    """A training in steps, which goes on from a checkpoint with the same numbers.

    There are two turns of both parts: half of the ``iterations`` of gradients, half of the
    ``generations`` of the search, and the same again. The numbers that the search adds to the
    weights are kept apart while gradients are taken. The gradients would undo them, as they give no
    value to the knowledge from trying a worker. But the network that plays has them.

    Args:
        iterations: Iterations of gradients.
        generations: Generations of the search.
        seed: Seed of all random numbers.
        hidden: Width of the layers.
    """

    def __init__(self, iterations: int, generations: int, seed: int = 0, hidden: int = 32) -> None:
        torch.manual_seed(seed)
        self._base_net = RecurrentWorkersNet(hidden)
        with torch.no_grad():
            self._base_net.direct.weight[0, WORKER_FEATURES.index("log mean")] = -_POWER
        self._optimizer = torch.optim.Adam(self._base_net.parameters(), _RATE)
        self._search_state = SearchState.begin(hidden)
        self._iterations = iterations
        self.done = 0
        first_turn = [_GRADIENTS] * (iterations // 2) + [_SEARCH] * (generations // 2)
        rest_of_iterations = iterations - iterations // 2
        rest_of_generations = generations - generations // 2
        second_turn = [_GRADIENTS] * rest_of_iterations + [_SEARCH] * rest_of_generations
        self._parts = first_turn + second_turn
        self.steps = len(self._parts)
        self._arguments = {
            "iterations": iterations,
            "generations": generations,
            "seed": seed,
            "hidden": hidden,
        }

    def net(self) -> RecurrentWorkersNet:
        """The network as it is now."""
        return self._search_state.added_to(self._base_net)

    def step(self, progress: Callable[[float], None] = lambda _share: None) -> str:
        """Take the next step, and return a line on it.

        Args:
            progress: Called with the share of the step that is done, from 0 to 1.
        """
        # The number of a step is part of its seed, so that a training goes on with the same draws.
        rng = np.random.default_rng((self._arguments["seed"], self.done))
        k = self._parts[: self.done].count(self._parts[self.done])
        if self._parts[self.done] == _GRADIENTS:
            line = f"iteration {k + 1}: {self._learn(rng, k, progress)}"
        else:
            text, self._search_state = next_generation(
                rng, self._base_net, self._search_state, progress
            )
            line = f"generation {k + 1}: {text}"
        self.done += 1
        return line

    def _learn(self, rng: np.random.Generator, k: int, progress: Callable[[float], None]) -> str:
        """Play all scenarios and take the gradient steps of iteration k."""
        network = network_of(self.net())
        data = []
        for scenario in SCENARIOS:
            data.append(play_rollout(rng, network, with_random_price(rng, scenario)))
            progress(0.4 * len(data) / len(SCENARIOS))
        # The learning rate falls linearly over the iterations.
        for group in self._optimizer.param_groups:
            group["lr"] = _RATE + (_LAST_RATE - _RATE) * k / self._iterations
        costs = []
        for step in range(1, _UPDATES + 1):
            costs.append(
                update(rng, self._base_net, self._optimizer, data[rng.integers(len(data))])
            )
            progress(0.4 + 0.6 * step / _UPDATES)
        return f"mean logarithm of a round's cost {np.mean(costs):.4f}"

    def checkpoint(self) -> dict[str, Any]:
        """The state that all further steps depend on."""
        search = {
            name: torch.from_numpy(array) for name, array in self._search_state._asdict().items()
        }
        state = {"net": self._base_net.state_dict(), "optimizer": self._optimizer.state_dict()}
        return {"arguments": self._arguments, "done": self.done, "search": search, **state}

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Go on where a checkpoint was made.

        Args:
            checkpoint: A state from :meth:`checkpoint`.

        Raises:
            ValueError: If it is a checkpoint of another training.
        """
        if checkpoint["arguments"] != self._arguments:
            raise ValueError(
                f"the checkpoint is of a training with {checkpoint['arguments']}, not"
                f" {self._arguments}",
            )
        self._base_net.load_state_dict(checkpoint["net"])
        self._optimizer.load_state_dict(checkpoint["optimizer"])
        self._search_state = SearchState(
            **{name: tensor.numpy() for name, tensor in checkpoint["search"].items()}
        )
        self.done = checkpoint["done"]
