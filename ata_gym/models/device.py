"""Devices of torch: names, seeds, time and memory, and mixed precision."""

from contextlib import AbstractContextManager, nullcontext
from time import perf_counter

import torch
from torch import nn


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


def current(device: torch.device) -> AbstractContextManager[object]:
    """Make a CUDA device the current one, where kernels run that name no device."""
    if device.type == "cuda":
        return torch.cuda.device(device)
    return nullcontext()


class seeded:  # noqa: N801
    """Seed torch's default generators with a key, within a block.

    Afterwards they have the states that they had before. A class takes a third of the time that a
    context made of a generator takes.
    """

    def __init__(self, key: int, device: torch.device) -> None:
        self._key = key
        self._generators = [torch.default_generator]
        if device.type == "cuda":
            # Before the initialisation torch has no CUDA generators.
            torch.cuda.init()  # type: ignore[no-untyped-call]
            self._generators.append(torch.cuda.default_generators[device.index])

    def __enter__(self) -> None:
        self._states = [generator.get_state() for generator in self._generators]
        for generator in self._generators:
            generator.manual_seed(self._key)

    def __exit__(self, *_error: object) -> None:
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_state(state)


Mark = float | torch.cuda.Event


class Stopwatch:
    """Marks on a monotonic clock; on CUDA, events in the current stream.

    Events count the time of the device alone. The host runs ahead of a CUDA device. A mark does not
    wait for the device; reading it does.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> Mark:
        """The present moment in the order of the device's work."""
        if self._device.type != "cuda":
            return perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds(self, start: Mark | None, end: Mark | None) -> float:
        """Seconds from one mark to a later one, which is waited for."""
        if isinstance(start, torch.cuda.Event):
            assert isinstance(end, torch.cuda.Event)
            end.synchronize()
            # torch gives milliseconds.
            return float(start.elapsed_time(end)) / 1000.0
        assert isinstance(start, float)
        assert isinstance(end, float)
        return end - start


def lacks_memory(error: Exception) -> bool:
    """Whether torch raised an error for lack of memory on some device, CPU included."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


class enough_memory(AbstractContextManager[None]):  # noqa: N801
    """Turn torch's errors for lack of memory into a ``MemoryError`` of one sentence.

    It does so for every device, CPU included.
    """

    def __init__(self, device: torch.device, what: str) -> None:
        self._device = device
        self._what = what

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, RuntimeError) or not lacks_memory(error):
            return
        # On a CPU, torch puts the check that failed before the sentence.
        reason = str(error).partition("err == 0. ")[2] or str(error)
        raise MemoryError(
            f"{self._what} does not fit into the memory of {self._device}:"
            f" {reason.partition('. ')[0]}",
        ) from error


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
