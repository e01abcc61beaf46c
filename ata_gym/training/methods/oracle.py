"""Ringmaster LMO: steps along the momentum's linear minimisation oracle."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn

from ata_gym.pools import Pool
from ata_gym.training.devices.workers import Parts
from ata_gym.training.methods.asynchronous import Ringmaster
from ata_gym.training.methods.method import EndedTask, Method, ParameterServer
from ata_gym.utils.validation import real, unknown


def _over_its_length(part: Tensor) -> Tensor:
    length: Tensor = part.norm()
    return part / length.clamp(min=torch.finfo(part.dtype).tiny)


def euclidean(parts: Parts) -> Parts:
    """The momentum m / ||m||, with the length of all parts together; 0 for m = 0."""
    lengths = [part.norm() for part in parts if part is not None]
    if not lengths:
        return parts
    length = torch.stack(lengths).norm()
    length = length.clamp(min=torch.finfo(length.dtype).tiny)
    return [part if part is None else part / length for part in parts]


def sign(parts: Parts) -> Parts:
    """The sign of each number, 0 for 0."""
    return [part if part is None else part.sign() for part in parts]


def spectral(parts: Parts) -> Parts:
    """U V' for each part U S V', by the Newton-Schulz steps of ``torch.optim.Muon``.

    They are five, in bfloat16, and leave singular values between about 0.7 and 1.2 in place of 1.
    A part of more than two dimensions, as of a convolution, is a matrix with a row for each output;
    a vector or a number is a matrix with one row, m / ||m|| exactly.
    """
    return [part if part is None else _orthogonal(part) for part in parts]


def _orthogonal(part: Tensor) -> Tensor:
    rows = len(part) if part.dim() > 1 else 1
    matrix = part.reshape(rows, -1)
    if min(matrix.shape) <= 1:
        return _over_its_length(part)
    # The optimiser lengthens its steps for matrices with more rows than columns, and only these.
    tall = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if tall else matrix
    point = nn.Parameter(torch.zeros_like(wide))
    point.grad = wide
    muon = torch.optim.Muon([point], lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False)
    muon.step()  # type: ignore[no-untyped-call]
    direction = -point.detach()
    return (direction.T if tall else direction).reshape(part.shape)


NORMS: Mapping[str, Callable[[Parts], Parts]] = MappingProxyType(
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
    not comparable with that of SGD: give one, or tune it.

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
        """None: that of the source was not read.

        Raises:
            ValueError: Always.
        """
        return Method.step_size(self, smoothness, variance, accuracy)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        if server.delay(task) < self.max_delay:
            gradient = server.mean_gradient([task], task.weights)
            if self._momentum is None:
                momentum = gradient.parts
            else:
                momentum = [
                    _mean(m, g, self.alpha)
                    for m, g in zip(self._momentum, gradient.parts, strict=True)
                ]
            self._momentum = momentum
            server.step(gradient._replace(parts=self.farthest(momentum)), 1)
        server.start([task.worker])


def _mean(momentum: Tensor | None, gradient: Tensor | None, weight: float) -> Tensor | None:
    """One part of m_k; a part without a gradient leaves it as it was."""
    if momentum is None or gradient is None:
        return gradient if momentum is None else momentum
    return momentum.lerp(gradient, weight)
