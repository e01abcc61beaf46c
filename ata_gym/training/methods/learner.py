"""The server's weights: updates with gradients that may be taken at earlier weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ata_gym.training import Trainer

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from ata_gym.training.optimizers import OptimizerFactory
    from ata_gym.training.problems import Problem

Weights = tuple["Tensor", ...]
"""A copy of a model's parameters, in their order; whoever started from the same update shares one copy."""


class Learner:
    """A ``Trainer`` whose gradients may be stale: taken at other weights than those that the optimiser moves.

    Gradient b of update k draws its sample from the key of (seed, k, b), as task b of round k does in a ``Trainer``:
    with B gradients at the current weights, both take the same step to the bit. A gradient is computed when it is
    used. That changes nothing, since its noise is independent of all times, and spares those that no update uses.

    Parameters
    ----------
    problem, model, optimizer, lr, device, seed
        As for ``Trainer``.

    Examples
    --------
    >>> learner = Learner("quadratic", lr=0.5)
    >>> first = learner.weights()
    >>> losses = [learner.update(1, first) for _ in range(3)]
    >>> losses[0] == losses[1] == losses[2] > learner.trainer.evaluate()["suboptimality"]
    True
    """

    def __init__(
        self,
        problem: Problem | str,
        *,
        model: nn.Module | Callable[[], nn.Module] | None = None,
        optimizer: str | OptimizerFactory = "sgd",
        lr: float | None = None,
        device: str | torch.device = "cpu",
        seed: int = 0,
    ) -> None:
        self.trainer = Trainer(problem, 1, model=model, optimizer=optimizer, lr=lr, device=device, seed=seed)
        recipe = self.trainer.recipe

        def make(*arguments: Any, **settings: Any) -> Optimizer:
            made = recipe.make(*arguments, **settings)
            made.register_step_pre_hook(self._before_step)
            made.register_step_post_hook(self._after_step)
            return made

        self.trainer.recipe = replace(recipe, make=make)
        self.trainer.reset()
        self._copied = self.updates, self._copy()
        self._stale, self._scale, self._rates = False, 1.0, [0.0]

    @property
    def updates(self) -> int:
        """Updates done."""
        return self.trainer.round

    def weights(self) -> Weights:
        """A copy of the current weights, the same one until the next update."""
        if self._copied[0] != self.updates:
            self._copied = self.updates, self._copy()
        return self._copied[1]

    def update(self, gradients: int, weights: Weights, scale: float = 1.0) -> float:
        """Move the current weights along the mean of stochastic gradients taken at ``weights``.

        Parameters
        ----------
        gradients
            How many.
        weights
            What ``weights()`` gave, now or earlier.
        scale
            A factor on the learning rate.

        Returns
        -------
        Their mean loss, at ``weights``.

        Raises
        ------
        FloatingPointError
            If the loss is NaN or infinite; the current weights stay as they were.
        """
        current = self.weights()
        self._stale, self._scale, self.trainer.budget = weights is not current, scale, gradients
        if self._stale:
            self._put(weights)
        try:
            return self.trainer.step()
        finally:
            if self._stale:  # still: there was no step
                self._put(current)

    def skip(self) -> None:
        """An update that moves nothing."""
        self.trainer.round += 1

    def _before_step(self, optimizer: Optimizer, *_: object) -> None:
        """The gradients are there: back to the current weights, and on with the scaled learning rate."""
        if self._stale:
            self._put(self.weights())
            self._stale = False
        self._rates = [group["lr"] for group in optimizer.param_groups]
        for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * self._scale

    def _after_step(self, optimizer: Optimizer, *_: object) -> None:
        for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate

    def _copy(self) -> Weights:
        return tuple(part.detach().clone() for part in self.trainer.model.parameters())

    def _put(self, weights: Weights) -> None:
        for part, values in zip(self.trainer.model.parameters(), weights, strict=True):
            part.detach().copy_(values)
