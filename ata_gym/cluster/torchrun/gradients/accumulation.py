"""The weights of the losses whose gradients a model has from earlier rounds."""

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary


class _WeightedGradient(NamedTuple):
    weight: float
    """The sum of the weights of the losses that the gradient is the mean of."""
    gradient_version: int
    """The version of the gradient, which operations in place raise."""
    parameter_version: int
    """The version of its parameter."""


class GradientWeights:
    """The weight of each gradient that rounds with weights have given to a parameter.

    So the rounds of one optimizer step have one mean. A weight belongs to the gradient itself: it
    is gone when the gradient is None, was set to 0, or belongs to a parameter that has changed
    since, as by a step.

    Example:
        >>> import torch
        >>> parameter = nn.Parameter(torch.ones(2))
        >>> weights = GradientWeights()
        >>> parameter.grad = torch.ones(2)
        >>> weights.set(parameter, 5.0)
        >>> _ = parameter.grad.mul_(0.5)
        >>> weights.get(parameter)
        5.0
        >>> _ = parameter.grad.zero_()
        >>> weights.get(parameter)
        0.0
    """

    def __init__(self) -> None:
        self._by_gradient: Any = WeakTensorKeyDictionary()

    def set(self, parameter: nn.Parameter, weight: float) -> None:
        """Take note of the weight of the gradient that a parameter has; 0 if it has none."""
        gradient = parameter.grad
        if gradient is None:
            return
        if weight:
            self._by_gradient[gradient] = _WeightedGradient(
                weight,
                gradient._version,
                parameter._version,
            )
        elif self._by_gradient:
            # The memory of a gradient is used again in later rounds.
            self._by_gradient.pop(gradient, None)

    def get(self, parameter: nn.Parameter) -> float:
        """The weight of the gradient that a parameter has; 0 if it has none."""
        gradient = parameter.grad
        if gradient is None or not self._by_gradient:
            return 0.0
        weighted = self._by_gradient.get(gradient)
        if weighted is None or weighted.parameter_version != parameter._version:
            return 0.0
        if weighted.gradient_version != gradient._version and not _local(gradient).any():
            return 0.0
        return float(weighted.weight)


def _local(gradient: Any) -> Tensor:
    """The elements of a gradient that are on this rank."""
    elements: Tensor = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    if elements.is_sparse:
        return elements.coalesce().values()
    return elements
