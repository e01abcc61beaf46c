"""Mixed precision: where torch computes with fewer bits, and what keeps small gradients from vanishing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """What forward passes are computed in; weights, and the gradients that the optimiser sees, keep theirs.

    Parameters
    ----------
    name
        ``"float32"`` leaves everything as it is; ``"bfloat16"`` and ``"float16"`` are torch's automatic mixed
        precision.

    Raises
    ------
    ValueError
        If there is no precision of that name.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 3)
    >>> with Precision("bfloat16").autocast(model):
    ...     model(torch.ones(2)).dtype
    torch.bfloat16
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in _TYPES:
            raise ValueError(f"precision must be {', '.join(map(repr, _TYPES))}, not {self.name!r}")

    def autocast(self, model: nn.Module) -> torch.autocast:
        """The context of a model's forward pass. It casts weights anew each time, so that a CUDA graph may hold it."""
        kind, device = _TYPES[self.name], next(model.parameters()).device
        return torch.autocast(device.type, kind, enabled=kind is not torch.float32, cache_enabled=False)

    def scaler(self, device: torch.device) -> torch.amp.GradScaler:
        """What scales the loss, and the gradients back, for float16; otherwise it changes nothing."""
        return torch.amp.GradScaler(device.type, enabled=self.name == "float16")
