"""The mean gradient of a round's tasks on every rank: a sum over the ranks of their parts, in few collectives."""

import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any, NamedTuple, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm

from ata_gym.cluster.torchrun.ranks import Fault, Ranks
from ata_gym.cluster.torchrun.weights import Unchanged
from ata_gym.training.models.model import trained_weights

_SIZE = 25 * 2**20  # bytes of a bucket; while one bucket travels, the next is filled


class Form(NamedTuple):
    """The form of a tensor that is summed again and again, the same on every rank."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor, dtype: torch.dtype | None = None) -> Self:
        """The form of a gradient of a tensor, in another dtype if one is given.

        >>> Form.of(torch.ones(2, 3).T).strides, Form.of(torch.ones(3, 4)[:, :2]).strides
        ((1, 3), (2, 1))
        """
        shape = tuple(tensor.shape)
        return cls(shape, _strides(shape, tensor.stride()), dtype or tensor.dtype, tensor.device)


@cache
def _strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a gradient: those of a dense tensor where no elements overlap, and contiguous ones otherwise.

    Torch itself gives these to gradients, and fused optimisers read both in the order of their memory.
    """
    tensor = torch.empty_strided(shape, strides, device="meta")
    return strides if torch.empty_like(tensor).stride() == strides else torch.empty(shape, device="meta").stride()


class Buckets:
    """Sums tensors of fixed forms over the ranks, again and again.

    The tensors are copied into flat ones, one for each dtype and device, or several where they are large. The sums are
    views of these, and are valid until the next call.
    """

    def __init__(self, forms: Sequence[Form], group: dist.ProcessGroup | None) -> None:
        self._group, self.forms = group, list(forms)
        places: dict[tuple[torch.dtype, torch.device, int], list[int]] = defaultdict(list)
        filled: dict[tuple[torch.dtype, torch.device], int] = defaultdict(int)
        lengths = [torch.Size(form.shape).numel() for form in forms]
        for place, (form, length) in enumerate(zip(forms, lengths, strict=True)):
            kind = form.dtype, form.device
            places[*kind, filled[kind] // _SIZE].append(place)
            filled[kind] += length * form.dtype.itemsize
        self._flat: list[tuple[Tensor, list[int]]] = []
        """Each flat tensor, and which tensors it holds."""
        sums: dict[int, Tensor] = {}
        for (dtype, device, _), own in places.items():
            flat = torch.empty(sum(lengths[place] for place in own), dtype=dtype, device=device)
            for place, part in zip(own, torch.split(flat, [lengths[place] for place in own]), strict=True):
                sums[place] = part.as_strided(forms[place].shape, forms[place].strides)
            self._flat.append((flat, own))
        self._sums = [sums[place] for place in range(len(forms))]

    def sum(self, tensors: Sequence[Tensor | None]) -> list[Tensor]:
        """The sums over the ranks of tensors of these forms; None counts as zeros."""
        running = []
        for flat, places in self._flat:
            here = [(self._sums[place], one) for place in places if (one := tensors[place]) is not None]
            if len(here) < len(places):
                flat.zero_()
            if here:
                torch._foreach_copy_([into for into, _ in here], [one for _, one in here])
            running.append(dist.all_reduce(flat, group=self._group, async_op=True))
        for work in running:
            if work is not None:
                work.wait()
        return self._sums


class TaskGradients:
    """The gradient that the tasks of a round leave in a model; one object serves all rounds.

    Inside the context no backward pass communicates, and gradients of before are set aside. ``sum`` sums over the
    ranks, each of which has divided the losses of its tasks by B, and ``keep`` gives the model the sums, added to what
    was set aside. A context that ends without ``keep``, or with an error, leaves the gradients and running statistics
    of before. A parameter that no task of any rank reached has no gradient. The running statistics of batch norm become
    the means over ranks, weighted by their tasks. The parameters of a model with ``fully_shard`` are whole during the
    round. The gradients are views of memory that the next round uses again, so they are valid until then.
    """

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self.model, self._ranks = model, ranks
        self._buckets: Buckets | None = None
        self._forms: list[Form] = []
        self.layout = 0  # a checksum of 24 bits of what is summed, on which all ranks must agree

    def __enter__(self) -> Self:
        modules = list(self.model.modules())  # they may have changed since the last round
        for module in modules:
            for what, cure in _not_respected(module):
                raise ValueError(
                    f"{what} is not respected inside a round, in which backward passes do not communicate, and "
                    f"gradients are summed once, as they are: {cure}"
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
        self._sums: list[Tensor] = []
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
        self._whole = trained_weights(self.model)
        self._weights = Unchanged(self.model, self.parameters)
        forms = [Form.of(parameter, _gradient_dtype(parameter)) for parameter in self._whole]
        if forms != self._forms:  # as where layers were frozen
            self._forms, self._buckets = forms, None
            self.layout = zlib.crc32(repr([(*form[:2], form.dtype) for form in forms]).encode()) & 0xFFFFFF
        return self

    def __exit__(self, error: object, *_trace: object) -> None:
        failed = error is not None or not self._kept  # then its own gradients do not count
        for parameter in self._whole if failed else ():
            parameter.grad = None
        for module in self._sharded:
            module.reshard()
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

    def fault(self, *, finite: bool) -> tuple[Fault, int]:
        """What is wrong on this rank, and in which parameter; ``finite`` says whether gradients must be finite."""
        if (place := self._weights.changed()) is not None:
            return Fault.CHANGED, place
        gradients = {place: one.grad for place, one in enumerate(self.parameters) if one.grad is not None}
        for place, gradient in gradients.items():
            if gradient.layout is not torch.strided:
                return Fault.SPARSE, place
        if finite and not get_total_norm(gradients.values()).isfinite():  # or its squares are too large
            for place, gradient in gradients.items():
                if not gradient.isfinite().all():
                    return Fault.GRADIENT, place
        return Fault.NONE, 0

    @torch.no_grad()
    def sum(self, weight: float, message: Tensor) -> Tensor:
        """Sum the gradient over the ranks, and return the sum of their messages, which travel with it.

        - ``weight``: this rank's part of the tasks.
        - ``message``: numbers that are in the same collective if the gradient is float32 or float64, and as float32 in
          another one otherwise.
        """
        dense = [one.grad if one.grad is not None and one.grad.layout is torch.strided else None for one in self._whole]
        present = torch.tensor([gradient is not None for gradient in dense], dtype=torch.float32)
        home = self._forms[0].device if self._forms else self._ranks.device
        kind = torch.float64 if self._forms and self._forms[0].dtype == torch.float64 else torch.float32
        others = [statistic * weight for statistic in self._statistics]
        others += [one.to(home, kind) for one in (present, message)]
        forms = self._forms + [Form.of(one) for one in others]
        if self._buckets is None or self._buckets.forms != forms:
            self._buckets = Buckets(forms, self._ranks.group)
        *self._sums, summed = self._buckets.sum([*dense, *others])
        return summed

    @torch.no_grad()
    def keep(self) -> None:
        """Give the sums to the model."""
        *sums, counts = self._sums
        for statistic, mean in zip(self._statistics, sums[len(self._whole) :], strict=True):
            statistic.copy_(mean)
        for parameter in self._whole:
            parameter.grad = None
        for module in self._sharded:
            module.reshard()
        for (parameter, old), gradient, count in zip(self._before, sums, counts.tolist(), strict=False):
            _set(parameter, gradient if count else None, old)
        self._kept = True


def _gradient_dtype(parameter: Tensor) -> torch.dtype:
    return getattr(parameter, "grad_dtype", None) or parameter.dtype


def _set(parameter: Tensor, gradient: Tensor | None, before: Tensor | None) -> None:
    if gradient is not None:
        if _is("torch.distributed.tensor", "DTensor", parameter):
            from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415 - see _is

            whole: Any = parameter
            gradient = distribute_tensor(gradient, whole.device_mesh, whole.placements, src_data_rank=None)
        gradient = gradient.to(_gradient_dtype(parameter))
    parameter.grad = gradient if before is None else before if gradient is None else before + gradient


def _is(package: str, name: str, thing: object) -> bool:
    """Whether a thing is of a class of a package that takes a second to import; what made the thing has imported it."""
    return package in sys.modules and isinstance(thing, getattr(sys.modules[package], name))


def _not_respected(module: Any) -> Iterator[tuple[str, str]]:
    """What a round would ignore of the way in which a module communicates, and what to do about it."""
    if isinstance(module, DistributedDataParallel):
        if module.static_graph:
            yield "DistributedDataParallel(static_graph=True)", "leave static_graph out"
        if getattr(module, "_comm_hooks", None):
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
