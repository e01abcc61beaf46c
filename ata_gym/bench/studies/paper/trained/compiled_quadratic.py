"""The paper's quadratic with SGD, in compiled rounds."""

from typing import Any

import numpy as np
import torch

from ata_gym.simulation.keys import derive_keys
from ata_gym.training.problems.quadratic import Quadratic
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.typing import Floats
from ata_gym.utils.compiled import kernel


@kernel("(d),(d),(k),()->(k)", (0,))
def _descend(x: Floats, minimiser: Floats, noise: Floats, lr: Floats, losses: Floats) -> None:
    d = len(x)
    # x - x* between two zeros, so that the first and the last coordinate have two neighbours, too.
    offsets = np.zeros(d + 2)
    for k in range(len(noise)):
        for i in range(d):
            offsets[i + 1] = x[i] - minimiser[i]
        # f - f* is the sum of the squared differences of neighbours, over 8.
        total = 0.0
        for i in range(d + 1):
            total += (offsets[i + 1] - offsets[i]) ** 2
        losses[k] = total / 8
        # A step along row i of A (x - x*), with the same noise in all coordinates.
        for i in range(d):
            x[i] -= lr[0] * ((2 * offsets[i + 1] - offsets[i] - offsets[i + 2]) / 4 + noise[k])


class CompiledQuadratic(Trainer):
    """A ``Trainer`` of the quadratic with SGD at a constant rate, for many rounds at once.

    The matrix is tridiagonal, so that a round costs d steps and B random numbers, without torch:
    300 times as fast. The numbers have the keys of a ``Trainer``; losses and weights differ from
    a ``Trainer`` by a relative 1e-10, or by 1e-24 where f - f* is that small. Rounds taken at once
    and rounds taken one by one give the same bits.
    """

    def __init__(
        self,
        problem: Quadratic,
        budget: int,
        *,
        lr: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(problem, budget, optimizer="sgd", lr=lr, seed=seed)

    def train_rounds(self, rounds: int) -> Floats:
        problem: Any = self.problem
        played = np.arange(self.round, self.round + rounds)[:, None]
        keys = derive_keys(self._gradient_key, played, np.arange(self.budget))
        draws = problem.draw(keys.ravel()).numpy()
        noise = draws.reshape(keys.shape).mean(axis=1)
        start = self.model.x.detach().numpy()  # type: ignore[operator]
        minimiser = problem.minimiser.numpy()
        step = np.float64(self.optimizer_choice.lr)
        x = start.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            losses: Floats = _descend(x, minimiser, noise, step)
        # A loss that is not finite ends the leap: the rounds before it are played again.
        bad = np.flatnonzero(~np.isfinite(losses))
        if bad.size:
            good = int(bad[0])
        else:
            good = rounds
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
        """The configuration of a ``Trainer``, marked as compiled, since the last bits differ."""
        return super().config() | {"compiled": True}
