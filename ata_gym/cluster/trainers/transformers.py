"""The ``Trainer`` of transformers, in which each rank computes its share of a step's tasks."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ata_gym.cluster.torchrun.task_sampler import TaskSampler
from ata_gym.cluster.torchrun.torch_allocator import TorchAllocator
from ata_gym.cluster.trainers.rounds import begin_scaling, rounds_of
from ata_gym.utils.extras import require
from ata_gym.utils.files.atomic import write_whole
from ata_gym.utils.files.json_files import read_object

require("transformers", extra="integrations", purpose="TaskTrainer")

# These come after the error that names the extra.
from transformers import Trainer, TrainerCallback  # noqa: E402
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint  # noqa: E402

_STATE_FILE = "allocator.json"


class TaskTrainer(Trainer):  # type: ignore[misc]
    """A ``transformers.Trainer``, each of whose batches is a round of B tasks over all ranks.

    It needs torchrun. A task is a batch of ``per_device_train_batch_size`` samples; each rank
    computes as many as the allocator gives it. Gradient accumulation adds up rounds; clipping,
    schedulers, mixed precision with a ``GradScaler``, logging, evaluation and checkpoints stay as
    in ``Trainer``, and the state of the allocator is part of its checkpoints. The loss that it
    logs is the mean over all tasks.

    Args:
        allocator: Product after the ``TrainingArguments``, which start the process group.
        tasks_per_pass: Tasks in a pass, as for ``TaskSampler``.
        weight_of: What a batch of inputs counts for, such as its tokens, maybe 0. Then the model's
            loss must be a sum over these divided by ``num_items_in_batch``, as it is in language
            models, and the loss is the mean over all tokens of an optimizer step. Without it each
            task counts alike.
        arguments: The positional arguments of ``Trainer``.
        keywords: The keyword arguments of ``Trainer``.

    Raises:
        ValueError: For a training set whose samples have no numbers, for ``weight_of`` with a model
            whose loss cannot be a sum, and for a checkpoint without a state of the allocator.
    """

    def __init__(
        self,
        *arguments: Any,
        allocator: TorchAllocator,
        tasks_per_pass: int | None = 1,
        weight_of: Callable[[Mapping[str, Any]], float | Tensor] | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        if weight_of is not None and not (self.model_accepts_loss_kwargs or self.compute_loss_func):
            raise ValueError(
                "weight_of needs a model whose forward takes num_items_in_batch in its **kwargs, as"
                " language models of transformers do, or a compute_loss_func",
            )
        self.allocator = allocator
        self._tasks_per_pass = tasks_per_pass
        self._weight_of = weight_of
        self._step_loss = _StepLoss()
        self._tasks: DataLoader[Any] | None = None
        self.add_callback(_AllocatorCallback(allocator))

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The rounds of an epoch; tasks are loaded as ``Trainer`` would load batches."""
        loader = super().get_train_dataloader()
        if self.args.data_seed is None:
            seed = self.args.seed
        else:
            seed = self.args.data_seed
        sampler = TaskSampler(
            self.allocator,
            loader.dataset,
            samples=self._train_batch_size,
            tasks_per_pass=self._tasks_per_pass,
            seed=seed,
        )
        self._tasks = DataLoader(
            loader.dataset,
            batch_sampler=sampler,
            collate_fn=loader.collate_fn,
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
            persistent_workers=loader.num_workers > 0,
        )
        return rounds_of(self._tasks, self.allocator.budget)

    def training_step(
        self,
        model: nn.Module,
        inputs: Any,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """Play a round.

        Returns:
            What the round adds to the mean loss of the optimizer step.
        """
        model.train()
        # With this setting, Trainer multiplies a loss by the number of processes if it was told a
        # number of items.
        across = self.args.average_tokens_across_devices
        factor = self.accelerator.num_processes if across else 1
        items = torch.tensor(float(factor), device=self.args.device)
        begin_scaling(self.accelerator.scaler, self.args.device)
        with self.allocator.round(model) as share:
            for batch in share.take(self._tasks):
                if self._weight_of is None:
                    weight = None
                else:
                    weight = self._weight_of(batch)
                if weight is None:
                    arguments = {}
                else:
                    arguments = {"num_items_in_batch": items}
                with self.compute_loss_context_manager():
                    loss = self.compute_loss(model, self._prepare_inputs(batch), **arguments)
                if weight is None:
                    loss = loss / self.current_gradient_accumulation_steps
                share.backward(loss, weight=weight, scaler=self.accelerator.scaler)
            share.reduce()
        last = self.allocator.last
        assert last is not None
        assert last.loss is not None
        if self._weight_of is None:
            added = last.loss
        else:
            added = self._step_loss.add(last.loss, last.weight)
        if self.accelerator.sync_gradients:
            self._step_loss = _StepLoss()
        return torch.tensor(added, device=self.args.device)

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        *arguments: Any,
        **keywords: Any,
    ) -> Any:
        """Train as ``Trainer`` does; a checkpoint also gives the state of the allocator."""
        if resume_from_checkpoint is True:
            path = get_last_checkpoint(self.args.output_dir)
        else:
            path = resume_from_checkpoint
        if path:
            if not Path(path, _STATE_FILE).is_file():
                raise ValueError(
                    f"{path} is no checkpoint of a TaskTrainer: it has no {_STATE_FILE}",
                )
            self.allocator.load_state_dict(read_object(Path(path, _STATE_FILE)))
        return super().train(resume_from_checkpoint, *arguments, **keywords)

    def num_examples(self, dataloader: DataLoader[Any]) -> int:
        """The samples of a loader; for the rounds of an epoch, the samples of the training set."""
        if isinstance(dataloader.dataset, range) and self._tasks is not None:
            dataloader = self._tasks
        return int(super().num_examples(dataloader))

    def floating_point_ops(self, inputs: Any) -> int:
        """The number 0, since ``Trainer`` counts operations by the inputs of a batch."""
        return 0


class _StepLoss:
    """The mean loss of the rounds of an optimizer step so far, by their weights."""

    def __init__(self) -> None:
        self._mean = 0.0
        self._weight = 0.0

    def add(self, loss: float, weight: float) -> float:
        """Take in the mean loss of a round, and return by how much the mean of the step rose."""
        self._weight += weight
        rise = (loss - self._mean) * weight / self._weight
        self._mean += rise
        return rise


class _AllocatorCallback(TrainerCallback):  # type: ignore[misc]
    """Writes the state of the allocator into each checkpoint."""

    def __init__(self, allocator: TorchAllocator) -> None:
        self._allocator = allocator

    def on_save(self, args: Any, state: Any, control: Any, **_keywords: Any) -> None:
        if state.is_world_process_zero:
            folder = Path(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
            text = json.dumps(self._allocator.state_dict())
            write_whole(folder / _STATE_FILE, lambda part: part.write_text(text, "utf-8"))
