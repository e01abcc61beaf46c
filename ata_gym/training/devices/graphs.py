"""CUDA graphs: all kernels of a round's gradient launched at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ata_gym.utils.trees import leaves, map_leaves

_WARM_UP = 3
"""Calls that are computed as usual before one is captured; libraries and the allocator settle in them."""


class GraphedComputation:
    """A computation on CUDA that is captured once, and then replayed on other batches of the same shape.

    ``torch.cuda.make_graphed_callables`` captures a module's forward and its backward pass as two graphs; here the
    loss, its mean, the loss scale and the cleared gradients are in one graph too, so that a round is a single launch.

    ``compute`` takes a batch (a tensor, or tuples of tensors) to a tensor on the same device. What else it leaves
    behind, such as gradients in weights, must be made anew by each call. It may not look at values: no ``item()``, no
    ``if`` on a tensor.
    """

    def __init__(self, compute: Callable[[Any], Tensor], device: torch.device) -> None:
        self._compute, self._device = compute, device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._calls = 0

    def __call__(self, batch: Any) -> Tensor:
        """Compute for a batch; the tensor is overwritten by the next call."""
        with torch.cuda.device(self._device):
            if self._calls < _WARM_UP:
                self._calls += 1
                return self._compute_on_a_side_stream(batch)
            if self._graph is None:
                self._graph = self._capture(batch)
            for (_, target), (_, source) in zip(leaves(self._batch), leaves(batch), strict=True):
                target.copy_(source, non_blocking=True)
            self._graph.replay()
            return self._result

    def _compute_on_a_side_stream(self, batch: Any) -> Tensor:
        """Compute as usual, but not on the default stream, which cannot be captured."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self._compute(batch)
        torch.cuda.current_stream().wait_stream(stream)
        return result

    def _capture(self, batch: Any) -> torch.cuda.CUDAGraph:
        if not all(isinstance(part, Tensor) for _, part in leaves(batch)):
            raise TypeError(f"with graphs=True a problem's batch must be a tensor or tuples of tensors, not {batch!r}")
        self._batch = map_leaves(torch.clone, batch)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._result = self._compute(self._batch)
        return graph
