"""The problem ``quadratic``: the convex quadratic of the ATA paper, whose minimum and constants are known."""

import copy
import math
from collections.abc import Mapping
from typing import Self

import torch
from scipy.special import ndtri
from torch import Tensor, nn

from ata_gym.simulation.keys import uniforms
from ata_gym.typing import Keys
from ata_gym.utils.validation import non_negative, whole_number


class Point(nn.Module):
    """A point in d dimensions: all weights of the problem, in float64."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(x)


class Quadratic:
    """Minimise f(x) = x'Ax / 2 - b'x with A = tridiag(-1, 2, -1) / 4 and b = (-1, 0, ..., 0) / 4.

    A stochastic gradient is Ax - b + noise * z (1, ..., 1), with one standard normal z for all coordinates. Training
    starts at (sqrt(d), 0, ..., 0). A task's loss is f(x) - f* itself; only its gradient is noisy. The minimiser is
    x*_i = -1 + i / (d + 1), so that f(x) - f* = (x - x*)'A(x - x*) / 2 is found without cancellation.

    Source: Maranjyan et al., ATA, ICML 2025, with d = 100, noise = 0.001 and step size 1e-4; the quadratic is that of
    Tyurin and Richtarik, 2023.

    ``noise`` is its standard deviation. ValueError if it is negative or not finite, or ``dimension`` d is no whole
    number from 1 on.

    >>> problem = Quadratic()
    >>> {name: round(figure, 2) for name, figure in problem.evaluate(problem.build()).items()}
    {'suboptimality': 27.62, 'gradient_norm': 5.81}
    """

    name = "quadratic"
    learning_rates: Mapping[str, float] = {"sgd": 1e-4}
    exact_loss = True  # a reported loss depends on the weights alone: the noise is in the gradient

    def __init__(self, dimension: int = 100, noise: float = 0.001) -> None:
        self.dimension = whole_number("dimension", dimension)
        self.noise = non_negative("noise", noise)
        self.minimiser = torch.arange(1, self.dimension + 1, dtype=torch.float64) / (self.dimension + 1) - 1
        """x*, shape (d,)."""

    @property
    def smoothness(self) -> float:
        """The smoothness constant L of f, the largest eigenvalue of A."""
        return (1 + math.cos(math.pi / (self.dimension + 1))) / 2

    @property
    def variance(self) -> float:
        """The variance sigma^2 of a stochastic gradient: the mean squared norm of its noise."""
        return self.dimension * self.noise**2

    @property
    def gap(self) -> float:
        """Delta = f(x0) - f*."""
        return self.evaluate(self.build())["suboptimality"]

    def to(self, device: torch.device) -> Self:
        """The same problem with its minimiser on a device."""
        moved = copy.copy(self)
        moved.minimiser = self.minimiser.to(device)
        return moved

    def build(self) -> Point:
        """The starting point (sqrt(d), 0, ..., 0)."""
        start = torch.zeros(self.dimension, dtype=torch.float64)
        start[0] = math.sqrt(self.dimension)
        return Point(start)

    def draw(self, keys: Keys) -> Tensor:
        """The noise of each task, shape (B,): what is added to every coordinate of its gradient."""
        return torch.from_numpy(self.noise * ndtri(uniforms(keys, 1)[:, 0])).to(self.minimiser.device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """f(x) - f* for each task, shape (B,), with the task's noise in the gradient."""
        x = _point(model)
        total = x.sum()
        return self._suboptimality(x) + batch * (total - total.detach())  # adds 0, but its gradient is the noise

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """f(x) - f* and the norm of the exact gradient."""
        x = _point(model).detach().requires_grad_()
        with torch.enable_grad():
            suboptimality = self._suboptimality(x)
        (gradient,) = torch.autograd.grad(suboptimality, x)
        return {"suboptimality": suboptimality.item(), "gradient_norm": gradient.norm().item()}

    def _suboptimality(self, x: Tensor) -> Tensor:
        distance = nn.functional.pad(x - self.minimiser, (1, 1))
        return distance.diff().square().sum() / 8  # v'Av is the sum of squared differences, over 4


def quadratic() -> Quadratic:
    """The paper's quadratic: 100 dimensions, noise of norm 0.01, step size 1e-4."""
    return Quadratic()


def _point(model: nn.Module) -> Tensor:
    if not isinstance(model, Point):
        raise TypeError(f"the quadratic trains a point, its own model, not {type(model).__name__}")
    return model.x
