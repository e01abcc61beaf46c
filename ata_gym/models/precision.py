"""Number formats by name, and mixed precision."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def find_precision(name: str) -> torch.dtype:
    """The number format of a name.

    Raises:
        ValueError: If there is no format of that name.
    """
    if name not in _TYPES:
        raise ValueError(f"precision must be {', '.join(map(repr, _TYPES))}, not {name!r}")
    return _TYPES[name]


def autocast(model: nn.Module, precision: str) -> AbstractContextManager[object]:
    """The context of a model's forward pass in mixed precision; with float32 it changes nothing.

    Weights, and the gradients that the optimiser sees, keep their format. Weights are cast anew at
    each use, so that the gradients of tied weights are added up in full precision.
    """
    if precision == "float32":
        return nullcontext()
    device = next(model.parameters()).device
    return torch.autocast(device.type, find_precision(precision), cache_enabled=False)
