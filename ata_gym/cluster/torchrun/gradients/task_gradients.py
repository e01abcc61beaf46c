"""The mean gradient of a round's tasks on every rank: a sum over the ranks of their parts, in few collectives."""

import operator
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ata_gym.cluster.torchrun.gradients.buckets import Buckets, Form, gradient_dtype
from ata_gym.cluster.torchrun.ranks import Fault, Ranks
from ata_gym.cluster.torchrun.weights import Unchanged
from ata_gym.training.models.model import trained_weights


class TaskGradients:
    """The gradient that the tasks of a round leave in a model; one object serves all rounds.

    Inside the context the model does not communicate by itself, and gradients of before are set aside. ``sum`` sums
    over the ranks, each of which has divided the losses of its tasks by B, and ``keep`` gives the model the sums, added
    to what was set aside. Where ``expect_last`` was called before a rank's last backward pass, each part of the
    gradient is sent as soon as that pass has computed it. A context that ends without ``keep``, or with an error,
    leaves the gradients and running statistics of before. A parameter that no task of any rank reached has no gradient.
    The running statistics of batch norm become the means over ranks, weighted by their tasks. The parameters of a model
    with ``fully_shard`` are whole during the round. The gradients are views of memory that the next round uses again,
    so they are valid until then.
    """

    def __init__(self, model: nn.Module, ranks: Ranks, length: int) -> None:
        self.model, self._ranks, self._length = model, ranks, length
        self._buckets = Buckets([], [], ranks.group)
        self.layout = 0  # a checksum of 24 bits of what is summed, on which all ranks must agree

    def __enter__(self) -> Self:
        modules = list(self.model.modules())  # they may have changed since the last round
        for module in modules:
            for what, cure in _not_respected(module):
                raise ValueError(
                    f"{what} is not respected inside a round, in which gradients are summed once, as they are: {cure}"
                )
        self._statistics = [
            statistic
            for module in modules
            for name in ("running_mean", "running_var")
            if isinstance(statistic := getattr(module, name, None), Tensor)
        ]
        self._known = [statistic.clone() for statistic in self._statistics]
        trained = trained_weights(self.model)
        self._before = [(one, None if one.grad is None else one.grad.clone()) for one in trained]
        """The trained parameters as they are between rounds, and their gradients before this round."""
        self._kept = False  # whether the model has been given the sums
        self._stack = ExitStack()
        for parameter in trained:
            parameter.grad = None
        for module in modules:
            if isinstance(module, DistributedDataParallel):
                self._stack.enter_context(module.no_sync())
                self._stack.callback(setattr, module, "require_forward_param_sync", module.require_forward_param_sync)
                module.require_forward_param_sync = False  # else its first forward pass broadcasts buffers
        self._sharded: list[Any] = [module for module in modules if _is("torch.distributed.fsdp", "FSDPModule", module)]
        for sharded in self._sharded:
            self._stack.callback(sharded.set_requires_gradient_sync, True)
            self._stack.callback(sharded.set_reshard_after_backward, True)
            sharded.set_requires_gradient_sync(False)
            sharded.set_reshard_after_forward(False)
            sharded.set_reshard_after_backward(False)
            sharded.unshard()
        self.parameters = list(self.model.parameters())  # all as they are during the round; some may be frozen
        self._begin(trained_weights(self.model))
        self._weights = Unchanged(self.model, self.parameters)
        return self

    def _begin(self, whole: list[nn.Parameter]) -> None:
        forms = [Form.of(parameter, gradient_dtype(parameter)) for parameter in whole]
        device = forms[0].device if forms else self._ranks.device
        kind = torch.float64 if forms and forms[0].dtype == torch.float64 else torch.float32
        others = [Form.of(one) for one in self._statistics]
        others.append(Form((len(whole) + self._length,), (1,), kind, device))
        held = self._buckets
        if held.forms != [*forms, *others] or any(map(operator.is_not, held.parameters, whole)):
            held.close()
            self._buckets = Buckets(whole, others, self._ranks.group)
            self.layout = zlib.crc32(repr([(*form[:2], form.dtype) for form in forms]).encode()) & 0xFFFFFF
        self._buckets.begin()

    def __exit__(self, error: object, *_trace: object) -> None:
        failed = error is not None or not self._kept  # then its own gradients do not count
        self._buckets.end()
        for parameter in self._buckets.parameters if failed else ():
            parameter.grad = None
        for sharded in self._sharded:
            sharded.reshard()
        for parameter, old in self._before if failed else ():
            parameter.grad = old
        for statistic, known in zip(self._statistics, self._known, strict=True) if failed else ():
            statistic.copy_(known)
        self._before, self._known = [], []
        self._stack.close()

    @property
    def device(self) -> torch.device:
        """Where the model computes: the first CUDA device of its parameters, else the device of the first."""
        devices = [parameter.device for parameter in self.parameters]
        return next((device for device in devices if device.type == "cuda"), (*devices, self._ranks.device)[0])

    def expect_last(self) -> None:
        """The next backward pass is the last one of this rank in the round: what it completes is sent at once."""
        self._buckets.expect_last()

    @property
    def partly_sent(self) -> bool:
        """Whether the other ranks wait for the rest of this one's gradient."""
        return 0 < self._buckets.sent < len(self._buckets.all)

    def forget(self) -> None:
        """Begin the round anew: the gradients and running statistics that its tasks have left are dropped."""
        for parameter in self._buckets.parameters:
            parameter.grad = None
        for statistic, known in zip(self._statistics, self._known, strict=True):
            statistic.copy_(known)
        self._buckets.begin()

    def fault(self, *, finite: bool) -> tuple[Fault, int]:
        """What is wrong on this rank, and in which parameter; ``finite`` says whether gradients must be finite."""
        norms = self._buckets.complete()
        if (place := self._weights.changed()) is not None:
            return Fault.CHANGED, place
        if self._buckets.again:
            return Fault.AGAIN, 0
        if finite and not all(norm.isfinite() for norm in norms):  # or its squares are too large
            place = self._buckets.not_finite()
            if place is not None:
                own = self._buckets.parameters[place]
                return Fault.GRADIENT, next(number for number, one in enumerate(self.parameters) if one is own)
        return Fault.NONE, 0

    @torch.no_grad()
    def sum(self, weight: float, message: Tensor) -> Tensor:
        """Sum the gradient over the ranks, and return the sum of their messages, which travel with it.

        - ``weight``: this rank's part of the tasks.
        - ``message``: numbers that are in the same collective if the gradient is float32 or float64, and as float32 in
          another one otherwise.
        """
        reached = torch.tensor(self._buckets.reached, dtype=message.dtype, device=message.device)
        self._buckets.sum([statistic * weight for statistic in self._statistics] + [torch.cat([reached, message])])
        return self._buckets.sums[-1][len(reached) :]

    @torch.no_grad()
    def keep(self, factor: float) -> None:
        """Give the sums to the model, the gradients multiplied by a factor."""
        if factor != 1.0:
            self._buckets.scale(factor)
        *means, message = self._buckets.sums
        for statistic, mean in zip(self._statistics, means, strict=True):
            statistic.copy_(mean)
        for parameter in self._buckets.parameters:
            parameter.grad = None
        for sharded in self._sharded:
            sharded.reshard()
        counts = message[: len(self._before)].tolist()
        for (parameter, old), gradient, count in zip(self._before, self._buckets.gradients, counts, strict=True):
            _set(parameter, gradient if count else None, old)
        self._kept = True


def _set(parameter: Tensor, gradient: Tensor | None, before: Tensor | None) -> None:
    if gradient is not None:
        if _is("torch.distributed.tensor", "DTensor", parameter):
            from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415 - see _is

            whole: Any = parameter
            gradient = distribute_tensor(gradient, whole.device_mesh, whole.placements, src_data_rank=None)
        gradient = gradient.to(gradient_dtype(parameter))
    parameter.grad = gradient if before is None else before if gradient is None else before + gradient


def _is(package: str, name: str, thing: object) -> bool:
    """Whether a thing is of a class of a package that takes a second to import; what made the thing has imported it."""
    return package in sys.modules and isinstance(thing, getattr(sys.modules[package], name))


def _not_respected(module: Any) -> Iterator[tuple[str, str]]:
    if isinstance(module, nn.SyncBatchNorm):
        yield "SyncBatchNorm", "use BatchNorm, whose running statistics become the means over all tasks"
    elif isinstance(module, DistributedDataParallel):
        if module.static_graph:
            yield "DistributedDataParallel(static_graph=True)", "leave static_graph out"
        if module._comm_hooks:
            yield "a communication hook of DistributedDataParallel", "register none"
    elif _is("torch.distributed.fsdp", "FullyShardedDataParallel", module):
        yield "FullyShardedDataParallel", "use fully_shard, or the plain module"
    elif _is("torch.distributed.fsdp", "FSDPModule", module):
        state = module._get_fsdp_state()
        policy, dtypes = state._mp_policy, {parameter.dtype for parameter in module.parameters()}
        if policy.reduce_dtype is not None and {policy.reduce_dtype} != ({policy.param_dtype} - {None} or dtypes):
            yield f"MixedPrecisionPolicy(reduce_dtype={policy.reduce_dtype}) of fully_shard", "leave reduce_dtype out"
        groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
        for group in filter(None, groups):
            if any(getattr(group, name, None) is not None for name in ("gradient_divide_factor", "_all_reduce_hook")):
                yield "a divide factor or all-reduce hook of fully_shard", "set none"
