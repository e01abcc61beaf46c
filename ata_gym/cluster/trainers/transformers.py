"""The ``Trainer`` of transformers, in which each rank computes its share of a step's tasks."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from ata_gym.cluster.torchrun.loading.task_sampler import TaskSampler
from ata_gym.cluster.torchrun.loading.task_stream import TaskStream
from ata_gym.cluster.torchrun.torch_allocator import TorchAllocator
from ata_gym.cluster.trainers.rounds import RoundBatch, begin_scaling, for_trainer, rounds_of
from ata_gym.utils.extras import require
from ata_gym.utils.files.atomic import write_whole
from ata_gym.utils.files.json_files import read_object

require("transformers", extra="integrations", purpose="TaskTrainer")
require("accelerate", extra="integrations", purpose="TaskTrainer")

# These come after the error that names the extra.
from accelerate.data_loader import SeedableRandomSampler  # noqa: E402
from accelerate.utils import send_to_device  # noqa: E402
from accelerate.utils.memory import clear_device_cache  # noqa: E402
from transformers import Trainer  # noqa: E402
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint  # noqa: E402

_STATE_FILE = "allocator.json"
_LOADING = (
    "collate_fn",
    "num_workers",
    "pin_memory",
    "prefetch_factor",
    "multiprocessing_context",
    "worker_init_fn",
)
"""What the loader of tasks takes over from the loader of ``Trainer``."""


class TaskTrainer(Trainer):  # type: ignore[misc]
    """A ``transformers.Trainer``, each of whose batches is a round of B tasks over all ranks.

    It needs torchrun. A task is a batch of ``per_device_train_batch_size`` samples; each rank
    computes as many as the allocator gives it. They follow the order of ``train_sampling_strategy``
    or of an overridden ``_get_train_sampler``. Samples that are left over at the end of an epoch,
    fewer than a round has, begin the next one. Gradient accumulation adds up rounds; clipping,
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
        ValueError: For an option of ``TrainingArguments`` that shares have no use for, for
            ``tasks_per_pass`` with an ``IterableDataset``, for ``weight_of`` with a model whose
            loss cannot be a sum, for a checkpoint without a state of the allocator, and for an
            allocator whose replicas have several ranks.
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
        for option, cure in _unsupported_options(self):
            raise ValueError(f"TaskTrainer does not take {option}: {cure}")
        if weight_of is not None and not (self.model_accepts_loss_kwargs or self.compute_loss_func):
            raise ValueError(
                "weight_of needs a model whose forward takes num_items_in_batch in its **kwargs, as"
                " language models of transformers do, or a compute_loss_func",
            )
        if tasks_per_pass != 1 and isinstance(self.train_dataset, IterableDataset):
            raise ValueError(
                "tasks_per_pass must be 1 for an IterableDataset, each of whose batches is a task:"
                " give a larger per_device_train_batch_size, and a smaller budget",
            )
        self.allocator = for_trainer(allocator, "TaskTrainer")
        self._tasks_per_pass = tasks_per_pass
        self._weight_of = weight_of
        self._step_loss = _StepLoss()
        self._tasks: DataLoader[Any] | TaskStream | None = None

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The rounds of an epoch; tasks are loaded as ``Trainer`` would load batches."""
        loader = super().get_train_dataloader()
        if self.args.data_seed is None:
            seed = self.args.seed
        else:
            seed = self.args.data_seed
        options = {name: getattr(loader, name) for name in _LOADING}
        if isinstance(self.train_dataset, IterableDataset):
            stream = DataLoader(self.train_dataset, self._train_batch_size, **options)
            self._tasks = TaskStream(self.allocator, stream, seed=seed)
            return rounds_of(self._tasks, self.allocator.budget)
        sampler = TaskSampler(
            self.allocator,
            loader.dataset,
            samples=self._train_batch_size,
            tasks_per_pass=self._tasks_per_pass,
            seed=seed,
            **_order_of(loader),
        )
        self._tasks = DataLoader(
            loader.dataset,
            batch_sampler=sampler,
            persistent_workers=loader.num_workers > 0,
            **options,
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
        if not isinstance(inputs, RoundBatch):
            raise ValueError(  # noqa: TRY004
                "TaskTrainer loads its tasks itself: override _get_train_sampler in place of"
                " get_train_dataloader, and give the training set and the collator as"
                " train_dataset and data_collator",
            )
        model.train()
        # As Trainer does for optimizers without a schedule.
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
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
                    loss = self.compute_loss(model, self._on_device(batch), **arguments)
                empty_every = self.args.torch_empty_cache_steps
                if empty_every is not None and self.state.global_step % empty_every == 0:
                    clear_device_cache()
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

    def _on_device(self, batch: Any) -> Any:
        non_blocking = self.accelerator.non_blocking
        return self._prepare_inputs(
            send_to_device(batch, self.args.device, non_blocking=non_blocking),
        )

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

    def _save_checkpoint(self, model: Any, trial: Any, *arguments: Any, **keywords: Any) -> None:
        if self.args.should_save:
            name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            folder = Path(self._get_output_dir(trial=trial), name)
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self.allocator.state_dict())
            write_whole(folder / _STATE_FILE, lambda part: part.write_text(text, "utf-8"))
        super()._save_checkpoint(model, trial, *arguments, **keywords)

    def get_total_train_batch_size(self, args: Any) -> int:
        """The samples of a step, over all ranks."""
        samples: int = self._train_batch_size * self.allocator.budget
        return samples * int(args.gradient_accumulation_steps)

    def num_examples(self, dataloader: DataLoader[Any]) -> int:
        """The samples of a loader; for the rounds of an epoch, the samples of the training set."""
        if isinstance(dataloader.dataset, range):
            if isinstance(self._tasks, TaskStream):
                return len(self._tasks.loader) * self._train_batch_size
            if self._tasks is not None:
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


def _unsupported_options(trainer: Trainer) -> Iterator[tuple[str, str]]:
    """The options of a trainer that shares of a round have no use for, and the cure of each."""
    args = trainer.args
    loading = args.accelerator_config
    optimizer = str(getattr(args.optim, "value", args.optim))
    fsdp = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    if getattr(args, "train_sampling_strategy", None) == "batch_rebalance":
        yield (
            "train_sampling_strategy='batch_rebalance'",
            "it chooses the samples of each rank, as the allocation does: take 'group_by_length'",
        )
    if loading.split_batches:
        yield (
            "split_batches",
            "a task is a batch of per_device_train_batch_size samples, which is not split: leave"
            " it out, and choose the number of tasks with TorchAllocator(budget=...)",
        )
    if loading.dispatch_batches:
        yield (
            "dispatch_batches",
            "each rank loads the samples of its own tasks: leave it out",
        )
    if not getattr(args, "dataloader_in_order", True):
        yield (
            "dataloader_in_order=False",
            "the tasks of a share are told apart by their order: leave it out",
        )
    if args.auto_find_batch_size:
        yield (
            "auto_find_batch_size",
            "a rank that begins again alone would leave the others waiting: leave it out, and lower"
            " per_device_train_batch_size or tasks_per_pass",
        )
    if args.include_num_input_tokens_seen not in (False, "no"):
        yield (
            "include_num_input_tokens_seen",
            "a batch of Trainer stands for a round, and has no tokens: leave it out, and count them"
            " in data_collator",
        )
    if args.ddp_static_graph:
        yield (
            "ddp_static_graph",
            "DistributedDataParallel would send gradients by itself: leave it out",
        )
    if args.ddp_bucket_cap_mb is not None:
        yield (
            "ddp_bucket_cap_mb",
            "gradients are sent by the allocator, 25 MB at a time: leave it out",
        )
    if fsdp is not None and getattr(fsdp, "fsdp_version", 1) != 2:
        yield (
            "fsdp of version 1",
            "a round needs fully_shard: add fsdp_config={'version': 2}",
        )
    if trainer.is_deepspeed_enabled:
        yield (
            "deepspeed",
            "its engine sends gradients by itself: leave it out, or take fsdp",
        )
    if getattr(trainer.accelerator, "parallelism_config", None) is not None:
        yield (
            "parallelism_config",
            "each rank has the whole model: leave it out, or train with TorchAllocator(mesh=...) in"
            " a loop of your own",
        )
    if optimizer in ("lomo", "adalomo") or optimizer.endswith("layerwise"):
        yield (
            f"optim={optimizer!r}",
            "it steps within a backward pass, before the gradient of the round is there: take"
            " another optimizer, such as 'adamw_torch'",
        )


def _order_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """The options of ``TaskSampler`` for the order of samples in a loader of ``Trainer``."""
    batch_sampler: Any = loader.batch_sampler
    # accelerate puts its own samplers of batches around the sampler of ``Trainer``.
    while hasattr(batch_sampler, "batch_sampler"):
        batch_sampler = batch_sampler.batch_sampler
    sampler: Any = getattr(batch_sampler, "sampler", None)
    if type(sampler) is SequentialSampler:
        return {"shuffle": False}
    if type(sampler) in (RandomSampler, SeedableRandomSampler):
        once = sampler.num_samples == len(sampler.data_source) and not sampler.replacement
        if once:
            return {}
    return {"sampler": sampler}
