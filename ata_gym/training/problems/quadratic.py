"""The convex quadratic of the ATA paper, and a quadratic whose data differ by worker.

Minimum and constants are known.
"""

import copy
import math
from collections.abc import Mapping
from typing import Self

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor, nn

from ata_gym.simulation.keys import uniforms
from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.validation import non_negative, whole_number


class QuadraticModel(nn.Module):
    """A point in d dimensions: all weights of the problem, in float64."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(x)


class Quadratic:
    """Minimise f(x) = x'Ax / 2 - b'x for a tridiagonal matrix A.

    A = tridiag(-1, 2, -1) / 4 and b = (-1, 0, ..., 0) / 4, in d dimensions.
    A stochastic gradient is Ax - b + noise * z (1, ..., 1), with one standard normal z for all
    coordinates. Training starts at (sqrt(d), 0, ..., 0). A task's loss is f(x) - f* itself; only
    its gradient is noisy. The minimiser is x*_i = -1 + i / (d + 1), so that f(x) - f* = (x -
    x*)'A(x - x*) / 2 is found without cancellation.

    Source: Maranjyan et al., ATA, ICML 2025, with d = 100, noise = 0.001 and step size 1e-4; the
    quadratic comes from Tyurin and Richtarik, 2023.

    Args:
        dimension: The number d of dimensions.
        noise: The standard deviation of the noise.

    Raises:
        ValueError: If ``noise`` is negative or not finite, or ``dimension`` is no whole number from
            1 on.

    Example:
        >>> problem = Quadratic()
        >>> figures = problem.evaluate(problem.build())
        >>> {name: round(figure, 2) for name, figure in figures.items()}
        {'suboptimality': 27.62, 'gradient_norm': 5.81}
    """

    name = "quadratic"
    learning_rates: Mapping[str, float] = {"sgd": 1e-4}
    exact_loss = True
    """Whether a reported loss depends on the weights alone; the noise is in the gradient."""

    def __init__(self, dimension: int = 100, noise: float = 0.001) -> None:
        self.dimension = whole_number("dimension", dimension)
        self.noise = non_negative("noise", noise)
        self.minimiser = (
            torch.arange(1, self.dimension + 1, dtype=torch.float64) / (self.dimension + 1) - 1
        )
        """The minimiser x*, shape (d,)."""

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
        """The gap Delta = f(x0) - f* at the starting point x0."""
        return self.evaluate(self.build())["suboptimality"]

    def to(self, device: torch.device) -> Self:
        """The same problem with its minimiser on a device."""
        moved = copy.copy(self)
        moved.minimiser = self.minimiser.to(device)
        return moved

    def build(self) -> QuadraticModel:
        """The starting point (sqrt(d), 0, ..., 0)."""
        start = torch.zeros(self.dimension, dtype=torch.float64)
        start[0] = math.sqrt(self.dimension)
        return QuadraticModel(start)

    def draw(self, keys: Keys) -> Tensor:
        """The noise of each task, shape (B,): what is added to every coordinate of its gradient."""
        # The inverse distribution function turns one uniform number into one normal number.
        noise = torch.from_numpy(self.noise * ndtri(uniforms(keys, 1)[:, 0]))
        return noise.to(self.minimiser.device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """The loss f(x) - f* for each task, shape (B,), with the task's noise in the gradient."""
        x = _point(model)
        total = x.sum()
        # The second term is 0, but its gradient is the noise, in every coordinate.
        return self._suboptimality(x) + batch * (total - total.detach())

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The suboptimality f(x) - f*, and the norm of the exact gradient."""
        x = _point(model).detach().requires_grad_()
        with torch.enable_grad():
            suboptimality = self._suboptimality(x)
        (gradient,) = torch.autograd.grad(suboptimality, x)
        return {"suboptimality": suboptimality.item(), "gradient_norm": gradient.norm().item()}

    def _suboptimality(self, x: Tensor) -> Tensor:
        # For v between two zeros, v'Av is the sum of the squared differences of neighbours, over 4.
        distance = nn.functional.pad(x - self.minimiser, (1, 1))
        return distance.diff().square().sum() / 8


class HeterogeneousQuadratic(Quadratic):
    """Minimise the mean f of a quadratic f_i for each of n workers.

    f_i(x) = x'Ax / 2 - b_i'x, with b_i = b - spread * u_i (1, ..., 1). The offsets u_0 < ... < u_{n
    - 1} are evenly spaced, with mean 0 and mean square 1. So f, its minimum and the noise are the
    same as in ``Quadratic``, and a task's loss is again f(x) - f* itself. The problem is ours.

    If worker i computes a share w_i of the gradients, and all count alike, training ends at the
    minimum of sum_i w_i f_i, where f - f* = d (d + 1) (d + 2) / 6 * (spread * sum_i w_i u_i)^2.
    Weights 1 / (n a_i) for an allocation a mend that only where every worker has a task. With d =
    10 on five-workers, seed 0, 2,000 x 8 gradients end at f - f* = 9e-4 by rennala, 6e-4 by asgd,
    9e-4 by ringmaster and 1.2e-3 by ata-icml. They end at 3e-7 by uta and by ata, which is uniform
    in so few rounds, at 2e-8 by malenia, at 1e-7 by rescaled-asgd, and at 3e-6, still falling, by
    ringleader. The step size is 0.5, for the asynchronous methods 0.5 / 8.

    Args:
        dimension: The number d of dimensions.
        noise: The standard deviation of the noise.
        spread: The standard deviation over the workers of a coordinate of b_i.
    """

    name = "heterogeneous"
    learning_rates: Mapping[str, float] = {"sgd": 0.5}

    def __init__(self, dimension: int = 100, noise: float = 0.001, spread: float = 0.003) -> None:
        super().__init__(dimension, noise)
        self.spread = non_negative("spread", spread)

    def offsets(self, n: int) -> Floats:
        """The offsets u_i of n workers, shape (n,); 0 for a single worker."""
        # The variance of 1 - n, 3 - n, ..., n - 1 is (n^2 - 1) / 3.
        deviation = math.sqrt(max(1, n * n - 1) / 3)
        return np.linspace(1.0 - n, n - 1.0, n) / deviation

    def draw_by_worker(self, keys: Keys, workers: Ints, n: int) -> Tensor:
        """What is added to every coordinate of a task's gradient, shape (B,).

        It is the noise of the task, and the offset of its worker times the spread.
        """
        offsets = torch.from_numpy(self.offsets(n)[workers]).to(self.minimiser.device)
        return self.draw(keys) + self.spread * offsets


def heterogeneous() -> HeterogeneousQuadratic:
    """The paper's quadratic with a spread of 0.003 between workers, three times the noise.

    The step size is 0.5.
    """
    return HeterogeneousQuadratic()


def quadratic() -> Quadratic:
    """The paper's quadratic: 100 dimensions, noise of norm 0.01, step size 1e-4."""
    return Quadratic()


def _point(model: nn.Module) -> Tensor:
    if not isinstance(model, QuadraticModel):
        raise TypeError(f"the quadratic trains a point, its own model, not {type(model).__name__}")
    return model.x
