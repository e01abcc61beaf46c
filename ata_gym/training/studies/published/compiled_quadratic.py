"""SGD on the quadratic as a compiled loop over many rounds, for runs of the published length."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ata_gym.simulation.keys import derive_keys
from ata_gym.training.problems.quadratic import Quadratic
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.typing import Floats
from ata_gym.utils.compiled import gufunc


@gufunc("void(float64[:], float64[:], float64[:], float64[:], float64[:])", "(d),(d),(k),()->(k)", (0,))
def _descend(x: Floats, minimiser: Floats, noise: Floats, lr: Floats, losses: Floats) -> None:
    """Take a step of SGD with each noise, and keep the loss before it; x becomes the last point."""
    d = len(x)
    away = np.zeros(d + 2)  # x - x*, between two zeros
    for k in range(len(noise)):
        for i in range(d):
            away[i + 1] = x[i] - minimiser[i]
        total = 0.0
        for i in range(d + 1):
            total += (away[i + 1] - away[i]) ** 2
        losses[k] = total / 8
        for i in range(d):
            x[i] -= lr[0] * ((2 * away[i + 1] - away[i] - away[i + 2]) / 4 + noise[k])


class CompiledQuadratic(Trainer):
    """A ``Trainer`` of the quadratic with SGD at a constant rate, which takes many rounds at once.

    The matrix is tridiagonal, so that a round costs d steps and B random numbers, without torch. The numbers have the
    keys of a ``Trainer``; losses and weights differ from its own by a relative 1e-10, or by 1e-24 where f - f* is that
    small, since the sums are in another order. Rounds taken at once are the same to the bit as rounds one by one.

    >>> trainer = CompiledQuadratic(Quadratic(), budget=23, lr=0.5)
    >>> losses = trainer.leap(100)
    >>> trainer.round, bool(losses[-1] < 0.01 * losses[0])
    (100, True)
    """

    def __init__(self, problem: Quadratic, budget: int, *, lr: float | None = None, seed: int = 0) -> None:
        super().__init__(problem, budget, optimizer="sgd", lr=lr, seed=seed)

    def leap(self, rounds: int) -> Floats:
        """Train for so many rounds; the losses at the weights before each step, shape (rounds,).

        It ends before the first loss that is NaN or infinite, and raises FloatingPointError if that is the next one.
        """
        problem: Any = self.problem
        played = np.arange(self.round, self.round + rounds)[:, None]
        keys = derive_keys(self._gradient_key, played, np.arange(self.budget))
        noise = problem.draw(keys.ravel()).numpy().reshape(keys.shape).mean(axis=1)
        start, minimiser = self.model.x.detach().numpy(), problem.minimiser.numpy()  # type: ignore[operator]
        step = np.float64(self.optimizer_choice.lr)
        x = start.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            losses: Floats = _descend(x, minimiser, noise, step)
        bad = np.flatnonzero(~np.isfinite(losses))
        good = int(bad[0]) if bad.size else rounds
        if good == 0:
            self.finite(float(losses[0]))
        if bad.size:
            x = start.copy()
            _descend(x, minimiser, noise[:good], step)
        with torch.no_grad():
            self.model.x.copy_(torch.from_numpy(x))  # type: ignore[operator]
        self.round += good
        return losses[:good]

    def config(self) -> dict[str, str | int | float | None]:
        """The configuration of a ``Trainer``, marked as compiled, since the last bits are others."""
        return super().config() | {"compiled": True}
