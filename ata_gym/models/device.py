"""Devices of torch: find one by its name, make it the current one, and wait for it."""

from contextlib import AbstractContextManager, nullcontext

import torch


def find_device(name: str | torch.device) -> torch.device:
    """The device of that name; ``"cuda"`` is torch's current CUDA device.

    Raises:
        ValueError: If torch does not see such a device.
    """
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if (
        device is None
        or device.type not in {"cpu", "cuda"}
        or (device.type == "cpu" and device.index is not None)
    ):
        raise ValueError(f'device must be "cpu", "cuda" or "cuda:<index>", not {name!r}')
    if device.type == "cuda":
        if torch.cuda.is_available():
            count = torch.cuda.device_count()
        else:
            count = 0
        if (device.index or 0) >= count:
            if count:
                cure = f"count from cuda:0 to cuda:{count - 1}"
            else:
                cure = 'use device="cpu", or install a torch built for this machine\'s GPU driver'
            raise ValueError(
                f'device "{device}" was asked for, but torch {torch.__version__} sees {count} CUDA'
                f" devices: {cure}",
            )
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
    return device


def current_device(device: torch.device) -> AbstractContextManager[object]:
    """Make a CUDA device the current one, where kernels run that name no device."""
    if device.type == "cuda":
        return torch.cuda.device(device)
    return nullcontext()


def synchronize(device: torch.device) -> None:
    """Wait until a device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
