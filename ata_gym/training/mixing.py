"""Whether the loss of a sample depends on the samples beside it, found by trying."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import ata_gym.training.needs_torch  # noqa: F401 - before what needs torch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ata_gym.training.devices.device import seeded

_TOLERANCE = 1e-3
"""Relative to the losses: far above rounding, far below what a batch norm changes."""

Compute = Callable[[nn.Module], Tensor]
"""Takes a model to losses."""


def apart_and_together(model: nn.Module, together: Compute, apart: Sequence[Compute]) -> tuple[float, float] | None:
    """The two losses that differ most, computed together and apart; None where none differ, or torch cannot run them.

    ``together`` gives losses of shape (n,); those of ``apart``, put one after the other, are n as well. They get a copy
    of the model in the modes of its parts. What it draws is replaced by constants, so that layers such as dropout
    do not differ; and weights that are all equal by unequal ones, since a layer that starts at 0 would hide the others.
    """
    twin = copy.deepcopy(model)
    device = next(twin.parameters()).device
    try:
        with torch.no_grad(), seeded(0, device):
            for weights in twin.parameters():
                if weights.is_floating_point() and weights.numel() > 1 and (weights == weights.flatten()[0]).all():
                    weights.add_(0.1 * torch.randn_like(weights))
            with _Noiseless():  # type: ignore[no-untyped-call]
                whole = together(twin).double()
                parts = torch.cat([compute(twin).double() for compute in apart])
    except (RuntimeError, TypeError, ValueError, IndexError):  # the first round says what is wrong
        return None
    if whole.shape != parts.shape or not (whole.isfinite() & parts.isfinite()).all():
        return None
    difference = (whole - parts).abs()
    if difference.max() <= _TOLERANCE * max(whole.abs().max().item(), parts.abs().max().item()):
        return None
    worst = int(difference.argmax())
    return parts[worst].item(), whole[worst].item()


class _Noiseless(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """All random numbers of floating point are 1/2, and dropout drops nothing."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation of torch."""
        if func is torch.ops.aten.native_dropout.default:
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        given = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            for part in given if isinstance(given, tuple | list) else [given]:
                if isinstance(part, Tensor) and part.is_floating_point():
                    part.fill_(0.5)
        return given
