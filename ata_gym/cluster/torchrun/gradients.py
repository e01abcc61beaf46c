"""The gradient of a round's tasks, of which every rank has a part, becomes their mean on every rank."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from ata_gym.cluster.torchrun.buckets import Buckets


class TaskGradients:
    """The gradient that the tasks of a round leave in a model; one object serves all rounds.

    Inside the context no backward pass communicates, whatever the number of tasks, and gradients that were there before
    are set aside. ``reduce`` sums over the ranks, each of which has divided its tasks' losses by B, and adds what was
    set aside. A rank without tasks takes part with zeros. A parameter that no task of any rank reached has no gradient.
    The running statistics of batch norm become the means over ranks, weighted by their tasks.

    A ``DistributedDataParallel`` model is in its ``no_sync`` in the meantime, so its hooks for communication do
    nothing. A model with ``fully_shard`` has its parameters whole during the round, and its gradient too; between
    rounds parameters, gradient and the optimiser's state are sharded.

    The gradients are views of memory that the next round uses again, so they hold until then.
    """

    def __init__(self, model: nn.Module, group: dist.ProcessGroup | None) -> None:
        self._model, self._group = model, group
        self._sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
        self._parallel = [module for module in model.modules() if isinstance(module, DistributedDataParallel)]
        self._statistics = [
            statistic
            for module in model.modules()
            for name in ("running_mean", "running_var")
            if isinstance(statistic := getattr(module, name, None), Tensor)
        ]
        self._before: list[Tensor | None] | None = None
        self._buckets: Buckets | None = None
        self._stack = ExitStack()

    def check_unprepared(self) -> None:
        """ValueError if the model has communicated in backward passes, since it was not told not to."""
        if self._sharded or self._parallel:
            raise ValueError(
                f"a {type(self._model).__name__} communicates in its backward pass, unless it is told not to before "
                "the first task: begin the round with allocator.round(model)"
            )

    def __enter__(self) -> Self:
        parameters = self._trained()
        self._before = [None if one.grad is None else one.grad.clone() for one in parameters]
        for parameter in parameters:
            parameter.grad = None
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
        if self._before is not None:  # the round failed: its own gradients do not count
            for parameter, old in zip(self._trained(), self._before, strict=False):
                parameter.grad = old
            self._before = None

    @torch.no_grad()
    def reduce(self, weight: float, told: Tensor) -> Tensor:
        """Sum the gradient over the ranks; ``weight`` is this rank's part of the tasks.

        ``told`` are numbers that travel with the gradient, in the same collective if it is float32 or float64, and in
        another one, as float32, otherwise; their sum is returned.
        """
        parameters = self._trained()  # whole ones, where they are sharded otherwise
        gradients = [parameter.grad for parameter in parameters]
        if any(gradient is not None and gradient.layout is not torch.strided for gradient in gradients):
            raise ValueError("a gradient is sparse, and only dense ones are summed: make the layers with sparse=False")
        present = torch.tensor([gradient is not None for gradient in gradients], dtype=torch.float32)
        tensors = [
            torch.zeros_like(parameter) if gradient is None else gradient
            for parameter, gradient in zip(parameters, gradients, strict=True)
        ]
        tensors += [statistic * weight for statistic in self._statistics]
        home = tensors[0].device if tensors else present.device
        kind = tensors[0].dtype if tensors and tensors[0].dtype == torch.float64 else torch.float32
        tensors += [one.to(home, kind) for one in (present, told)]
        if self._buckets is None or not self._buckets.fit(tensors):  # as where layers were frozen
            self._buckets = Buckets(tensors, self._group)
        *sums, counts, told = self._buckets.sum(tensors)
        for statistic, mean in zip(self._statistics, sums[len(parameters) :], strict=True):
            statistic.copy_(mean)
        for parameter in parameters:
            parameter.grad = None
        for module in self._sharded:
            module.reshard()
        reached = zip(sums, counts.tolist(), strict=False)
        before = [None] * len(parameters) if self._before is None else self._before
        for parameter, (gradient, count), old in zip(self._trained(), reached, before, strict=True):
            self._set(parameter, gradient if count else None, old)
        self._before = None
        return told

    def _trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self._model.parameters() if parameter.requires_grad]

    def _set(self, parameter: Tensor, gradient: Tensor | None, before: Tensor | None) -> None:
        if gradient is not None:
            if isinstance(parameter, DTensor):
                mesh, placements = parameter.device_mesh, parameter.placements
                gradient = distribute_tensor(gradient, mesh, placements, src_data_rank=None)
            gradient = gradient.to(parameter.dtype)
        parameter.grad = gradient if before is None else before if gradient is None else before.add_(gradient)
