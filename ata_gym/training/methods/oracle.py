"""Ringmaster LMO: steps along the momentum's linear minimisation oracle."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor
from torch.linalg import vector_norm

from ata_gym.pools import Pool
from ata_gym.training.devices.workers import Parts
from ata_gym.training.methods.asynchronous import Ringmaster
from ata_gym.training.methods.method import EndedTask, Method, ParameterServer
from ata_gym.utils.validation import real, unknown

_STEPS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""The Newton-Schulz steps of Muon and their polynomial (Jordan et al., 2024, and torch)."""


def euclidean(parts: list[Tensor]) -> list[Tensor]:
    """The momentum m / ||m||, with the length of all parts together; 0 for m = 0."""
    if not parts:
        return parts
    length = _length(torch.stack([vector_norm(part) for part in parts]))
    return [part / length for part in parts]


def sign(parts: list[Tensor]) -> list[Tensor]:
    """The sign of each number, 0 for 0."""
    return [part.sign() for part in parts]


def spectral(parts: list[Tensor]) -> list[Tensor]:
    """U V' for each part U S V', by the Newton-Schulz steps of ``torch.optim.Muon``.

    They are five, and leave singular values between about 0.7 and 1.2 in place of 1. On a GPU they
    are computed in bfloat16, as torch does everywhere; on a CPU in the part's own precision, since
    small products in bfloat16 take twice as long there. A part of more than two dimensions, such as
    the weights of a convolution, is a matrix with a row for each output; a vector or a number is a
    matrix with one row, m / ||m|| exactly. Matrices of one shape, such as the weights of equal
    layers, are computed together.
    """
    directions = list(parts)
    groups = defaultdict[tuple[torch.Size, torch.dtype, torch.device], list[int]](list)
    for place, part in enumerate(parts):
        if part.dim() > 1:
            groups[part.shape, part.dtype, part.device].append(place)
        else:
            directions[place] = part / _length(part)
    for (shape, *_), places in groups.items():
        matrices = [parts[place].flatten(1) for place in places]
        # One matrix alone takes less time without a dimension more.
        if len(places) == 1:
            group: Iterable[Tensor] = [_orthogonal(matrices[0])]
        else:
            group = _orthogonal(torch.stack(matrices))
        for place, direction in zip(places, group, strict=True):
            directions[place] = direction.reshape(shape)
    return directions


def _length(numbers: Tensor) -> Tensor:
    """The length of a part, or of each matrix of several, which one may divide by."""
    if numbers.dim() > 2:
        length: Tensor = vector_norm(numbers, dim=(1, 2), keepdim=True)
    else:
        length = vector_norm(numbers)
    return length.clamp(min=torch.finfo(length.dtype).tiny)


def _orthogonal(matrices: Tensor) -> Tensor:
    """``spectral`` of a matrix, (rows, columns), or of several, (matrices, rows, columns)."""
    rows, columns = matrices.shape[-2:]
    if min(rows, columns) <= 1:
        return matrices / _length(matrices)
    # With x wide, x x' is the smaller of the two products.
    is_tall = rows > columns
    x = matrices.mT if is_tall else matrices
    if matrices.is_cuda:
        x = x.bfloat16()
    x = x / _length(x)
    add_product = torch.addmm if x.dim() == 2 else torch.baddbmm
    a, b, c = _COEFFICIENTS
    for _ in range(_STEPS):
        gram = x @ x.mT
        # x <- a x + b (x x') x + c (x x')^2 x
        x = add_product(x, add_product(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    if is_tall:
        x = x.mT
    return x.to(matrices.dtype)


NORMS: Mapping[str, Callable[[list[Tensor]], list[Tensor]]] = MappingProxyType(
    {"euclidean": euclidean, "sign": sign, "spectral": spectral},
)
"""For each norm the point of its unit ball that is farthest along m: -lmo(m)."""


class RingmasterLmo(Ringmaster):
    """Ringmaster ASGD whose steps have a fixed length in a norm, along a momentum.

    If delay < R: m_k = (1 - alpha) m_{k-1} + alpha * gradient at x^{k - delay}, and x^{k+1} = x^k +
    gamma * lmo(m_k), lmo(m) = argmin over ||u|| <= 1 of <m, u>. The ``norm`` is "euclidean" (over
    all weights), "sign" (the largest number) or "spectral" (for each matrix the largest singular
    value, as Muon does; see ``spectral``). ``alpha`` is above 0 and at most 1; its default of 0.1
    is ours, and so is m_0, the first gradient. The learning rate gamma is the length of a step and
    not comparable with the learning rate of SGD: give one, or tune it.

    Source: Sadiev, Maranjyan, Ilin and Richtarik, Ringmaster LMO, arXiv 2605.18174, from its
    abstract and a third party's page of formulas. It assumes (L_0, L_1)-smoothness. The step sizes,
    the variant without parameters (decreasing steps, adaptive R) and the order of acceptance and
    momentum beyond the above were not read.
    """

    source = "Sadiev, Maranjyan, Ilin and Richtarik, arXiv 2605.18174 (abstract)"

    def __init__(
        self,
        pool: Pool,
        budget: int,
        max_delay: int | None = None,
        norm: str = "euclidean",
        alpha: float = 0.1,
    ) -> None:
        super().__init__(pool, budget, max_delay)
        if norm not in NORMS:
            raise unknown("norm", norm, NORMS)
        self.farthest = NORMS[norm]
        self.alpha = real("alpha", alpha, up_to=1.0)
        self._momentum: Parts | None = None

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """None: the step size of the source was not read.

        Raises:
            ValueError: Always.
        """
        return Method.step_size(self, smoothness, variance, accuracy)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        if server.delay(task) < self.max_delay:
            gradient = server.mean_gradient([task], task.weights)
            if self._momentum is None:
                self._momentum = gradient.parts
            else:
                self._momentum = [
                    _mean(m, g, self.alpha)
                    for m, g in zip(self._momentum, gradient.parts, strict=True)
                ]
            server.step(gradient._replace(parts=self._direction(self._momentum)), 1)
        server.start([task.worker])

    def _direction(self, momentum: Parts) -> Parts:
        """The parts of -lmo(m); a part that never had a gradient stays None."""
        directions = iter(self.farthest([part for part in momentum if part is not None]))
        return [None if part is None else next(directions) for part in momentum]


def _mean(momentum: Tensor | None, gradient: Tensor | None, weight: float) -> Tensor | None:
    """One part of m_k, in the place of m_{k-1}; without a gradient it stays as it was."""
    if momentum is None or gradient is None:
        return gradient if momentum is None else momentum
    return momentum.lerp_(gradient, weight)
