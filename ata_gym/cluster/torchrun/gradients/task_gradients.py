"""The mean gradient of a round's tasks: a sum over the ranks of their parts."""

import operator
import zlib
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ata_gym.cluster.torchrun.dtensors import (
    is_dtensor,
    is_instance,
    local_part,
    ranks_of,
    sharded_as,
)
from ata_gym.cluster.torchrun.gradients.buckets import (
    Buckets,
    Form,
    gradient_dtype,
    gradient_forms,
)
from ata_gym.cluster.torchrun.ranks import Fault, Ranks
from ata_gym.cluster.torchrun.weights import ParameterSnapshot
from ata_gym.models.model import trained_weights


class TaskGradients:
    """The gradient that the tasks of a round leave in a model; one object serves all rounds.

    Inside the context the model does not communicate by itself, and gradients of before are set
    aside. ``sum`` sums over the ranks, each of which has divided the losses of its tasks by B, and
    ``keep`` gives the model the sums, added to what was set aside. Where ``expect_last`` was called
    before a rank's last backward pass, each part of the gradient is sent as soon as that pass has
    computed it.

    A context that ends without ``keep``, or with an error, leaves the gradients and running
    statistics of before. A parameter that no task of any rank reached has no gradient. The running
    statistics of batch norm become the means over ranks, weighted by their tasks. The parameters of
    a model with ``fully_shard`` are whole during the round, unless it has cut them among the ranks
    of one replica, where it communicates as ever. Of a ``DTensor`` the part of this rank is summed.
    The gradients are views of memory that the next round uses again, so they are valid until then.

    Args:
        model: The model.
        ranks: The ranks that compute the tasks.
        budget: The number B of tasks of a round.
        replica_ranks: The ranks that hold a replica of the model together with this rank, and this
            rank.
    """

    def __init__(
        self, model: nn.Module, ranks: Ranks, budget: int, replica_ranks: Collection[int]
    ) -> None:
        self.model = model
        self._replica_ranks = frozenset(replica_ranks)
        self._ranks = ranks
        self._budget = budget
        self._buckets = Buckets([], [], ranks)
        self.layout = 0
        """A checksum, of 24 bits, of what is summed, on which all ranks must agree."""
        self.shards_in_replica = False
        """Whether ``fully_shard`` communicates among the ranks of the replica during the round."""

    def __enter__(self) -> Self:
        # The modules may have changed since the last round.
        modules = list(self.model.modules())
        for module in modules:
            if self._is_sharded_in_replica(module):
                continue
            for feature, cure in _unsupported_parts(module):
                raise ValueError(
                    f"{feature} is not respected inside a round, in which gradients are summed"
                    f" once, as they are: {cure}",
                )
        self._statistics = [
            local_part(statistic)
            for module in modules
            for name in ("running_mean", "running_var")
            if isinstance(statistic := getattr(module, name, None), Tensor)
        ]
        self._saved_statistics = [statistic.clone() for statistic in self._statistics]
        trained = trained_weights(self.model)
        # The trained parameters as they are between rounds, and their gradients before this round.
        self._old_gradients = [
            (weights, None if weights.grad is None else weights.grad.clone()) for weights in trained
        ]
        # Whether the model has been given the sums.
        self._kept = False
        self._stack = ExitStack()
        for parameter in trained:
            parameter.grad = None
        for module in modules:
            if isinstance(module, DistributedDataParallel):
                self._stack.enter_context(module.no_sync())
                self._stack.callback(
                    setattr,
                    module,
                    "require_forward_param_sync",
                    module.require_forward_param_sync,
                )
                # Otherwise its first forward pass would broadcast the buffers.
                module.require_forward_param_sync = False
        self._sharded: list[Any] = []
        self.shards_in_replica = False
        sharded: Any
        for sharded in modules:
            if not is_instance("torch.distributed.fsdp", "FSDPModule", sharded):
                continue
            if self._is_sharded_in_replica(sharded):
                self.shards_in_replica = True
                # After a forward pass without a backward pass it is still whole.
                sharded.reshard()
            else:
                self._sharded.append(sharded)
        for sharded in self._sharded:
            self._stack.callback(sharded.set_requires_gradient_sync, True)
            self._stack.callback(sharded.set_reshard_after_backward, True)
            sharded.set_requires_gradient_sync(False)
            sharded.set_reshard_after_forward(False)
            sharded.set_reshard_after_backward(False)
            sharded.unshard()
        self.parameters = list(self.model.parameters())
        """All parameters as they are during the round; some may be frozen."""
        try:
            self._check_distributed()
        except ValueError as error:
            self.__exit__(error)
            raise
        self._begin(trained_weights(self.model))
        self._weights = ParameterSnapshot(self.model, self.parameters)
        return self

    def _is_sharded_in_replica(self, module: nn.Module) -> bool:
        """Whether ``fully_shard`` has cut a module among the ranks of this replica alone."""
        if not is_instance("torch.distributed.fsdp", "FSDPModule", module):
            return False
        meshes = [
            group.mesh_info.mesh
            for part in module.modules()
            if is_instance("torch.distributed.fsdp", "FSDPModule", part)
            for group in _parameter_groups(part)
        ]
        ranks = {rank for mesh in meshes for rank in mesh.mesh.flatten().tolist()}
        return len(self._replica_ranks) > 1 and ranks <= self._replica_ranks

    def _check_distributed(self) -> None:
        """Refuse parameters of which ranks of other replicas have parts during the round."""
        for place, parameter in enumerate(self.parameters):
            if is_dtensor(parameter) and not ranks_of(parameter) <= self._replica_ranks:
                name, _ = list(self.model.named_parameters())[place]
                raise ValueError(
                    f"the parameter {name} is a DTensor of which several ranks have parts, so that"
                    " they must compute the same tasks: tell TorchAllocator which dimension of"
                    ' their DeviceMesh is data parallel, as in TorchAllocator(mesh=mesh["dp"])',
                )

    def _begin(self, trained: list[nn.Parameter]) -> None:
        """Begin the round with buckets for these parameters, which are new ones if need be."""
        forms = gradient_forms(trained)
        if forms:
            device = forms[0].device
        else:
            device = self._ranks.device
        if forms and forms[0].dtype == torch.float64:
            dtype = torch.float64
        else:
            dtype = torch.float32
        # The extras are the running statistics, and one tensor with whether each
        # parameter was reached and the message of the round.
        extras = [Form.from_tensor(statistic) for statistic in self._statistics]
        length = len(trained) + self._ranks.length(self._budget)
        extras.append(Form((length,), (1,), dtype, device))
        buckets = self._buckets
        if buckets.forms != [*forms, *extras] or any(
            map(operator.is_not, buckets.parameters, trained),
        ):
            buckets.close()
            self._buckets = Buckets(trained, extras, self._ranks)
            layout_text = repr([(*form[:2], form.dtype) for form in forms])
            self.layout = zlib.crc32(layout_text.encode()) & 0xFFFFFF
        self._buckets.begin()

    def __exit__(self, error: object, *_trace: object) -> None:
        # After a failed round the gradients of its tasks do not count.
        failed = error is not None or not self._kept
        self._buckets.end()
        if failed:
            for parameter in self._buckets.parameters:
                parameter.grad = None
        # The gradients are set on the parameters as they are between rounds, after the resharding.
        for sharded in self._sharded:
            sharded.reshard()
        if failed:
            for parameter, old_gradient in self._old_gradients:
                parameter.grad = old_gradient
            for statistic, saved in zip(self._statistics, self._saved_statistics, strict=True):
                statistic.copy_(saved)
        self._old_gradients = []
        self._saved_statistics = []
        self._stack.close()

    @property
    def device(self) -> torch.device:
        """Where the model computes: the first CUDA device of its parameters, or the first one."""
        devices = [parameter.device for parameter in self.parameters]
        return next(
            (device for device in devices if device.type == "cuda"),
            (*devices, self._ranks.device)[0],
        )

    @property
    def replica_size(self) -> int:
        """The number of ranks that hold a replica of the model together."""
        return len(self._replica_ranks)

    def expect_last(self) -> None:
        """Expect that the next backward pass is the last one of this rank in the round.

        What it completes is sent at once.
        """
        self._buckets.expect_last()

    @property
    def is_sent(self) -> bool:
        """Whether the other ranks have this rank's whole gradient."""
        return self._buckets.sent == len(self._buckets.buckets)

    @property
    def missed(self) -> bool:
        """Whether the other ranks wait for the rest of this rank's gradient.

        Where ranks come and go, they also wait if nothing was sent.
        """
        begun = self._ranks.elastic or self._buckets.sent > 0
        return begun and self._buckets.sent < len(self._buckets.buckets)

    def drop(self) -> None:
        """Let the round leave the gradients and running statistics of before, as an error does.

        Until its end the gradients are 0.
        """
        self._kept = False
        for bucket in self._buckets.buckets:
            bucket.gradients.zero_()

    @property
    def changed(self) -> bool:
        """Whether a parameter was changed since the round began."""
        return self._weights.changed() is not None

    def forget(self) -> None:
        """Begin the round anew, without the gradients and running statistics of its tasks."""
        for parameter in self._buckets.parameters:
            parameter.grad = None
        for statistic, saved in zip(self._statistics, self._saved_statistics, strict=True):
            statistic.copy_(saved)
        self._buckets.begin()

    def fault(self, *, finite: bool) -> tuple[Fault, int]:
        """What is wrong on this rank, and the place of the parameter in which it is wrong.

        Args:
            finite: Whether gradients must be finite.
        """
        norms = self._buckets.complete()
        if (place := self._weights.changed()) is not None:
            return Fault.CHANGED, place
        if self._buckets.changed_after_send:
            return Fault.SECOND_PASS, 0
        # A norm may be infinite just because the squares are too large, so the elements decide.
        if finite and not all(norm.isfinite() for norm in norms):
            place = self._buckets.not_finite()
            if place is not None:
                faulty = self._buckets.parameters[place]
                places = (
                    number
                    for number, parameter in enumerate(self.parameters)
                    if parameter is faulty
                )
                return Fault.GRADIENT, next(places)
        return Fault.NONE, 0

    @torch.no_grad()
    def sum(self, weight: float, message: Tensor, *, settle: bool = True) -> Tensor:
        """Sum the gradient over the ranks, with a message of each rank.

        Args:
            weight: This rank's part of the tasks.
            message: Numbers that are in the same collective if the gradient is float32 or float64,
                and as float32 in another one otherwise.
            settle: As for ``Buckets.sum``.

        Returns:
            The sum of the messages.
        """
        reached = torch.tensor(self._buckets.reached, dtype=message.dtype, device=message.device)
        weighted = [statistic * weight for statistic in self._statistics]
        self._buckets.sum([*weighted, torch.cat([reached, message])], settle=settle)
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
        # How many ranks have reached each parameter.
        counts = message[: len(self._old_gradients)].tolist()
        for (parameter, old_gradient), during, part, count in zip(
            self._old_gradients,
            self._buckets.parameters,
            self._buckets.gradients,
            counts,
            strict=True,
        ):
            if count:
                gradient = _gradient_of(parameter, during, part)
            else:
                gradient = None
            _set_gradient(parameter, gradient, old_gradient)
        self._kept = True


def _gradient_of(parameter: Any, during: Any, part: Tensor) -> Tensor:
    """The gradient of a parameter.

    Args:
        parameter: The parameter as it is between rounds.
        during: The parameter as it was during the round, in which it may have been gathered.
        part: This rank's part of the gradient of ``during``.
    """
    gathered = 0
    if is_dtensor(parameter):
        kept = during.device_mesh.ndim if is_dtensor(during) else 0
        gathered = parameter.device_mesh.ndim - kept
    return sharded_as(part, parameter, gathered).to(gradient_dtype(parameter))


def _set_gradient(parameter: Tensor, gradient: Tensor | None, old_gradient: Tensor | None) -> None:
    """Give a parameter the sum of a gradient and its gradient of before, where there are any."""
    if old_gradient is None:
        parameter.grad = gradient
    elif gradient is None:
        parameter.grad = old_gradient
    else:
        parameter.grad = old_gradient + gradient


def _unsupported_parts(module: Any) -> Iterator[tuple[str, str]]:
    """What in a module communicates in a way that a round does not respect, and the cure."""
    if isinstance(module, nn.SyncBatchNorm):
        yield (
            "SyncBatchNorm",
            "use BatchNorm, whose running statistics become the means over all tasks",
        )
    elif isinstance(module, DistributedDataParallel):
        if module.static_graph:
            yield "DistributedDataParallel(static_graph=True)", "leave static_graph out"
        if module._comm_hooks:
            yield "a communication hook of DistributedDataParallel", "register none"
    elif is_instance("torch.distributed.fsdp", "FullyShardedDataParallel", module):
        yield "FullyShardedDataParallel", "use fully_shard, or the plain module"
    elif is_instance("torch.distributed.fsdp", "FSDPModule", module):
        state = module._get_fsdp_state()
        policy = state._mp_policy
        dtypes = {parameter.dtype for parameter in module.parameters()}
        # Gradients have the dtype of the policy's parameters, or else of the parameters.
        computed = {policy.param_dtype} - {None} or dtypes
        if policy.reduce_dtype is not None and {policy.reduce_dtype} != computed:
            yield (
                f"MixedPrecisionPolicy(reduce_dtype={policy.reduce_dtype}) of fully_shard",
                "leave reduce_dtype out",
            )
        for group in _parameter_groups(module):
            options = ("gradient_divide_factor", "_all_reduce_hook")
            if any(getattr(group, name, None) is not None for name in options):
                yield "a divide factor or all-reduce hook of fully_shard", "set none"


def _parameter_groups(module: Any) -> list[Any]:
    """The groups of parameters that ``fully_shard`` has cut in a module."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    return list(filter(None, groups))
