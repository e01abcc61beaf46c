"""The time that a device takes, by its own clock."""

from time import perf_counter

import torch

Mark = float | torch.cuda.Event
"""A moment: seconds of a monotonic clock on a CPU, an event on CUDA."""


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
