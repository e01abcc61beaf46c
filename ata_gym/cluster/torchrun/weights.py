"""The weights of a model: whether they are unchanged, and the same on all ranks."""

import math
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ata_gym.cluster.torchrun.dtensors import local_part

_SAMPLE_LENGTH = 8
"""The number of elements along each dimension of a parameter that are compared."""
_LARGEST = 1e100
"""Numbers beyond it count as this one in a fingerprint."""


class _ParameterState(NamedTuple):
    parameter: nn.Parameter
    trained: bool
    """Whether it has ``requires_grad``."""
    version: int
    """The version of the tensor, which operations in place raise."""
    bits: bytes
    """Some elements of a parameter with hooks, else nothing."""


class ParameterSnapshot:
    """The parameters of a model as they are now, to find out later which of them has changed.

    The version of a tensor shows operations in place, but not that a hook replaced ``.data``; so
    some elements of parameters with hooks are compared, too.
    """

    def __init__(self, model: nn.Module, parameters: Iterable[nn.Parameter]) -> None:
        self._model = model
        self._states = [
            _ParameterState(
                parameter,
                parameter.requires_grad,
                parameter._version,
                _bits(parameter) if has_hooks(parameter) else b"",
            )
            for parameter in parameters
        ]

    def changed(self) -> int | None:
        """The place of the first parameter that was changed; None if there is none.

        A parameter also counts as changed if it was replaced, or if ``requires_grad`` changed.
        """
        current = list(self._model.parameters())
        for place, state in enumerate(self._states):
            parameter = state.parameter
            if (
                place >= len(current)
                or current[place] is not parameter
                or parameter.requires_grad != state.trained
            ):
                return place
            if parameter._version != state.version:
                return place
            if state.bits and _bits(parameter) != state.bits:
                return place
        if len(current) > len(self._states):
            return len(self._states)
        return None


class GradientHook(partial[None]):
    """A hook of a round itself after the accumulation of a gradient; it changes no parameter."""


def has_hooks(parameter: Tensor) -> bool:
    """Whether functions of the user run when the gradient of a parameter is computed."""
    if parameter._backward_hooks:
        return True
    hooks = parameter._post_accumulate_grad_hooks
    return bool(hooks) and not all(isinstance(hook, GradientHook) for hook in hooks.values())


def fingerprint(parameters: Iterable[Tensor]) -> float:
    """A number that other weights change by more than ``TOLERANCE``, and rounding by less.

    Example:
        >>> ones = torch.ones(3, 2)
        >>> abs(fingerprint([ones]) - fingerprint([ones * (1 + 1e-6)])) < TOLERANCE
        True
        >>> abs(fingerprint([ones]) - fingerprint([ones * 1.1])) > TOLERANCE
        True
    """
    total = 0.0
    for place, parameter in enumerate(parameters):
        # Memory that numpy has seen cannot be freed by ``fully_shard``, so this is a copy.
        elements = _sample(parameter).to("cpu", torch.float64, copy=True)
        # The squares of larger numbers, such as the infinity of a mask, are infinite.
        sample = np.nan_to_num(elements.numpy()).clip(-_LARGEST, _LARGEST)
        length = float(np.linalg.norm(sample))
        if length > 0.0:
            factors = np.cos(place + np.arange(len(sample)))
            total += float(factors @ sample) / length + math.cos(place) * math.log(length)
    return total


TOLERANCE = 0.01
"""The difference between fingerprints of equal weights is less than this.

Rounding on unlike devices changes a fingerprint by less; other weights change it by about 1 per
parameter."""


def _sample(parameter: Tensor) -> Tensor:
    """A copy of some elements of a parameter as real numbers, in one dimension."""
    elements = local_part(parameter.detach())[(slice(_SAMPLE_LENGTH),) * parameter.ndim].flatten()
    # ``fully_shard`` could not free memory that an array of numpy has looked at.
    elements = elements.clone()
    if elements.is_complex():
        return torch.view_as_real(elements).flatten()
    return elements


def _bits(parameter: Tensor) -> bytes:
    sample = _sample(parameter).cpu().clone()
    return sample.view(torch.uint8).numpy().tobytes()
