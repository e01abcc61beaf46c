"""The training of ``learned``: gradients of one round's cost, where the workers are known, and search over episodes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ata_gym.envs.interface.worker_features import OF_WORKER
from ata_gym.rl.network import RecurrentWorkersNet
from ata_gym.rl.pretraining.gradients import played, update
from ata_gym.rl.pretraining.rollouts import weights_of
from ata_gym.rl.pretraining.search import Found, next_generation
from ata_gym.rl.pretraining.worlds import WORLDS, at_any_price

_GRADIENTS, _SEARCH = "gradients", "search"
_UPDATES, _RATE, _LAST_RATE = 400, 2e-3, 3e-5
_POWER = 1.5  # the network begins with shares in proportion to mean^-1.5


class Training:
    """A training in steps, which goes on from a checkpoint with the same numbers.

    There are two turns of both parts: half of the ``iterations`` of gradients, half of the ``generations`` of the
    search, and the same again. What the search adds is kept apart while gradients are taken, which would undo it, as
    they do not value what is learned by trying. But the network that plays has it.
    """

    def __init__(self, iterations: int, generations: int, seed: int = 0, hidden: int = 32) -> None:
        torch.manual_seed(seed)
        self._own = RecurrentWorkersNet(hidden)
        with torch.no_grad():
            self._own.direct.weight[0, OF_WORKER.index("log mean")] = -_POWER
        self._optimizer = torch.optim.Adam(self._own.parameters(), _RATE)
        self._found, self._iterations, self.done = Found.begin(hidden), iterations, 0
        halves = zip(*((count // 2, count - count // 2) for count in (iterations, generations)), strict=True)
        self._parts = [part for first, then in halves for part in [_GRADIENTS] * first + [_SEARCH] * then]
        self.steps = len(self._parts)
        self._made_with = {"iterations": iterations, "generations": generations, "seed": seed, "hidden": hidden}

    def net(self) -> RecurrentWorkersNet:
        """The network as it is now."""
        return self._found.added_to(self._own)

    def step(self, progress: Callable[[float], None] = lambda _share: None) -> str:
        """Take the next step, and return a line on it; ``progress`` is told what share of it is done."""
        rng = np.random.default_rng((self._made_with["seed"], self.done))
        k = self._parts[: self.done].count(self._parts[self.done])
        if self._parts[self.done] == _GRADIENTS:
            line = f"iteration {k + 1}: {self._learn(rng, k, progress)}"
        else:
            found, self._found = next_generation(rng, self._own, self._found, progress)
            line = f"generation {k + 1}: {found}"
        self.done += 1
        return line

    def _learn(self, rng: np.random.Generator, k: int, progress: Callable[[float], None]) -> str:
        network, data = weights_of(self.net()), []
        for world in WORLDS:
            data.append(played(rng, network, at_any_price(rng, world)))
            progress(0.4 * len(data) / len(WORLDS))
        for group in self._optimizer.param_groups:
            group["lr"] = _RATE + (_LAST_RATE - _RATE) * k / self._iterations
        costs = []
        for taken in range(1, _UPDATES + 1):
            costs.append(update(rng, self._own, self._optimizer, data[rng.integers(len(data))]))
            progress(0.4 + 0.6 * taken / _UPDATES)
        return f"mean logarithm of a round's cost {np.mean(costs):.4f}"

    def checkpoint(self) -> dict[str, Any]:
        """All that the steps to come depend on."""
        found = {name: torch.from_numpy(part) for name, part in self._found._asdict().items()}
        state = {"net": self._own.state_dict(), "optimizer": self._optimizer.state_dict()}
        return {"made_with": self._made_with, "done": self.done, "found": found, **state}

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Go on where a checkpoint was made. ValueError if it is one of another training."""
        if checkpoint["made_with"] != self._made_with:
            raise ValueError(f"the checkpoint is of a training with {checkpoint['made_with']}, not {self._made_with}")
        self._own.load_state_dict(checkpoint["net"])
        self._optimizer.load_state_dict(checkpoint["optimizer"])
        self._found = Found(**{name: part.numpy() for name, part in checkpoint["found"].items()})
        self.done = checkpoint["done"]
