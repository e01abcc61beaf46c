"""CUDA graphs: all kernels of a round's gradient launched at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_WARM_UP = 3
"""Rounds that are computed as usual before one is captured; libraries and the allocator settle in them."""


class Replayed:
    """A computation on CUDA that is captured once, and then replayed on other batches of the same shape.

    Parameters
    ----------
    compute
        From a batch (a tensor, or tuples of tensors) to a tensor on the same device. What else it leaves behind, such
        as gradients in weights, must be made anew by each call. It may not look at values: no ``item()``, no ``if`` on
        a tensor.
    device
        The CUDA device.

    Raises
    ------
    ValueError
        If it is no CUDA device.

    Examples
    --------
    >>> Replayed(torch.sum, torch.device("cpu"))
    Traceback (most recent call last):
    ...
    ValueError: graphs=True needs a CUDA device, and this is cpu: leave it out, or use device="cuda"
    """

    def __init__(self, compute: Callable[[Any], Tensor], device: torch.device) -> None:
        if device.type != "cuda":
            raise ValueError(
                f'graphs=True needs a CUDA device, and this is {device}: leave it out, or use device="cuda"'
            )
        self._compute, self._device = compute, device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = 0
        self._batch: Any = None
        self._result: Any = None

    def __call__(self, batch: Any) -> Tensor:
        """Compute for a batch; the tensor is overwritten by the next call."""
        with torch.cuda.device(self._device):
            if self._warm < _WARM_UP:
                self._warm += 1
                return self._aside(batch)
            if self._graph is None:
                self._capture(batch)
            assert self._graph is not None
            _copy(self._batch, batch)
            self._graph.replay()
            result: Tensor = self._result
            return result

    def _aside(self, batch: Any) -> Tensor:
        """As usual, but not on the default stream, which cannot be captured."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self._compute(batch)
        torch.cuda.current_stream().wait_stream(stream)
        return result

    def _capture(self, batch: Any) -> None:
        self._batch = _clone(batch)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._result = self._compute(self._batch)
        self._graph = graph


def _clone(batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return batch.clone()
    if not isinstance(batch, tuple):
        raise TypeError(f"with graphs=True a problem's batch must be a tensor or tuples of tensors, not {batch!r}")
    parts = [_clone(part) for part in batch]
    return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)


def _copy(target: Any, source: Any) -> None:
    if isinstance(target, Tensor):
        target.copy_(source, non_blocking=True)
    else:
        for into, part in zip(target, source, strict=True):
            _copy(into, part)
