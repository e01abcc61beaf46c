"""A strategy of Lightning, with which each rank computes its share of the tasks of a step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ata_gym.cluster.torchrun.torch_allocator import TorchAllocator
from ata_gym.cluster.trainers.rounds import (
    RoundBatch,
    begin_scaling,
    for_trainer,
    rounds_of,
    tasks_of,
)
from ata_gym.utils.extras import require

require("lightning.pytorch", extra="integrations", purpose="TaskStrategy")

# These come after the error that names the extra.
from lightning.pytorch import LightningModule, Trainer  # noqa: E402
from lightning.pytorch.loops.optimization.automatic import ClosureResult  # noqa: E402
from lightning.pytorch.strategies import DDPStrategy  # noqa: E402
from lightning.pytorch.trainer.states import TrainerFn  # noqa: E402
from lightning.pytorch.utilities.model_helpers import is_overridden  # noqa: E402
from lightning.pytorch.utilities.signature_utils import (  # noqa: E402
    is_param_in_hook_signature,
)

_STATE_KEY = "ata_gym"
"""The key in checkpoints under which the allocator's state is."""
_UNSUPPORTED_OPTIONS = {
    "ddp_comm_hook": "gradients are summed once, as they are",
    "ddp_comm_state": "gradients are summed once, as they are",
    "ddp_comm_wrapper": "gradients are summed once, as they are",
    "model_averaging_period": "gradients are summed in each round, and models stay equal",
    "static_graph": "gradients are summed once, as they are",
    "bucket_cap_mb": "gradients are sent by the allocator, 25 MB at a time",
    "bucket_cap_mb_list": "gradients are sent by the allocator, 25 MB at a time",
    "batched_grad_copy": "gradients are sent by the allocator, 25 MB at a time",
    "delay_all_reduce_named_params": "gradients are summed once, as they are",
    "param_to_hook_all_reduce": "gradients are summed once, as they are",
    "mixed_precision": "gradients are summed once, as they are",
}
"""Options of ``DDPStrategy`` and ``DistributedDataParallel`` without effect in rounds, and why."""


class TaskStrategy(DDPStrategy):
    """A strategy in which each batch of Lightning is a round of B tasks over all ranks.

    It needs torchrun, and automatic optimisation. The training loader has a ``TaskSampler`` as its
    ``batch_sampler``, or is a ``TaskStream``. For each of its batches ``training_step`` of the
    module is called as ever, and gives the mean loss over the batch, or None for a task without
    gradient, which counts as one of the B tasks. Where all batches of a step give None, the step is
    skipped on all ranks, as ever. A rank may have several batches in a round, or
    none, so log what it computes without ``sync_dist``. Hooks around a batch get the numbers of the
    round's tasks; hooks of the transfer to the device get the batches. ``accumulate_grad_batches``
    adds up rounds; clipping, schedulers, precision plugins and checkpoints are Lightning's, and the
    state of the allocator is part of its checkpoints. The loss that Lightning sees is the mean over
    all tasks. In validation each rank has all samples. Where an epoch ends early, or samples are
    left over, the next epoch begins with the samples that follow.

    Args:
        allocator: Its process group is the default group, which the script has started.
        weight_of: What a batch counts for, such as its tokens, maybe 0. Then ``training_step``
            gives the sum of the loss over these, and the loss is the mean over all tokens of an
            optimizer step. Those of a batch without gradient do not count. Without it each task
            counts alike.
        options: The options of ``DDPStrategy``.

    Raises:
        ValueError: For an option that rounds have no use for, and for an allocator whose replicas
            have several ranks; in ``fit``, for a part of the module or of the trainer that rounds
            have no use for, and for training loaders other than one with a ``TaskSampler``, or a
            ``TaskStream``.
        RuntimeError: In ``fit``, for an optimiser that calls its closure again in a step, and for
            what waits for other ranks in ``training_step``.
    """

    def __init__(
        self,
        allocator: TorchAllocator,
        *,
        weight_of: Callable[[Any], float | Tensor] | None = None,
        **options: Any,
    ) -> None:
        for option, reason in _UNSUPPORTED_OPTIONS.items():
            if options.get(option):
                raise ValueError(f"TaskStrategy does not take {option}: {reason}; leave it out")
        if options.get("start_method", "popen") != "popen":
            raise ValueError(
                "TaskStrategy does not take start_method: the script has started its process group"
                " already; leave it out, and start the script with torchrun",
            )
        super().__init__(**options)
        self.allocator = for_trainer(allocator, "TaskStrategy")
        self._weight_of = weight_of
        self._tasks: object = None
        self._gradients: list[Tensor | None] = []
        self._in_round = False

    def connect(self, model: LightningModule) -> None:
        """Take the module; Lightning does not choose samples by rank, since the allocation does."""
        super().connect(model)
        model.trainer._accelerator_connector.use_distributed_sampler = False

    def setup(self, trainer: Trainer) -> None:
        """Set up as Lightning does; in ``fit``, refuse what rounds have no use for."""
        if trainer.state.fn == TrainerFn.FITTING:
            for feature, cure in _unsupported_parts(trainer):
                raise ValueError(f"TaskStrategy does not support {feature}: {cure}")
        super().setup(trainer)

    def process_dataloader(self, dataloader: object) -> object:
        """The rounds of a loader of tasks; any other loader as Lightning takes it."""
        if tasks_of(dataloader) is None:
            return super().process_dataloader(dataloader)
        self._tasks = dataloader
        return rounds_of(dataloader, self.allocator.budget)

    def batch_to_device(self, batch: Any, *arguments: Any, **keywords: Any) -> Any:
        """Move a batch as Lightning does; in training it stands for a round, and stays."""
        assert self.lightning_module is not None
        if not self.lightning_module.trainer.training:
            return super().batch_to_device(batch, *arguments, **keywords)
        _check_round(batch)
        return batch

    def training_step(self, *arguments: Any, **keywords: Any) -> Any:
        """Play a round, and return the mean loss of its tasks."""
        assert self.lightning_module is not None
        assert self.model is not None
        trainer = self.lightning_module.trainer
        accumulated = trainer.accumulate_grad_batches
        parameters = list(self.model.parameters())
        # Lightning drops the gradients of the last step only after this call.
        if trainer.fit_loop.batch_idx % accumulated == 0:
            for parameter in parameters:
                parameter.grad = None
        if self._weight_of is None:
            rounds = accumulated
        else:
            # The rounds of a step have one mean by their weights.
            rounds = 1
        scaler = getattr(self.precision_plugin, "scaler", None)
        begin_scaling(scaler, self.root_device)
        with self.allocator.round(self.model) as share, self._computing():
            for batch in share.take(self._tasks):
                converted = self.precision_plugin.convert_input(batch)
                output: Any = super().training_step(
                    super().batch_to_device(converted),
                    *arguments[1:],
                    **keywords,
                )
                loss = ClosureResult.from_training_step_output(output, rounds).closure_loss
                weight: float | Tensor | None = None
                if self._weight_of is not None and loss is not None:
                    weight = self._weight_of(batch)
                share.backward(loss, weight=weight, scaler=scaler)
            share.reduce()
        if any(
            metric.meta.sync.should and metric.meta.fx == "training_step"
            for metric in trainer.fit_loop._results.values()
        ):
            raise _waiting_in_round("self.log(..., sync_dist=True)")
        assert self.allocator.last is not None
        assert self.allocator.last.loss is not None
        # Lightning sets the gradients to None before it calls ``backward``, which puts them back.
        self._gradients = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        return torch.tensor(rounds * self.allocator.last.loss, device=self.root_device)

    def backward(self, closure_loss: Tensor, *_arguments: Any, **_keywords: Any) -> Tensor:
        """Give the model the gradient of the round, which is computed already."""
        assert self.lightning_module is not None
        assert self.model is not None
        # Lightning has no backward pass without a loss.
        if not self._has_gradient:
            return closure_loss
        loss = self.precision_plugin.pre_backward(closure_loss, self.lightning_module)
        for parameter, gradient in zip(self.model.parameters(), self._gradients, strict=True):
            parameter.grad = gradient
        return self.precision_plugin.post_backward(loss, self.lightning_module)

    def optimizer_step(
        self,
        optimizer: Any,
        closure: Callable[[], Any],
        *arguments: Any,
        **keywords: Any,
    ) -> Any:
        """Step as Lightning does, with the gradient of one round, or of several accumulated."""
        losses: list[Any] = []

        def closure_once() -> Any:
            if losses:
                raise RuntimeError(
                    f"{type(optimizer).__name__} calls its closure again in a step, which would be"
                    " another round, of other samples: TaskStrategy needs an optimizer with one"
                    " gradient in a step, such as AdamW, or LBFGS(max_iter=1)",
                )
            losses.append(closure())
            # Without a gradient a scaler cannot step, and without a loss Lightning does not let it.
            return losses[0] if self._has_gradient else None

        return super().optimizer_step(optimizer, closure_once, *arguments, **keywords)

    @property
    def _has_gradient(self) -> bool:
        """Whether any task since the last step had a loss."""
        return any(gradient is not None for gradient in self._gradients)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Refuse, within the block, what waits for the other ranks."""
        self._in_round = True
        try:
            yield
        finally:
            self._in_round = False

    def _check_no_round(self, call: str) -> None:
        if self._in_round:
            raise _waiting_in_round(call)

    def reduce(self, *arguments: Any, **keywords: Any) -> Any:
        """Reduce over the ranks as Lightning does, but not for a task."""
        self._check_no_round("self.log(..., sync_dist=True)")
        return super().reduce(*arguments, **keywords)

    def all_gather(self, *arguments: Any, **keywords: Any) -> Tensor:
        """Gather from the ranks as Lightning does, but not for a task."""
        self._check_no_round("all_gather")
        return super().all_gather(*arguments, **keywords)

    def broadcast(self, *arguments: Any, **keywords: Any) -> Any:
        """Broadcast to the ranks as Lightning does, but not for a task."""
        self._check_no_round("broadcast")
        return super().broadcast(*arguments, **keywords)

    def barrier(self, *arguments: Any, **keywords: Any) -> None:
        """Wait for the ranks as Lightning does, but not for a task."""
        self._check_no_round("barrier")
        super().barrier(*arguments, **keywords)

    def save_checkpoint(self, checkpoint: dict[str, Any], *arguments: Any, **keywords: Any) -> None:
        """Write a checkpoint with the state of the allocator."""
        super().save_checkpoint(
            {**checkpoint, _STATE_KEY: self.allocator.state_dict()},
            *arguments,
            **keywords,
        )

    def load_checkpoint(self, *arguments: Any, **keywords: Any) -> dict[str, Any]:
        """Read a checkpoint; in ``fit``, training goes on with the state of the allocator."""
        checkpoint = super().load_checkpoint(*arguments, **keywords)
        assert self.lightning_module is not None
        if _STATE_KEY in checkpoint and self.lightning_module.trainer.state.fn == TrainerFn.FITTING:
            self.allocator.load_state_dict(checkpoint[_STATE_KEY])
        return checkpoint


def _waiting_in_round(call: str) -> RuntimeError:
    return RuntimeError(
        f"{call} in training_step waits for ranks that have another number of tasks, or none: call"
        " it in on_train_batch_end, which every rank has once in a round",
    )


def _unsupported_parts(trainer: Any) -> Iterator[tuple[str, str]]:
    """What in a trainer and its module rounds have no use for, and the cure."""
    module = trainer.lightning_module
    if not module.automatic_optimization:
        yield (
            "manual optimisation",
            "each batch is a round with one gradient and one step: set automatic_optimization ="
            " True and return the loss, or write a loop of your own with allocator.round(model)",
        )
    if is_param_in_hook_signature(module.training_step, "dataloader_iter", explicit=True):
        yield (
            "training_step(dataloader_iter)",
            "the tasks of a round are loaded for it: write training_step(batch, batch_idx)",
        )
    if is_overridden("backward", module):
        yield (
            "a backward of the module's own",
            "share.backward(loss) is in its place: change the loss in training_step, or the"
            " gradient in on_after_backward",
        )
    hook = "on_before_batch_transfer"
    if any(is_overridden(hook, owner) for owner in (module, trainer.datamodule)):
        yield (
            hook,
            "Lightning calls it with the numbers of the round's tasks: do the same in"
            " on_after_batch_transfer, or in the dataset",
        )
    if trainer.overfit_batches:
        yield (
            "overfit_batches",
            "the samples go on from epoch to epoch: leave it out, and give TaskSampler and the"
            " loader torch.utils.data.Subset(dataset, range(n))",
        )
    if trainer.strategy._layer_sync is not None:
        yield (
            "sync_batchnorm",
            "ranks compute different numbers of batches: leave it out, since running statistics of"
            " BatchNorm become the means over all tasks",
        )


def _check_round(batch: Any) -> None:
    """Raise ``ValueError`` if a batch of Lightning is no round."""
    if isinstance(batch, RoundBatch):
        return
    parts: list[Any] = []
    if isinstance(batch, dict):
        parts = list(batch.values())
    elif isinstance(batch, list | tuple):
        parts = list(batch)
    if any(isinstance(part, RoundBatch) for part in parts):
        raise ValueError(
            "TaskStrategy takes one training loader, and not a collection of them: put the datasets"
            " into one, as torch.utils.data.StackDataset(a=..., b=...) does, with one TaskSampler",
        )
    raise ValueError(
        "TaskStrategy needs a training loader with batch_sampler=TaskSampler(allocator, dataset),"
        " or TaskStream(allocator, loader) in its place",
    )
