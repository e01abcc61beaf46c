"""The ``Trainer`` of transformers, in which each rank computes its share of the tasks of a step."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ata_gym.cluster.torchrun.task_sampler import TaskSampler
from ata_gym.cluster.torchrun.torch_allocator import TorchAllocator
from ata_gym.cluster.trainers.rounds import rounds_of
from ata_gym.utils.atomic import write_whole
from ata_gym.utils.extras import require
from ata_gym.utils.json_files import read_object

require("transformers", extra="integrations", purpose="TaskTrainer")

from transformers import Trainer, TrainerCallback  # noqa: E402 - after the error that names the extra
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint  # noqa: E402

_STATE = "allocator.json"


class TaskTrainer(Trainer):  # type: ignore[misc]
    """A ``transformers.Trainer`` under torchrun, each of whose batches is a round of B tasks over all ranks.

    A task is a batch of ``per_device_train_batch_size`` samples; each rank computes as many as the allocator gives it.
    Gradient accumulation adds up rounds; clipping, schedulers, mixed precision with a ``GradScaler``, logging and
    checkpoints are those of ``Trainer``, and what is known of the workers is part of its checkpoints. The loss that it
    logs is the mean over all tasks. Evaluation is as in ``Trainer``.

    - ``allocator``: made after the ``TrainingArguments``, which start the process group.
    - ``together``: tasks in a pass, as of ``TaskSampler``.
    - ``weight_of``: what a batch of inputs counts for, such as its tokens; then the model's loss must be a sum over
      these divided by ``num_items_in_batch``, as that of language models is, and the loss is the mean over all tokens
      of a round. Without it each task counts alike.
    - ``arguments``: those of ``Trainer``.

    ValueError for a training set whose samples have no numbers, for ``weight_of`` with a model whose loss cannot be a
    sum, and for a checkpoint without a state of the allocator.
    """

    def __init__(
        self, *arguments: Any, allocator: TorchAllocator, together: int | None = 1,
        weight_of: Callable[[Mapping[str, Any]], float | Tensor] | None = None, **named: Any,
    ) -> None:  # fmt: skip
        super().__init__(*arguments, **named)
        if weight_of is not None and not (self.model_accepts_loss_kwargs or self.compute_loss_func):
            raise ValueError(
                "weight_of needs a model whose forward takes num_items_in_batch in its **kwargs, as language models of "
                "transformers do, or a compute_loss_func"
            )
        self.allocator, self._together, self._weight_of = allocator, together, weight_of
        self._tasks: DataLoader[Any] | None = None
        self.add_callback(_Keep(allocator))

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The rounds of an epoch; the samples of tasks are loaded as ``Trainer`` would load batches."""
        made = super().get_train_dataloader()
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        sampler = TaskSampler(
            self.allocator, made.dataset, samples=self._train_batch_size, together=self._together, seed=seed
        )
        self._tasks = DataLoader(
            made.dataset, batch_sampler=sampler, collate_fn=made.collate_fn, num_workers=made.num_workers,
            pin_memory=made.pin_memory, persistent_workers=made.num_workers > 0,
        )  # fmt: skip
        return rounds_of(self._tasks, self.allocator.budget)

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Play a round; the mean loss of its tasks, divided by the steps of accumulation."""
        model.train()
        across = self.args.average_tokens_across_devices  # then Trainer multiplies what has a number of items
        items = torch.tensor(float(self.accelerator.num_processes if across else 1), device=self.args.device)
        with self.allocator.round(model) as share:
            for batch in share.take(self._tasks):
                weight = None if self._weight_of is None else self._weight_of(batch)
                named = {} if weight is None else {"num_items_in_batch": items}
                with self.compute_loss_context_manager():
                    loss = self.compute_loss(model, self._prepare_inputs(batch), **named)
                loss = loss / self.current_gradient_accumulation_steps
                share.backward(loss, weight=weight, scaler=self.accelerator.scaler)
            share.reduce()
        assert self.allocator.last is not None
        return torch.tensor(self.allocator.last.loss, device=self.args.device)

    def train(self, resume_from_checkpoint: str | bool | None = None, *arguments: Any, **named: Any) -> Any:
        """As of ``Trainer``; from a checkpoint, what is known of the workers is loaded, too."""
        path = get_last_checkpoint(self.args.output_dir) if resume_from_checkpoint is True else resume_from_checkpoint
        if path:
            if not Path(path, _STATE).is_file():
                raise ValueError(f"{path} is no checkpoint of a TaskTrainer: it has no {_STATE}")
            self.allocator.load_state_dict(read_object(Path(path, _STATE)))
        return super().train(resume_from_checkpoint, *arguments, **named)

    def num_examples(self, dataloader: DataLoader[Any]) -> int:
        """The samples of a loader; for the rounds of an epoch, those of the training set."""
        rounds = isinstance(dataloader.dataset, range)
        return int(super().num_examples(self._tasks if rounds and self._tasks is not None else dataloader))

    def floating_point_ops(self, inputs: Any) -> int:
        """None are counted, since ``Trainer`` counts them by the inputs of a batch."""
        return 0


class _Keep(TrainerCallback):  # type: ignore[misc]
    """Writes what is known of the workers into each checkpoint."""

    def __init__(self, allocator: TorchAllocator) -> None:
        self._allocator = allocator

    def on_save(self, args: Any, state: Any, control: Any, **_named: Any) -> None:
        if state.is_world_process_zero:
            folder = Path(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
            text = json.dumps(self._allocator.state_dict())
            write_whole(folder / _STATE, lambda part: part.write_text(text, "utf-8"))
