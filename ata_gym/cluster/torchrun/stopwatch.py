"""Times on a processor or a CUDA device: marks in the course of the work, and the seconds between two of them."""

from __future__ import annotations

from time import perf_counter

import torch

Mark = float | torch.cuda.Event


class Stopwatch:
    """Marks on a monotonic clock; on CUDA, events in the current stream.

    The host runs ahead of a CUDA device. An event is reached when the device has done what was asked of it before, so
    the time between two events is that of the device, with the gaps in which it waited for the host. A mark does not
    wait for the device; reading it does.

    >>> watch = Stopwatch(torch.device("cpu"))
    >>> start = watch.mark()
    >>> 0.0 <= watch.seconds(start, watch.mark()) < 1.0
    True
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

    def seconds(self, start: Mark, end: Mark) -> float:
        """Seconds from one mark to a later one, which is waited for."""
        if isinstance(start, torch.cuda.Event):
            assert isinstance(end, torch.cuda.Event)
            end.synchronize()
            return float(start.elapsed_time(end)) / 1000.0
        assert isinstance(end, float)
        return end - start
