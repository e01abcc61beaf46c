"""CUDA graphs: all kernels of a round's gradient launched at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ata_gym.training.devices.device import current
from ata_gym.utils.trees import leaves, map_leaves

WARM_UP = 3
"""Calls of a shape that are computed as usual before it is captured; libraries and the allocator settle in them."""

SHAPES = 4
"""Shapes of batches that get a graph, the first ones that come; each keeps the memory of a round."""


class Capturing(Protocol):
    """What runs and captures computations. Tests on a CPU have one in place of ``CudaGraphs``."""

    def prepare(self, compute: Callable[[], Tensor]) -> Tensor:
        """Compute as usual, where it could be captured."""

    def capture(self, compute: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        """Record what a computation launches, and run nothing: its result, and a call that runs all of it again."""


class CudaGraphs:
    """Captures CUDA graphs on a stream of a device; torch's own default is a stream of another device than the second.

    The stream is the same for all calls, as torch wants the gradients of a weight to come from one stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def prepare(self, compute: Callable[[], Tensor]) -> Tensor:
        """Compute beside the default stream, which cannot be captured."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = compute()
        current.wait_stream(self._stream)
        return result

    def capture(self, compute: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        """Capture a graph with memory of its own."""
        graph = torch.cuda.CUDAGraph()
        with current(self._device), torch.cuda.graph(graph, stream=self._stream):
            result = compute()
        return result, graph.replay


@dataclass
class _Shape:
    """What is known of the batches of one shape."""

    calls: int = 0
    replay: Callable[[], None] | None = None
    """Set together with what is below: the tensors that the graph reads and writes."""
    inputs: Sequence[Tensor] = ()
    result: Tensor | None = None
    gradients: Sequence[tuple[Tensor, Tensor | None]] = ()
    """Each weight with its gradient."""


class GraphedComputation:
    """A computation with a model that is captured once for each shape of a batch, and then replayed on other batches.

    ``torch.cuda.make_graphed_callables`` captures a module's forward and its backward pass as two graphs; here the
    loss, its mean, the loss scale and the cleared gradients are in one graph too, so that a round is a single launch.

    Only what a graph was captured for is replayed: the same structure, shapes, strides, dtypes and devices of a batch.
    What comes after ``SHAPES`` of them is computed as usual. So is everything while the model is not as it was made:
    with weights or buffers at other places in memory, other frozen weights, or other modes.

    Parameters
    ----------
    compute
        Takes a batch (a tensor, or tensors in tuples, lists and mappings) to a tensor on the same device. It leaves
        gradients in the model's weights, and makes anew what else it leaves behind. It may not look at values: no
        ``item()``, no ``if`` on a tensor.
    model
        Whose weights it reads; its first weight tells the device.
    capturing
        By default ``CudaGraphs`` of that device.
    """

    def __init__(self, compute: Callable[[Any], Tensor], model: nn.Module, capturing: Capturing | None = None) -> None:
        self._compute, self._model = compute, model
        self._capturing = capturing or CudaGraphs(next(model.parameters()).device)
        self._modules = list(model.modules())
        tables = [(module._parameters, module._buffers) for module in self._modules]
        self._tensors: list[dict[str, Any]] = [table for pair in tables for table in pair if table]
        self._made = self._state()
        self._shapes: dict[object, _Shape] = {}

    def __call__(self, batch: Any) -> Tensor:
        """Compute for a batch; the tensor, and the gradients left, are overwritten by the next call.

        Raises
        ------
        TypeError
            If something in the batch is no tensor.
        ValueError
            If the computation looks at values.
        """
        described = _describe(batch)
        if described not in self._shapes and len(self._shapes) < SHAPES:
            self._shapes[described] = _Shape()
        shape = self._shapes.get(described)
        if shape is None or self._state() != self._made:
            return self._compute(batch)
        if shape.calls < WARM_UP:
            result = self._capturing.prepare(lambda: self._compute(batch))
            shape.calls += 1
            return result
        if shape.replay is None:
            self._capture(shape, batch)
        assert shape.replay is not None
        assert shape.result is not None
        for ours, (_, given) in zip(shape.inputs, leaves(batch), strict=True):
            ours.copy_(given, non_blocking=True)
        shape.replay()
        for weights, gradient in shape.gradients:
            weights.grad = gradient  # another shape, or a step with a gradient from elsewhere, left its own there
        return shape.result

    def _state(self) -> tuple[list[int], list[bool], list[bool]]:
        """What a graph holds fixed of the model. It is read in every call: ``model.parameters()`` takes far longer."""
        parts = [part for table in self._tensors for part in table.values() if part is not None]
        return (
            [part.data_ptr() for part in parts],
            [part.requires_grad for part in parts],
            [module.training for module in self._modules],
        )

    def _capture(self, shape: _Shape, batch: Any) -> None:
        kept = map_leaves(torch.clone, batch)
        try:
            shape.result, replay = self._capturing.capture(lambda: self._compute(kept))
        except RuntimeError as error:
            if "captur" not in str(error):
                raise
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(
                "with graphs=True the loss may not look at values, such as by item() or an if on a tensor, nor draw "
                f"shapes from them: leave out graphs=True, or change it ({reason})"
            ) from error
        shape.inputs = [part for _, part in leaves(kept)]
        shape.gradients = [(weights, weights.grad) for weights in self._model.parameters()]
        shape.replay = replay


def _describe(part: Any) -> object:
    """What two batches must have in common to be of one shape."""
    if isinstance(part, Tensor):
        return part.shape, part.stride(), part.dtype, part.device
    if isinstance(part, tuple | list):
        return type(part), *map(_describe, part)
    if isinstance(part, Mapping):
        return type(part), *((name, _describe(one)) for name, one in part.items())
    if part is None:
        return None
    raise TypeError(f"with graphs=True a problem's batch must be a tensor or tuples of tensors, not {part!r}")
