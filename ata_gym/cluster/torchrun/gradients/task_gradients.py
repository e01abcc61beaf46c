"""The mean gradient of a round's tasks: a sum over the ranks of their parts."""

import operator
from collections.abc import Collection
from contextlib import ExitStack, suppress
from math import isfinite
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ata_gym.cluster.torchrun.buffers.buffer_sums import BufferSums
from ata_gym.cluster.torchrun.dtensors import (
    is_dtensor,
    is_instance,
    ranks_of,
    sharded_as,
)
from ata_gym.cluster.torchrun.forms import GradientLayout
from ata_gym.cluster.torchrun.gradients.accumulation import GradientRounds, OlderRounds, told
from ata_gym.cluster.torchrun.gradients.buckets import Buckets, gradient_dtype
from ata_gym.cluster.torchrun.gradients.layouts import Layouts, layout_of
from ata_gym.cluster.torchrun.gradients.other_models import (
    other_models_are_checked,
    without_communication,
)
from ata_gym.cluster.torchrun.gradients.unsupported import (
    has_sparse_gradient,
    is_special,
    parameter_groups,
    unsupported_parts,
)
from ata_gym.cluster.torchrun.ranks.parts import Fault, LayoutChange, RankPart
from ata_gym.cluster.torchrun.ranks.ranks import Ranks
from ata_gym.cluster.torchrun.weights import ParameterSnapshot
from ata_gym.typing import Floats


class TaskGradients:
    """The gradient that the tasks of a round leave in a model; one object serves all rounds.

    Inside the context no model communicates by itself, and gradients of before are set aside.
    ``sum`` sums over the ranks, each of which has divided the losses of its tasks by B, and
    ``keep`` gives the model the sums, added to what was set aside, or makes both one mean. Where
    ``expect_last`` was called before a rank's last backward pass, each part of the gradient is sent
    as soon as that pass has computed it.

    A context that ends without ``keep``, or with an error, leaves the gradients and buffers of
    before. A parameter that no task of any rank reached has no gradient. The parameters of a model
    with ``fully_shard`` are whole during the round, unless it has cut them among the ranks of one
    replica, where it communicates as ever. Of a ``DTensor`` the part of this rank is summed.
    The gradients are views of memory that the next round uses again, so they are valid until then.

    Args:
        model: The model.
        ranks: The ranks that compute the tasks.
        budget: The number B of tasks of a round.
        replica_ranks: The ranks that hold a replica of the model together with this rank, and this
            rank.
        rounds: The earlier rounds whose gradients parameters have.
        buffers: The buffers of this rank's models.
    """

    def __init__(
        self,
        model: nn.Module,
        ranks: Ranks,
        budget: int,
        replica_ranks: Collection[int],
        rounds: GradientRounds,
        buffers: BufferSums,
    ) -> None:
        self.model = model
        self._replica_ranks = frozenset(replica_ranks)
        self._ranks = ranks
        self._budget = budget
        self._layouts = Layouts(ranks, budget, buffers)
        self._gradient_rounds = rounds
        self.buffers = buffers
        """The buffers that the tasks change."""
        self._buckets = Buckets([], [], [], ranks)
        self.layout = 0
        """A checksum, of 24 bits, of what is summed, on which all ranks must agree.

        It is 0 if the model is refused."""
        self._layout = GradientLayout((), (), ())
        self._checksum = 0
        # What was not sent with the sum, since the other ranks may have the layout of before.
        self._held_back: tuple[Floats, int, int] | None = None
        self._round = 0
        self._is_checked = True
        self._is_first = True
        # How many ranks have reached each parameter that is trained, and the sums of the flags of
        # the buffers, once both are summed.
        self._counts: list[float] = []
        self._buffer_flags: list[float] = []
        self.parameters: list[nn.Parameter] = []
        """All parameters as they are during the round; some may be frozen."""
        self.shards_in_replica = False
        """Whether ``fully_shard`` communicates among the ranks of the replica during the round."""

    def in_round(self, number: int, *, is_checked: bool, is_first: bool) -> Self:
        """Serve a round of this number.

        Args:
            number: The number of the round.
            is_checked: Whether the ranks compare all that they know in it.
            is_first: Whether it is the first round of these ranks.
        """
        self._round = number
        self._is_checked = is_checked
        self._is_first = is_first
        return self

    def __enter__(self) -> Self:
        self.layout = 0
        self._held_back = None
        try:
            self._enter()
        except Exception:
            # The first error says more than the error of a group that is broken, too.
            with suppress(RuntimeError):
                if self._is_first:
                    self._ranks.compare_layouts(self._round, None)
            raise
        if self._is_first:
            try:
                self._ranks.compare_layouts(self._round, self.layout)
            except RuntimeError as error:
                self.__exit__(error)
                raise
        return self

    def _enter(self) -> None:
        """Set aside what the model has, and let nothing in it communicate by itself."""
        # The modules may have changed since the last round.
        paths = {module: path for path, module in self.model.named_modules()}
        modules = list(filter(is_special, paths))
        for module in modules:
            if self._is_sharded_in_replica(module):
                continue
            for feature, cure in unsupported_parts(module):
                raise ValueError(
                    f"{feature} is not respected inside a round, in which gradients are summed"
                    f" once, as they are: {cure}",
                )
        self.buffers.begin(paths, is_checked=self._is_checked, is_first=self._is_first)
        self.parameters = list(self.model.parameters())
        trained = [parameter for parameter in self.parameters if parameter.requires_grad]
        self._old_gradients = list(map(self._gradient_rounds.old_gradient, trained))
        # What was frozen after an earlier round of the same step has a part of the step's mean.
        self._frozen_gradients = self._gradient_rounds.frozen(self.parameters)
        self.older = told([*self._old_gradients, *self._frozen_gradients])
        """The earlier rounds to whose gradients this round's are added, as this rank has them."""
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
        if self._sharded:
            self.parameters = list(self.model.parameters())
            trained = [parameter for parameter in self.parameters if parameter.requires_grad]
        try:
            self._check_distributed()
        except ValueError as error:
            self.__exit__(error)
            raise
        self._begin(modules, trained)
        self._weights = ParameterSnapshot(self.model, self.parameters)

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

    def _begin(self, modules: Collection[nn.Module], trained: list[nn.Parameter]) -> None:
        """Begin the round with buckets for these parameters, which are new ones if need be.

        Args:
            modules: The modules that are special; others have no sparse gradients.
            trained: The parameters that are trained.
        """
        layout = layout_of(self.parameters, list(filter(has_sparse_gradient, modules)))
        extras = self._layouts.extras(layout)
        self._buffer_forms = extras[: -1 - len(layout.sparse)]
        buckets = self._buckets
        if (
            layout != self._layout
            or buckets.extras != extras
            or any(map(operator.is_not, buckets.parameters, trained))
        ):
            buckets.close()
            self._buckets = Buckets(trained, extras, layout.sparse, self._ranks)
            self._layout = layout
            self._checksum = layout.checksum()
        self.layout = self._checksum
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
            for old in (*self._old_gradients, *self._frozen_gradients):
                self._gradient_rounds.restore(old)
        self._old_gradients = []
        self._frozen_gradients = []
        self.buffers.end(kept=not failed)
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

        What it completes is sent at once, unless the other ranks may have another layout.
        """
        if not self._layouts.has_changed(self.layout):
            self._buckets.expect_last()

    @property
    def is_sent(self) -> bool:
        """Whether the other ranks have this rank's whole gradient, or all that it sends first."""
        return self._held_back is not None or self._buckets.sent == len(self._buckets.buckets)

    @property
    def partly_sent(self) -> bool:
        """Whether the other ranks wait for the rest of this rank's gradient."""
        return 0 < self._buckets.sent < len(self._buckets.buckets)

    def drop(self) -> None:
        """Let the round leave the gradients and buffers of before, as an error does.

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
        return any(parameter.grad is not None for parameter in self._buckets.parameters)

    def forget(self) -> None:
        """Begin the round anew, without the gradients and buffers of its tasks."""
        for parameter in self._buckets.parameters:
            parameter.grad = None
        self.buffers.restore()
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
        if finite and not all(isfinite(norm) for norm in norms):
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
    def sum(self, message: Floats, tasks: int, first: int, *, settle: bool = True) -> Floats:
        """Sum the gradient and the buffers over the ranks, with a message of each rank.

        Where this rank's layout has changed, the other ranks may still have the layout of before.
        Then it sends zeros in that layout; its gradient is summed by ``agree``, where all ranks
        have changed alike.

        Args:
            message: Numbers, shape (m,), that are in the same collective if the gradient is
                float32 or float64, and as float32 in another one otherwise.
            tasks: The number of tasks of this rank; 0 if they do not count.
            first: The number of its first task in the round.
            settle: As for ``Buckets.sum``.

        Returns:
            The sum of the messages, shape (m,).
        """
        if self._layouts.has_changed(self.layout):
            self._held_back = message, tasks, first
            return self._layouts.sum_zeros(message)
        leads = tasks > 0 and first == 0
        buffers = self.buffers.packed(self._buffer_forms, tasks, leads=leads)
        rows = map(self._rows, self._buckets.sparse)
        flags = [*self._buckets.reached, *self.buffers.flags(leads=leads)]
        numbers = torch.from_numpy(np.concatenate([flags, message]))
        self._buckets.sum([*buffers, *rows, numbers], settle=settle)
        # A device is waited for once.
        summed = self._buckets.sums[-1].double().cpu().numpy()
        flag_sums = summed[: len(flags)].tolist()
        self._counts = flag_sums[: len(self._buckets.parameters)]
        self._buffer_flags = flag_sums[len(self._counts) :]
        return summed[len(flags) :]

    def agree(self) -> None:
        """Take note that all ranks have one layout, and sum in it what was held back."""
        self._layouts.agree(self._layout, self.layout)
        if self._held_back is not None:
            message, tasks, first = self._held_back
            self._held_back = None
            self.sum(message, tasks, first)

    def change(self) -> LayoutChange:
        """Whether this rank's layout has changed, once its tasks are computed."""
        has_changed = self._layouts.has_changed(self.layout)
        return LayoutChange(has_changed, frozenset(self._buckets.partners()))

    def settle_buffers(self, tasks: int, *, others_changed: bool) -> None:
        """Give all ranks the same buffers.

        Args:
            tasks: The number of this rank's tasks.
            others_changed: Whether a rank has changed buffers that were not sent with the gradient.

        Raises:
            RuntimeError: On every rank, if the models had different buffers as the round began.
            ValueError: On every rank, for a buffer that has no common value.
        """
        sums = self._buckets.sums[: len(self._buffer_forms)]
        self.buffers.settle(
            self._round, tasks, self._buffer_flags, sums, others_changed=others_changed
        )

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

    @torch.no_grad()
    def keep(self, parts: RankPart[Floats]) -> None:
        """Give the sums to the model, added to its gradients of before.

        Where losses have weights, both become one mean over all their weights.

        Args:
            parts: The parts of all ranks.
        """
        weight = float(parts.weight.sum())
        # All ranks have the same, also those whose part of sharded gradients is 0.
        older = OlderRounds(
            number=max(int(parts.older_rounds.max()) - 1, 0),
            weight=float(parts.accumulated.max()),
        )
        if total := older.weight + weight:
            self._buckets.scale(self._budget / total)
        gradients = list(self._buckets.gradients)
        all_rows = self._buckets.sums[len(self._buffer_forms) : -1]
        for place, rows in zip(self._buckets.sparse, all_rows, strict=True):
            if not rows[-1]:
                gradients[place] = _sparse(gradients[place], rows[:-1])
        if self._sharded:
            for parameter in self._buckets.parameters:
                parameter.grad = None
        for sharded in self._sharded:
            sharded.reshard()
        for old, during, part, count in zip(
            self._old_gradients, self._buckets.parameters, gradients, self._counts, strict=True
        ):
            if count:
                gradient = _gradient_of(old.parameter, during, part)
            else:
                gradient = None
            self._gradient_rounds.add(old, gradient, older, weight)
        for old in self._frozen_gradients:
            self._gradient_rounds.add(old, None, older, weight)
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


def _sparse(gradient: Tensor, rows: Tensor) -> Tensor:
    """A gradient of which only the rows that are not 0 in ``rows``, shape (rows,), are kept."""
    numbers = rows.nonzero().flatten()
    return torch.sparse_coo_tensor(
        numbers[None],
        gradient[numbers],
        gradient.shape,
        is_coalesced=True,
    )
