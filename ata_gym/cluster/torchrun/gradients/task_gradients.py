"""The mean gradient of a round's tasks: a sum over the ranks of their parts."""

import operator
import zlib
from collections.abc import Collection
from contextlib import ExitStack
from typing import Any, NamedTuple, Self

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
from ata_gym.cluster.torchrun.gradients.accumulation import GradientWeights
from ata_gym.cluster.torchrun.gradients.buckets import (
    Buckets,
    Form,
    gradient_dtype,
    gradient_forms,
)
from ata_gym.cluster.torchrun.gradients.other_models import (
    other_models_are_checked,
    without_communication,
)
from ata_gym.cluster.torchrun.gradients.unsupported import (
    has_sparse_gradient,
    parameter_groups,
    unsupported_parts,
)
from ata_gym.cluster.torchrun.ranks.parts import Fault
from ata_gym.cluster.torchrun.ranks.ranks import Ranks
from ata_gym.cluster.torchrun.weights import ParameterSnapshot
from ata_gym.models.model import trained_weights


class _OldGradient(NamedTuple):
    """The gradient of a parameter before a round."""

    parameter: nn.Parameter
    """A trained parameter as it is between rounds."""
    gradient: Tensor | None
    weight: float
    """The sum of the weights of the losses that the gradient is the mean of, or 0."""


class TaskGradients:
    """The gradient that the tasks of a round leave in a model; one object serves all rounds.

    Inside the context no model communicates by itself, and gradients of before are set aside.
    ``sum`` sums over the ranks, each of which has divided the losses of its tasks by B, and
    ``keep`` gives the model the sums, added to what was set aside; ``keep_mean`` makes both one
    mean. Where ``expect_last`` was called before a rank's last backward pass, each part of the
    gradient is sent as soon as that pass has computed it.

    A context that ends without either of them, or with an error, leaves the gradients and running
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
        weights: The weights of gradients.
    """

    def __init__(
        self,
        model: nn.Module,
        ranks: Ranks,
        budget: int,
        replica_ranks: Collection[int],
        weights: GradientWeights,
    ) -> None:
        self.model = model
        self._replica_ranks = frozenset(replica_ranks)
        self._ranks = ranks
        self._budget = budget
        self._gradient_weights = weights
        self._buckets = Buckets([], [], [], ranks)
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
            for feature, cure in unsupported_parts(module):
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
        self._old_gradients = [
            _OldGradient(
                parameter,
                None if parameter.grad is None else parameter.grad.clone(),
                self._gradient_weights.get(parameter),
            )
            for parameter in trained
        ]
        # A parameter that no task has reached yet has the weight of the others.
        self.accumulated = max((old.weight for old in self._old_gradients), default=0.0)
        """The sum of the weights of earlier rounds, to whose gradients this round's are added."""
        # Whether the model has been given the sums.
        self._kept = False
        self._stack = ExitStack()
        for parameter in trained:
            parameter.grad = None
        for module in modules:
            if isinstance(module, DistributedDataParallel):
                self._stack.enter_context(without_communication(module))
        self._stack.enter_context(other_models_are_checked())
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
            for group in parameter_groups(part)
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
        sparse_weights = {
            id(module.weight) for module in self.model.modules() if has_sparse_gradient(module)
        }
        sparse = [
            place for place, parameter in enumerate(trained) if id(parameter) in sparse_weights
        ]
        # The extras are the running statistics, the rows of each gradient that may be sparse, and
        # one tensor with whether each parameter was reached and the message of the round.
        extras = [Form.from_tensor(statistic) for statistic in self._statistics]
        extras += [
            Form((len(trained[place]) + 1,), (1,), forms[place].dtype, forms[place].device)
            for place in sparse
        ]
        length = len(trained) + self._ranks.length(self._budget)
        extras.append(Form((length,), (1,), dtype, device))
        buckets = self._buckets
        if (
            buckets.forms != [*forms, *extras]
            or buckets.sparse != sparse
            or any(map(operator.is_not, buckets.parameters, trained))
        ):
            buckets.close()
            self._buckets = Buckets(trained, extras, sparse, self._ranks)
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
            for parameter, old_gradient, weight in self._old_gradients:
                parameter.grad = old_gradient
                self._gradient_weights.set(parameter, weight)
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
    def partly_sent(self) -> bool:
        """Whether the other ranks wait for the rest of this rank's gradient."""
        return 0 < self._buckets.sent < len(self._buckets.buckets)

    def drop(self) -> None:
        """Let the round leave the gradients and running statistics of before, as an error does.

        Until its end the gradients are 0.
        """
        self._kept = False
        for bucket in self._buckets.buckets:
            bucket.gradients.zero_()

    def check_unchanged(self) -> None:
        """Raise ``RuntimeError`` if a parameter was changed since the round began."""
        if self._weights.changed() is not None:
            raise RuntimeError(
                "the weights were changed before it was known whether the step counts: step after"
                " the block of the round, if share.committed",
            )

    @property
    def reached(self) -> bool:
        """Whether a backward pass of this rank gave a gradient to a parameter."""
        return any(self._buckets.reached)

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
        if (place := self._buckets.unexpected_sparse) is not None:
            return Fault.SPARSE, self._number(place)
        # A norm may be infinite just because the squares are too large, so the elements decide.
        if finite and not all(norm.isfinite() for norm in norms):
            place = self._buckets.not_finite()
            if place is not None:
                return Fault.GRADIENT, self._number(place)
        return Fault.NONE, 0

    def _number(self, place: int) -> int:
        """The number, among all parameters, of the trained parameter at a place."""
        trained = self._buckets.parameters[place]
        return next(
            number for number, parameter in enumerate(self.parameters) if parameter is trained
        )

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
        rows = map(self._rows, self._buckets.sparse)
        self._buckets.sum([*weighted, *rows, torch.cat([reached, message])], settle=settle)
        return self._buckets.sums[-1][len(reached) :]

    def _rows(self, place: int) -> Tensor:
        """Which rows a gradient has on this rank if it is sparse.

        One more number says whether it is dense, as where its parameter is used in another way,
        too.
        """
        parameter = self._buckets.parameters[place]
        gradient = parameter.grad
        rows = torch.zeros(len(parameter) + 1, device=parameter.device)
        if gradient is not None and gradient.is_sparse:
            rows[gradient.coalesce().indices()[0]] = 1.0
        elif self._buckets.reached[place]:
            rows[-1] = 1.0
        return rows

    def keep(self) -> None:
        """Give the sums to the model, added to its gradients of before."""
        self._keep(1.0, 0.0)

    def keep_mean(self, weight: float, accumulated: float, budget: int) -> None:
        """Make the sums and the gradients of before one mean over all their weights.

        Args:
            weight: The sum of the weights of all ranks in this round, maybe 0.
            accumulated: The sum of the weights of the rounds before; 0 if the gradients of before
                are no mean, and stay as they are. One of the two weights is above 0.
            budget: The number B by which the losses were divided.
        """
        total = accumulated + weight
        self._buckets.scale(budget / total)
        self._keep(accumulated / total if accumulated else 1.0, total)

    @torch.no_grad()
    def _keep(self, old_factor: float, weight: float) -> None:
        """Give the sums to the model, added to its gradients of before times a factor.

        Args:
            old_factor: The factor on the gradients of before.
            weight: The weight that the gradients then have.
        """
        statistics = len(self._statistics)
        *extras, message = self._buckets.sums
        for statistic, mean in zip(self._statistics, extras[:statistics], strict=True):
            statistic.copy_(mean)
        gradients = list(self._buckets.gradients)
        for place, rows in zip(self._buckets.sparse, extras[statistics:], strict=True):
            if not rows[-1]:
                gradients[place] = _sparse(gradients[place], rows[:-1])
        for parameter in self._buckets.parameters:
            parameter.grad = None
        for sharded in self._sharded:
            sharded.reshard()
        # How many ranks have reached each parameter.
        counts = message[: len(self._old_gradients)].tolist()
        for old, during, part, count in zip(
            self._old_gradients, self._buckets.parameters, gradients, counts, strict=True
        ):
            if count:
                gradient = _gradient_of(old.parameter, during, part)
            else:
                gradient = None
            old_gradient = old.gradient
            if old_gradient is not None and old_factor != 1.0:
                old_gradient = old_gradient * old_factor
            _set_gradient(old.parameter, gradient, old_gradient)
            self._gradient_weights.set(old.parameter, weight)
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
    elif old_gradient.is_sparse:
        # A dense tensor is added to a sparse one only in this order.
        parameter.grad = gradient + old_gradient
    else:
        parameter.grad = old_gradient + gradient


def _sparse(gradient: Tensor, rows: Tensor) -> Tensor:
    """A gradient of which only the rows that are not 0 in ``rows``, shape (rows,), are kept."""
    numbers = rows.nonzero().flatten()
    return torch.sparse_coo_tensor(
        numbers[None],
        gradient[numbers],
        gradient.shape,
        is_coalesced=True,
    )
