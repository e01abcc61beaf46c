"""The gradient of a round's tasks, of which every rank has a part, becomes their mean on every rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

_BUCKET = 25 * 2**20
"""Bytes that are reduced at once: while one bucket travels, the next is filled."""


class TaskGradients:
    """The gradient that the tasks of one round leave in a model.

    Inside the context no backward pass communicates, whatever the number of tasks, and gradients that were there before
    are set aside. ``reduce`` sums over the ranks, each of which has divided its tasks' losses by B, and adds what was
    set aside. A rank without tasks takes part with zeros. A parameter that no task of any rank reached has no gradient.
    The running statistics of batch norm become the means over ranks, weighted by their tasks.

    A ``DistributedDataParallel`` model is in its ``no_sync`` in the meantime, so its hooks for communication do
    nothing. A model with ``fully_shard`` has its parameters whole during the round, and its gradient too; between
    rounds parameters, gradient and the optimiser's state are sharded.
    """

    def __init__(self, model: nn.Module, group: dist.ProcessGroup | None) -> None:
        self._model, self._group = model, group
        self._sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
        self._parallel = [module for module in model.modules() if isinstance(module, DistributedDataParallel)]
        self._before: dict[str, Tensor] = {}
        self._stack = ExitStack()

    @property
    def communicates(self) -> bool:
        """Whether the model communicates in a backward pass, unless it is told not to."""
        return bool(self._sharded or self._parallel)

    def __enter__(self) -> Self:
        for name, parameter in self._model.named_parameters():
            if parameter.grad is not None:
                self._before[name], parameter.grad = parameter.grad, None
        for ddp in self._parallel:
            self._stack.enter_context(ddp.no_sync())
            ddp.require_forward_param_sync = False  # else its first forward pass broadcasts buffers
        for module in self._sharded:
            module.set_requires_gradient_sync(False)
            module.set_reshard_after_forward(False)
            module.set_reshard_after_backward(False)
            module.unshard()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()
        for module in self._sharded:
            module.reshard()

    def reduce(self, weight: float) -> None:
        """Sum the gradient over the ranks; ``weight`` is this rank's part of the tasks."""
        with torch.no_grad():
            whole = {name: each for name, each in self._model.named_parameters() if each.requires_grad}
            reduced = dict(zip(whole, self._summed(list(whole.values())), strict=True))
            statistics = list(_running_statistics(self._model))
            means = self._sums([statistic * weight for statistic in statistics])
            for statistic, mean in zip(statistics, means, strict=True):
                statistic.copy_(mean)
            for parameter in whole.values():
                parameter.grad = None
            for module in self._sharded:
                module.reshard()
            for name, parameter in self._model.named_parameters():
                self._set(parameter, name, reduced.get(name))

    def _set(self, parameter: Tensor, name: str, gradient: Tensor | None) -> None:
        before = self._before.pop(name, None)
        if gradient is not None and isinstance(parameter, DTensor):
            mesh, placements = parameter.device_mesh, parameter.placements
            gradient = distribute_tensor(gradient, mesh, placements, src_data_rank=None)
        if gradient is not None:
            gradient = gradient.to(parameter.dtype)
        parameter.grad = gradient if before is None else before if gradient is None else before.add_(gradient)

    def _summed(self, parameters: list[Tensor]) -> list[Tensor | None]:
        """The gradients summed over the ranks, with a number for each that says how many ranks have one."""
        gradients = [parameter.grad for parameter in parameters]
        if any(gradient is not None and gradient.layout is not torch.strided for gradient in gradients):
            raise ValueError("a gradient is sparse, and only dense ones are summed: make the layers with sparse=False")
        present = torch.tensor([float(gradient is not None) for gradient in gradients])
        dense = [
            torch.zeros_like(parameter) if gradient is None else gradient
            for parameter, gradient in zip(parameters, gradients, strict=True)
        ]
        home = dense[0].device if dense else torch.device("cpu")
        *sums, counts = self._sums([*dense, present.to(home)])
        known = counts.tolist()
        return [each if count else None for each, count in zip(sums, known, strict=True)]

    def _sums(self, tensors: list[Tensor]) -> list[Tensor]:
        """Sums over the ranks, in buckets of tensors of one dtype and device."""
        alike: dict[Any, list[int]] = defaultdict(list)
        for place, tensor in enumerate(tensors):
            alike[tensor.dtype, tensor.device].append(place)
        running = []
        for places in alike.values():
            for bucket in _buckets(places, tensors):
                flat = torch.cat([tensors[place].reshape(-1) for place in bucket])
                running.append((bucket, flat, dist.all_reduce(flat, group=self._group, async_op=True)))
        sums = list(tensors)
        for bucket, flat, work in running:
            if work is not None:
                work.wait()
            parts = torch.split(flat, [tensors[place].numel() for place in bucket])
            for place, part in zip(bucket, parts, strict=True):
                sums[place] = part.view(tensors[place].shape)
        return sums


def _buckets(places: list[int], tensors: list[Tensor]) -> Iterator[list[int]]:
    """The places of tensors that are reduced together."""
    bucket: list[int] = []
    size = 0
    for place in places:
        bucket.append(place)
        size += tensors[place].numel() * tensors[place].element_size()
        if size >= _BUCKET:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


def _running_statistics(model: nn.Module) -> Iterator[Tensor]:
    for module in model.modules():
        for name in ("running_mean", "running_var"):
            statistic = getattr(module, name, None)
            if isinstance(statistic, Tensor):
                yield statistic
