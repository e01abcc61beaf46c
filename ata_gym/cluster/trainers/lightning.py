"""A strategy of Lightning, with which each rank computes its share of the tasks of a step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ata_gym.cluster.torchrun.task_sampler import sampler_of
from ata_gym.cluster.torchrun.torch_allocator import TorchAllocator
from ata_gym.cluster.trainers.rounds import begin_scaling, rounds_of
from ata_gym.utils.extras import require

require("lightning.pytorch", extra="integrations", purpose="TaskStrategy")

# These come after the error that names the extra.
from lightning.pytorch import LightningModule  # noqa: E402
from lightning.pytorch.strategies import DDPStrategy  # noqa: E402
from lightning.pytorch.trainer.states import TrainerFn  # noqa: E402

_STATE_KEY = "ata_gym"
"""The key in checkpoints under which the allocator's state is."""


class TaskStrategy(DDPStrategy):
    """A strategy in which each batch of Lightning is a round of B tasks over all ranks.

    It needs torchrun, and automatic optimisation. The training loader has a ``TaskSampler`` as its
    ``batch_sampler``. For each of its batches ``training_step`` of the module is called as ever,
    and gives the mean loss over the batch. A rank may have several batches in a round, or none, so
    log what it computes without ``sync_dist``. Hooks around a batch get the numbers of the round's
    tasks. ``accumulate_grad_batches`` adds up rounds; clipping, schedulers, precision plugins and
    checkpoints are Lightning's, and the state of the allocator is part of its checkpoints. The
    loss that Lightning sees is the mean over all tasks. In validation each rank has all samples.

    Args:
        allocator: Its process group is the default group, which the script has started.
        weight_of: What a batch counts for, such as its tokens, maybe 0. Then ``training_step``
            gives the sum of the loss over these, and the loss is the mean over all tokens of an
            optimizer step. Without it each task counts alike.
        options: The options of ``DDPStrategy``.

    Raises:
        ValueError: For a training loader without a ``TaskSampler``.
    """

    def __init__(
        self,
        allocator: TorchAllocator,
        *,
        weight_of: Callable[[Any], float | Tensor] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.allocator = allocator
        self._weight_of = weight_of
        self._tasks: DataLoader[Any] | None = None
        self._gradients: list[Tensor | None] = []
        # Whether an optimiser has stepped since the last round.
        self._stepped = True

    def connect(self, model: LightningModule) -> None:
        """Take the module; Lightning does not choose samples by rank, since the allocation does."""
        super().connect(model)
        model.trainer._accelerator_connector.use_distributed_sampler = False

    def process_dataloader(self, dataloader: object) -> object:
        """The rounds of a loader with a ``TaskSampler``; any other loader as Lightning takes it."""
        if not isinstance(dataloader, DataLoader) or sampler_of(dataloader) is None:
            return super().process_dataloader(dataloader)
        self._tasks = dataloader
        return rounds_of(dataloader, self.allocator.budget)

    def training_step(self, *arguments: Any, **keywords: Any) -> Any:
        """Play a round, and return the mean loss of its tasks."""
        assert self.lightning_module is not None
        assert self.model is not None
        if self._tasks is None:
            raise ValueError(
                "TaskStrategy needs a training loader with batch_sampler=TaskSampler(allocator,"
                " dataset)",
            )
        parameters = list(self.model.parameters())
        # Lightning drops the gradients of the last step only after this call.
        if self._stepped:
            for parameter in parameters:
                parameter.grad = None
        self._stepped = False
        if self._weight_of is None:
            rounds = self.lightning_module.trainer.accumulate_grad_batches
        else:
            # The rounds of a step have one mean by their weights.
            rounds = 1
        scaler = getattr(self.precision_plugin, "scaler", None)
        begin_scaling(scaler, self.root_device)
        with self.allocator.round(self.model) as share:
            for batch in share.take(self._tasks):
                output: Any = super().training_step(
                    self.batch_to_device(batch),
                    *arguments[1:],
                    **keywords,
                )
                loss = output if isinstance(output, Tensor) else output["loss"]
                weight = None if self._weight_of is None else self._weight_of(batch)
                share.backward(loss / rounds, weight=weight, scaler=scaler)
            share.reduce()
        assert self.allocator.last is not None
        assert self.allocator.last.loss is not None
        # Lightning sets the gradients to None before it calls ``backward``, which puts them back.
        self._gradients = [parameter.grad for parameter in parameters]
        return torch.tensor(rounds * self.allocator.last.loss, device=self.root_device)

    def backward(self, closure_loss: Tensor, *_arguments: Any, **_keywords: Any) -> Tensor:
        """Give the model the gradient of the round, which is computed already."""
        assert self.lightning_module is not None
        assert self.model is not None
        for parameter, gradient in zip(self.model.parameters(), self._gradients, strict=True):
            parameter.grad = gradient
        return self.precision_plugin.post_backward(closure_loss, self.lightning_module)

    def optimizer_step(self, *arguments: Any, **keywords: Any) -> Any:
        """Step as Lightning does."""
        result = super().optimizer_step(*arguments, **keywords)
        self._stepped = True
        return result

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
