"""Devices: finding them, what torch draws on them, lack of memory, and the precision of forward passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def find_device(name: str | torch.device) -> torch.device:
    """The device of that name; ``"cuda"`` is torch's current CUDA device.

    If it is neither a CPU nor a CUDA device, or torch does not see it, it raises ``ValueError``.
    """
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in {"cpu", "cuda"} or (device.type == "cpu" and device.index is not None):
        raise ValueError(f'device must be "cpu", "cuda" or "cuda:<index>", not {name!r}')
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ValueError(
                f'device "{device}" was asked for, but torch {torch.__version__} sees {count} CUDA devices: '
                'use device="cpu", or install a torch built for this machine\'s GPU driver'
            )
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
    return device


@contextmanager
def seeded(key: int, device: torch.device) -> Iterator[None]:
    """Seed torch's default generators with a key; afterwards they have the states that they had before."""
    indices = [device.index] if device.type == "cuda" else []
    with torch.random.fork_rng(indices, device_type="cuda"):
        for generator in (torch.default_generator, *(torch.cuda.default_generators[index] for index in indices)):
            generator.manual_seed(key)
        yield


def lacks_memory(error: Exception) -> bool:
    """Whether torch raised an error for lack of memory on some device, CPU included."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


@contextmanager
def enough_memory(device: torch.device, what: str) -> Iterator[None]:
    """Turn torch's errors for lack of memory on a device, CPU included, into a ``MemoryError`` of one sentence.

    >>> with enough_memory(torch.device("cpu"), "a round"):
    ...     torch.empty(10**16)
    Traceback (most recent call last):
    ...
    MemoryError: a round does not fit into the memory of cpu: DefaultCPUAllocator: can't allocate memory: you tried ...
    """
    try:
        yield
    except RuntimeError as error:
        if not lacks_memory(error):
            raise
        reason = str(error).partition("err == 0. ")[2] or str(error)
        raise MemoryError(f"{what} does not fit into the memory of {device}: {reason.partition('. ')[0]}") from error


_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def find_precision(name: str) -> torch.dtype:
    """The number format of a name; ValueError if there is none."""
    if name not in _TYPES:
        raise ValueError(f"precision must be {', '.join(map(repr, _TYPES))}, not {name!r}")
    return _TYPES[name]


def autocast(model: nn.Module, precision: str) -> torch.autocast:
    """The context of a model's forward pass in mixed precision; with float32 it changes nothing.

    It casts weights anew each time, as a CUDA graph needs. Weights, and the gradients that the optimiser sees, keep
    their format.
    """
    kind, device = find_precision(precision), next(model.parameters()).device
    return torch.autocast(device.type, kind, enabled=kind is not torch.float32, cache_enabled=False)
