"""The loss scale of float16, without which small gradients become 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ata_gym.training.needs_torch  # noqa: F401 - before what needs torch

import torch
from torch import Tensor
from torch.optim import Optimizer

_TRIES = 40
"""How often a gradient is computed, each time at half the scale."""


class LossScale:
    """Scales losses before the backward pass, and gradients back; without float16 it changes nothing.

    torch's ``GradScaler`` leaves out a step whose gradient overflowed. Here that gradient is computed again, at half
    the scale, so that every round has its step.
    """

    def __init__(self, device: torch.device, precision: str) -> None:
        self._scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the scaled loss to that of the weights."""
        scaled = self._scaler.scale(loss) if self._scaler.is_enabled() else loss
        scaled.backward()  # type: ignore[no-untyped-call]

    def undo(self, optimizer: Optimizer, again: Callable[[], object]) -> bool:
        """Divide the gradients by the scale; while they overflow, halve it and compute them ``again``.

        False if they are not finite at any scale; then the scale is as it was before.
        """
        if not self._scaler.is_enabled():
            return True
        state = self._scaler.state_dict()
        for _ in range(_TRIES):
            scale = self._scaler.get_scale()
            self._scaler.unscale_(optimizer)
            self._scaler.update()
            if self._scaler.get_scale() >= scale:
                return True
            again()
        self._scaler.load_state_dict(state)
        return False

    def state_dict(self) -> dict[str, Any]:
        """The scale, as plain values."""
        return self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the scale of ``state_dict``."""
        self._scaler.load_state_dict(state)
