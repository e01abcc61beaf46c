"""TaskTrainer: each option of TrainingArguments trains as ever or is refused by name."""

import copy
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch.distributed as dist  # noqa: E402
from torch.utils.data import (  # noqa: E402
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    WeightedRandomSampler,
)

from ata_gym.cluster import TorchAllocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402

# The libraries call what torch has deprecated, and warn of a process group that a test has made.
pytestmark = pytest.mark.filterwarnings("ignore")
SIZE = 12
DEFAULTS = {
    "max_steps": 4,
    "per_device_train_batch_size": 2,
    "learning_rate": 0.5,
    "optim": "sgd",
    "train_sampling_strategy": "sequential",
    "logging_steps": 1,
    "save_strategy": "no",
    "use_cpu": True,
    "report_to": [],
    "disable_tqdm": True,
}


class Texts(Dataset):
    """Texts of unequal lengths, the number of which is in a column that no model takes."""

    def __init__(self, size=SIZE):
        generator = torch.Generator().manual_seed(1)
        starts = torch.randint(16, (size,), generator=generator)
        self.texts = [(start + torch.arange(6)) % 16 for start in starts]
        self.read = []

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, number):
        self.read.append(int(number))
        text = self.texts[number]
        return {"input_ids": text, "labels": text, "number": number}


def model_of(weighs=False):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    off = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1, **off),
    )
    # Otherwise Trainer divides by all tokens, of which the model leaves out the first.
    model.accepts_loss_kwargs = weighs
    return model


def allocator_of(budget, **limits):
    return TorchAllocator(
        budget,
        "uta",
        name=f"w{dist.get_rank()}",
        warm_up=0,
        limits=limits or None,
    )


def trainer_of(
    folder,
    allocator=None,
    kind=None,
    data=None,
    weight_of=None,
    **options,
):
    """A TaskTrainer, or a Trainer without an allocator."""
    import transformers

    from ata_gym.cluster import TaskTrainer

    # Trainer changes what it is given.
    options = copy.deepcopy({**DEFAULTS, **options})
    arguments = transformers.TrainingArguments(str(folder), **options)
    keywords = {"train_dataset": data or Texts(), "eval_dataset": Texts(3)}
    if allocator is None:
        return transformers.Trainer(model_of(), arguments, **keywords)
    keywords |= {"allocator": allocator, "weight_of": weight_of}
    return (kind or TaskTrainer)(model_of(weight_of is not None), arguments, **keywords)


def weights(trainer):
    return torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()])


class Works(NamedTuple):
    """With these values training is as Trainer's, and another than without them."""

    options: dict[str, Any]
    effect: Callable[[Any], bool] | None = None
    """What shows in a trainer that an option was taken which changes no weight."""


class Shown(NamedTuple):
    """The effect is shown by a test of this folder."""

    test: str


class Refused(NamedTuple):
    """The option is refused with this sentence; with the cure it trains."""

    options: dict[str, Any]
    sentence: str
    cure: dict[str, Any]


class Unmet(NamedTuple):
    """What TaskTrainer replaces does not meet the option."""

    reason: str


def is_checkpointing(trainer):
    return trainer.model.is_gradient_checkpointing


def is_compiled(trainer):
    return type(trainer.model_wrapped).__name__ == "OptimizedModule"


LOGGED = "what is logged and shown, and where"
EVALUATED = "no training"
SAVED = "which files are written, and where"
MODEL = "the model"
OPTIMIZER = "the optimizer, which Trainer makes"
STARTED = "before the allocator is there"
SCRIPT = "for the script of a user"
LOADED = Shown("test_tasks_are_loaded_as_asked")
CHECKPOINTS = Shown("test_checkpoints_have_the_state_of_the_allocator")
ORDERS = Shown("test_ranks_share_the_order_of_any_sampler")
RESUMED = Shown(
    "test_transformers_trains_as_one_process_and_goes_on_from_its_checkpoint_with_other_ranks",
)
IN_BACKWARD = "it steps within a backward pass"
EVALUATION = {"eval_strategy": "steps", "eval_steps": 2}
BEST = {
    "eval_strategy": "steps",
    "eval_steps": 1,
    "save_strategy": "steps",
    "save_steps": 1,
    "load_best_model_at_end": True,
    "learning_rate": 20.0,
    "lr_scheduler_type": "constant",
}
OPTIONS = {
    "output_dir": Unmet(SAVED),
    "per_device_train_batch_size": Works({"per_device_train_batch_size": 3}),
    "num_train_epochs": Works({"num_train_epochs": 1.2, "max_steps": -1}),
    "max_steps": Works({"max_steps": 7}),
    "learning_rate": Works({"learning_rate": 0.1}),
    "lr_scheduler_type": Works({"lr_scheduler_type": "cosine"}),
    "lr_scheduler_kwargs": Works(
        {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"power": 3.0}},
    ),
    "warmup_steps": Works({"warmup_steps": 2}),
    "optim": (
        Works({"optim": "adamw_torch", "learning_rate": 0.01}),
        Refused({"optim": "lomo"}, IN_BACKWARD, {"optim": "adamw_torch"}),
        Refused({"optim": "adalomo"}, IN_BACKWARD, {"optim": "adamw_torch"}),
        Refused({"optim": "galore_adamw_layerwise"}, IN_BACKWARD, {"optim": "adamw_torch"}),
        Refused({"optim": "apollo_adamw_layerwise"}, IN_BACKWARD, {"optim": "adamw_torch"}),
    ),
    "optim_args": Unmet(OPTIMIZER),
    "weight_decay": Works({"weight_decay": 0.1}),
    "adam_beta1": Unmet(OPTIMIZER),
    "adam_beta2": Unmet(OPTIMIZER),
    "adam_epsilon": Unmet(OPTIMIZER),
    "optim_target_modules": Unmet(OPTIMIZER),
    "gradient_accumulation_steps": Works({"gradient_accumulation_steps": 2}),
    "average_tokens_across_devices": Shown("test_tokens_of_all_ranks_have_one_mean"),
    "max_grad_norm": Works({"max_grad_norm": 0.01}),
    "label_smoothing_factor": Works({"label_smoothing_factor": 0.3}),
    "bf16": Works({"bf16": True}),
    "fp16": Shown("test_losses_are_scaled"),
    "bf16_full_eval": Unmet(EVALUATED),
    "fp16_full_eval": Unmet(EVALUATED),
    "tf32": Unmet("a setting of torch"),
    "activation_checkpointing": Works({"activation_checkpointing": True}, is_checkpointing),
    "activation_checkpointing_kwargs": Works(
        {
            "activation_checkpointing": True,
            "activation_checkpointing_kwargs": {"use_reentrant": False},
        },
        is_checkpointing,
    ),
    "gradient_checkpointing": Works({"gradient_checkpointing": True}, is_checkpointing),
    "gradient_checkpointing_kwargs": Works(
        {
            "gradient_checkpointing": True,
            "gradient_checkpointing_kwargs": {"use_reentrant": False},
        },
        is_checkpointing,
    ),
    "torch_compile": Works({"torch_compile_backend": "eager"}, is_compiled),
    "torch_compile_backend": Unmet("torch.compile, which gets the model as Trainer gives it"),
    "torch_compile_mode": Unmet("torch.compile, which gets the model as Trainer gives it"),
    "use_liger_kernel": Unmet(MODEL),
    "liger_kernel_config": Unmet(MODEL),
    "use_cache": Unmet(MODEL),
    "neftune_noise_alpha": Shown("test_noise_of_embeddings"),
    "torch_empty_cache_steps": Shown("test_the_cache_is_emptied"),
    "auto_find_batch_size": Refused(
        {"auto_find_batch_size": True},
        "a rank that begins again alone",
        {"per_device_train_batch_size": 1},
    ),
    "logging_strategy": Unmet(LOGGED),
    "logging_steps": Unmet(LOGGED),
    "logging_first_step": Unmet(LOGGED),
    "log_on_each_node": Unmet(LOGGED),
    "logging_nan_inf_filter": Unmet("a loss that is not finite is an error, or let through"),
    "include_num_input_tokens_seen": (
        Refused({"include_num_input_tokens_seen": True}, "stands for a round", {}),
        Refused({"include_num_input_tokens_seen": "non_padding"}, "stands for a round", {}),
    ),
    "log_level": Unmet(LOGGED),
    "log_level_replica": Unmet(LOGGED),
    "disable_tqdm": Unmet(LOGGED),
    "report_to": Unmet(LOGGED),
    "run_name": Unmet(LOGGED),
    "project": Unmet(LOGGED),
    "trackio_space_id": Unmet(LOGGED),
    "trackio_bucket_id": Unmet(LOGGED),
    "trackio_static_space_id": Unmet(LOGGED),
    "eval_strategy": Works({"eval_strategy": "epoch"}),
    "eval_steps": Works(EVALUATION),
    "eval_delay": Works({**EVALUATION, "eval_delay": 3}),
    "per_device_eval_batch_size": Unmet(EVALUATED),
    "prediction_loss_only": Unmet(EVALUATED),
    "eval_on_start": Works({**EVALUATION, "eval_on_start": True}),
    "eval_do_concat_batches": Unmet(EVALUATED),
    "eval_use_gather_object": Unmet(EVALUATED),
    "eval_accumulation_steps": Unmet(EVALUATED),
    "include_for_metrics": Unmet(EVALUATED),
    "batch_eval_metrics": Unmet(EVALUATED),
    "save_only_model": CHECKPOINTS,
    "save_strategy": RESUMED,
    "save_steps": RESUMED,
    "save_on_each_node": CHECKPOINTS,
    "save_total_limit": CHECKPOINTS,
    "enable_jit_checkpoint": CHECKPOINTS,
    "push_to_hub": Unmet(SAVED),
    "hub_token": Unmet(SAVED),
    "hub_private_repo": Unmet(SAVED),
    "hub_model_id": Unmet(SAVED),
    "hub_strategy": Unmet(SAVED),
    "hub_always_push": Unmet(SAVED),
    "hub_revision": Unmet(SAVED),
    "load_best_model_at_end": Works(BEST),
    "metric_for_best_model": Works({**BEST, "metric_for_best_model": "loss"}),
    "greater_is_better": Works({**BEST, "greater_is_better": True}),
    "ignore_data_skip": Shown("test_a_checkpoint_goes_on_with_the_samples_that_follow"),
    "restore_callback_states_from_checkpoint": Unmet("callbacks of Trainer"),
    "full_determinism": Unmet("a setting of torch"),
    "seed": Shown("test_the_order_follows_from_the_seed"),
    "data_seed": Shown("test_the_order_follows_from_the_seed"),
    "use_cpu": Unmet(STARTED),
    "accelerator_config": Works(
        {"accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 2}}},
    ),
    "parallelism_config": Shown("test_engines_of_others_are_refused"),
    "dataloader_drop_last": Shown("test_rounds_are_whole"),
    "dataloader_num_workers": LOADED,
    "dataloader_pin_memory": LOADED,
    "dataloader_persistent_workers": LOADED,
    "dataloader_prefetch_factor": LOADED,
    "dataloader_multiprocessing_context": LOADED,
    "dataloader_in_order": Refused(
        {"dataloader_in_order": False},
        "the tasks of a share are told apart by their order",
        {},
    ),
    "remove_unused_columns": Shown("test_each_option_trains_as_trainer_does"),
    "label_names": Unmet(EVALUATED),
    "train_sampling_strategy": (
        ORDERS,
        Refused(
            {"train_sampling_strategy": "batch_rebalance"},
            "it chooses the samples of each rank",
            {"train_sampling_strategy": "group_by_length"},
        ),
    ),
    "length_column_name": Unmet("Trainer makes its sampler with it, and the sampler is taken"),
    "ddp_find_unused_parameters": Unmet("parameters without a gradient are no fault in a round"),
    "ddp_bucket_cap_mb": Refused({"ddp_bucket_cap_mb": 5}, "are sent by the allocator", {}),
    "ddp_broadcast_buffers": Unmet("a round broadcasts no buffers"),
    "ddp_static_graph": Refused({"ddp_static_graph": True}, "send gradients by itself", {}),
    "ddp_backend": Unmet(STARTED),
    "ddp_timeout": Unmet(STARTED),
    "fsdp": Shown("test_engines_of_others_are_refused"),
    "fsdp_config": Shown("test_engines_of_others_are_refused"),
    "deepspeed": Shown("test_engines_of_others_are_refused"),
    "debug": Unmet(MODEL),
    "skip_memory_metrics": Unmet(LOGGED),
    "do_train": Unmet(SCRIPT),
    "do_eval": Unmet(SCRIPT),
    "do_predict": Unmet(SCRIPT),
    "resume_from_checkpoint": Unmet(SCRIPT),
    "local_rank": Unmet(STARTED),
}
"""Each option of ``TrainingArguments``."""

ACCELERATOR_OPTIONS = {
    "split_batches": Refused(
        {"accelerator_config": {"split_batches": True}},
        "which is not split",
        {},
    ),
    "dispatch_batches": Refused(
        {"accelerator_config": {"dispatch_batches": True}},
        "each rank loads the samples of its own tasks",
        {},
    ),
    "even_batches": Unmet("rounds are whole"),
    "use_seedable_sampler": Unmet("the order follows from the seed in any case"),
    "non_blocking": LOADED,
    "gradient_accumulation_kwargs": Works(
        {"accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 2}}},
    ),
    "use_configured_state": Unmet(STARTED),
}
"""Each option of ``accelerator_config``."""


def entries(kind):
    """Each option of a kind, by name."""
    for name, option in (*OPTIONS.items(), *ACCELERATOR_OPTIONS.items()):
        several = option if type(option) is tuple else (option,)
        yield from ((name, entry) for entry in several if isinstance(entry, kind))


def test_the_tables_name_each_option_of_the_libraries():
    from transformers import TrainingArguments
    from transformers.trainer_pt_utils import AcceleratorConfig

    assert {field.name for field in dataclasses.fields(TrainingArguments)} <= set(OPTIONS)
    options = {field.name for field in dataclasses.fields(AcceleratorConfig)}
    assert options <= set(ACCELERATOR_OPTIONS)
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    for name, option in entries(Shown):
        assert f"def {option.test}(" in tests, name


def history(folder, allocator, options):
    """The losses that are logged in training, the weights after it, and the trainer."""
    trainer = trainer_of(folder, allocator, **options)
    trainer.train()
    losses = [
        value
        for line in trainer.state.log_history
        for key, value in line.items()
        if key in ("loss", "eval_loss")
    ]
    return losses, weights(trainer), trainer


def are_close(one, other):
    return len(one) == len(other) and np.allclose(one, other, rtol=0.0, atol=3e-6)


@pytest.mark.usefixtures("quick")
def test_each_option_trains_as_trainer_does(tmp_path):
    default = history(tmp_path, allocator_of(1), {})
    for name, option in entries(Works):
        losses, trained, trainer = history(tmp_path, allocator_of(1), option.options)
        expected_losses, expected, _ = history(tmp_path, None, option.options)
        assert are_close(losses, expected_losses), name
        assert are_close(trained, expected), name
        is_default = are_close(losses, default[0]) and are_close(trained, default[1])
        assert is_default == (option.effect is not None), name
        assert option.effect is None or option.effect(trainer), name


@pytest.mark.usefixtures("quick")
def test_each_option_that_is_refused_is_named_and_the_cure_trains(tmp_path):
    for name, option in entries(Refused):
        allocator = allocator_of(2)
        with pytest.raises(ValueError, match=f"TaskTrainer does not take .*{option.sentence}"):
            trainer_of(tmp_path, allocator, **option.options)
        trainer_of(tmp_path, allocator, **option.cure).train()
        assert allocator.rounds == 4, name


@pytest.mark.usefixtures("quick")
def test_engines_of_others_are_refused(tmp_path):
    from accelerate import ParallelismConfig

    from ata_gym.cluster import TaskTrainer

    class WithDeepSpeed(TaskTrainer):
        def create_accelerator_and_postprocess(self):
            super().create_accelerator_and_postprocess()
            self.is_deepspeed_enabled = True

    class WithFSDP(TaskTrainer):
        def create_accelerator_and_postprocess(self):
            super().create_accelerator_and_postprocess()
            self.accelerator.state.fsdp_plugin = SimpleNamespace(fsdp_version=self.version)

    class WithFSDP1(WithFSDP):
        version = 1

    class WithFSDP2(WithFSDP):
        version = 2

    allocator = allocator_of(2)
    with pytest.raises(ValueError, match=r"take deepspeed: .* leave it out, or take fsdp"):
        trainer_of(tmp_path, allocator, WithDeepSpeed)
    with pytest.raises(ValueError, match=r"version 1: .* fsdp_config=\{'version': 2\}"):
        trainer_of(tmp_path, allocator, WithFSDP1)
    with pytest.raises(ValueError, match=r"take parallelism_config: .* leave it out"):
        trainer_of(tmp_path, allocator, parallelism_config=ParallelismConfig())
    trainer_of(tmp_path, allocator, WithFSDP2)
    trainer_of(tmp_path, allocator).train()
    assert allocator.rounds == 4


@pytest.mark.usefixtures("quick")
def test_tasks_are_loaded_as_asked(tmp_path):
    trainer = trainer_of(
        tmp_path,
        allocator_of(2),
        dataloader_num_workers=1,
        dataloader_prefetch_factor=3,
        dataloader_multiprocessing_context="spawn",
    )
    trainer.get_train_dataloader()
    loader = trainer._tasks
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (1, 3, True)
    assert loader.multiprocessing_context.get_start_method() == "spawn"
    assert loader.worker_init_fn is not None
    assert not loader.pin_memory
    # An argument of a CPU turns it off.
    trainer.args.dataloader_pin_memory = True
    trainer.get_train_dataloader()
    assert trainer._tasks.pin_memory
    for non_blocking in (False, True):
        trainer = trainer_of(
            tmp_path,
            allocator_of(2),
            accelerator_config={"non_blocking": non_blocking},
        )
        with mock.patch(
            "ata_gym.cluster.trainers.transformers.send_to_device",
            side_effect=lambda batch, *_, **__: batch,
        ) as sent:
            trainer.train()
        assert sent.call_count == 8
        assert {call.kwargs["non_blocking"] for call in sent.call_args_list} == {non_blocking}


@pytest.mark.usefixtures("quick")
def test_rounds_are_whole(tmp_path):
    for drop_last in (False, True):
        data = Texts(11)
        options = {"dataloader_drop_last": drop_last, "max_steps": -1, "num_train_epochs": 4}
        trainer = trainer_of(tmp_path, allocator_of(2), data=data, **options)
        trainer.train()
        assert trainer.state.global_step == 8
        assert data.read == [place % 11 for place in range(32)]


@pytest.mark.usefixtures("quick")
def test_the_speed_that_is_logged_is_that_of_all_tasks(tmp_path):
    trainer = trainer_of(tmp_path, allocator_of(3))
    trainer.train()
    last = trainer.state.log_history[-1]
    samples = last["train_samples_per_second"] / last["train_steps_per_second"]
    assert samples == pytest.approx(6, rel=0.1)


@pytest.mark.usefixtures("quick")
def test_the_order_follows_from_the_seed(tmp_path):
    orders = []
    for options in ({"seed": 1}, {"seed": 2}, {"data_seed": 1}, {"seed": 2, "data_seed": 1}):
        data = Texts()
        allocator = allocator_of(2)
        trainer_of(
            tmp_path, allocator, data=data, train_sampling_strategy="random", **options
        ).train()
        orders.append(data.read)
    assert orders[0] == orders[2] == orders[3] != orders[1]
    assert sorted(orders[0][:12]) == list(range(12))


@pytest.mark.usefixtures("quick")
def test_optimizers_without_a_schedule_are_told_that_training_goes_on(tmp_path):
    modes = []

    class Optimizer(torch.optim.SGD):
        def train(self):
            modes.append("train")

        def eval(self):
            modes.append("eval")

    def optimizers(trainer):
        trainer.optimizer = Optimizer(trainer.model.parameters(), lr=0.1)
        return trainer

    told = []
    for allocator in (allocator_of(1), None):
        modes.clear()
        optimizers(trainer_of(tmp_path, allocator, eval_strategy="steps", eval_steps=2)).train()
        told.append(modes.copy())
    assert told[0] == told[1]
    assert "train" in told[0][-3:]


@pytest.mark.usefixtures("quick")
def test_the_cache_is_emptied(tmp_path):
    with mock.patch("ata_gym.cluster.trainers.transformers.clear_device_cache") as emptied:
        trainer_of(tmp_path, allocator_of(1), torch_empty_cache_steps=2).train()
    assert emptied.call_count == 2


@pytest.mark.usefixtures("quick")
def test_noise_of_embeddings(tmp_path):
    trained = []
    for alpha in (None, 5.0):
        trainer = trainer_of(tmp_path, allocator_of(2), neftune_noise_alpha=alpha)
        trainer.train()
        trained.append(weights(trainer))
    assert not torch.allclose(*trained, rtol=0.0, atol=1e-5)
    assert trained[1].isfinite().all()


@pytest.mark.usefixtures("quick")
def test_losses_are_scaled(tmp_path):
    trained = []
    for scaler in (None, torch.amp.GradScaler("cpu")):
        trainer = trainer_of(tmp_path, allocator_of(2), max_grad_norm=0)
        trainer.accelerator.scaler = scaler
        trainer.train()
        trained.append(weights(trainer))
    torch.testing.assert_close(*trained)


@pytest.mark.usefixtures("quick")
def test_weights_need_a_loss_that_is_a_sum(tmp_path):
    import transformers

    from ata_gym.cluster import TaskTrainer

    class Fixed(torch.nn.Linear):
        def forward(self, input_ids, labels):
            return {"loss": super().forward(input_ids.float()).square().mean() + 0.0 * labels.sum()}

    class Summed(torch.nn.Linear):
        def forward(self, input_ids, labels=None, **more):
            loss = super().forward(input_ids.float()).square().sum()
            return {"loss": loss / more.get("num_items_in_batch", 1)}

    def loss_of(outputs, labels, num_items_in_batch=None):
        assert labels is not None
        return outputs["loss"] / num_items_in_batch

    def train(model, **keywords):
        allocator = allocator_of(2)
        TaskTrainer(
            model,
            transformers.TrainingArguments(str(tmp_path), **DEFAULTS),
            train_dataset=Texts(),
            allocator=allocator,
            weight_of=lambda batch: batch["labels"].numel(),
            **keywords,
        ).train()
        return allocator.rounds

    with pytest.raises(ValueError, match="weight_of needs a model whose forward takes"):
        train(Fixed(6, 1))
    assert train(Summed(6, 1)) == 4
    assert train(Summed(6, 1), compute_loss_func=loss_of) == 4


@pytest.mark.usefixtures("quick")
def test_a_loader_of_ones_own_is_refused_and_a_sampler_of_ones_own_trains(tmp_path):
    from ata_gym.cluster import TaskTrainer

    class OwnLoader(TaskTrainer):
        def get_train_dataloader(self):
            return DataLoader(Texts(), batch_size=2)

    class OwnSampler(TaskTrainer):
        def _get_train_sampler(self, *_):
            return Reverse(self.train_dataset)

    allocator = allocator_of(2)
    with pytest.raises(ValueError, match="override _get_train_sampler in place of"):
        trainer_of(tmp_path, allocator, OwnLoader).train()
    assert allocator.rounds == 0
    data = Texts()
    trainer_of(tmp_path, allocator, OwnSampler, data=data).train()
    assert data.read == [11 - place % 12 for place in range(16)]


class Reverse(Sampler):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __iter__(self):
        return iter(range(len(self.data) - 1, -1, -1))


@pytest.mark.usefixtures("quick")
def test_a_checkpoint_goes_on_with_the_samples_that_follow(tmp_path):
    saved = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6}
    whole = trainer_of(tmp_path, allocator_of(2), **saved)
    whole.train()
    for ignore in (False, True):
        data = Texts()
        allocator = allocator_of(2)
        trainer = trainer_of(
            tmp_path / "again", allocator, data=data, ignore_data_skip=ignore, **saved
        )
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
        assert data.read[:8] == [4, 5, 6, 7, 8, 9, 10, 11]
        assert allocator.rounds == 6
        torch.testing.assert_close(weights(trainer), weights(whole))
    with pytest.raises(ValueError, match="is no checkpoint of a TaskTrainer"):
        trainer.train(resume_from_checkpoint=str(tmp_path))


@pytest.mark.usefixtures("quick")
def test_checkpoints_have_the_state_of_the_allocator(tmp_path):
    saved = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 2}
    for name, options in {
        "only model": {"save_only_model": True},
        "each node": {"save_on_each_node": True},
        "signal": {"enable_jit_checkpoint": True},
    }.items():
        folder = tmp_path / name
        trainer_of(folder, allocator_of(2), **saved, **options).train()
        files = sorted(path.relative_to(folder) for path in folder.glob("*/allocator.json"))
        assert [str(file) for file in files] == [
            "checkpoint-3/allocator.json",
            "checkpoint-4/allocator.json",
        ]
    # The first rank of another node.
    trainer = trainer_of(tmp_path / "other", allocator_of(2), save_on_each_node=True)
    trainer.state.is_world_process_zero = False
    trainer.train()
    trainer._save_checkpoint(trainer.model, None)
    assert (tmp_path / "other" / "checkpoint-4" / "allocator.json").is_file()
    # A checkpoint that a signal asks for is saved without the event of Trainer.
    trainer = trainer_of(tmp_path / "asked", allocator_of(2), enable_jit_checkpoint=True)
    manager = next(
        callback.jit_manager
        for callback in trainer.callback_handler.callbacks
        if hasattr(callback, "jit_manager")
    )
    manager.is_checkpoint_requested = True
    trainer.train()
    assert (tmp_path / "asked" / "checkpoint-0" / "allocator.json").is_file()


def as_ranks():
    """The environment that torchrun gives to a process."""
    return mock.patch.dict(
        os.environ,
        RANK=str(dist.get_rank()),
        WORLD_SIZE=str(dist.get_world_size()),
        LOCAL_RANK=str(dist.get_rank()),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
    )


class Lengthy(Texts):
    """Texts of their number of tokens, at least two."""

    def __getitem__(self, number):
        # Trainer reads all samples, up to the error, for their lengths.
        if number >= SIZE:
            raise IndexError(number)
        self.read.append(int(number))
        text = torch.arange(2 + number % 5)
        return {"input_ids": text, "labels": text}


def orders(folder):
    """The samples that this rank has read, for each order that was asked for."""
    from ata_gym.cluster import TaskTrainer

    def with_sampler(sampler):
        return type("WithSampler", (TaskTrainer,), {"_get_train_sampler": lambda *_: sampler})

    chosen = WeightedRandomSampler([1.0] * 3 + [0.0] * 9, 12)
    again = RandomSampler(range(12), replacement=True, num_samples=24)
    makers = {
        "sequential": {},
        "lengths": {"train_sampling_strategy": "group_by_length"},
        "weighted": {"kind": with_sampler(chosen)},
        "seeded": {
            "kind": with_sampler(
                WeightedRandomSampler([1.0] * 12, 12, generator=torch.Generator().manual_seed(5)),
            ),
        },
        "with replacement": {"kind": with_sampler(again)},
    }
    read = {}
    with as_ranks():
        for name, options in makers.items():
            data = Lengthy()
            allocator = allocator_of(4, w0=(1, 1), w1=(3, 3))
            trainer = trainer_of(
                folder / name,
                allocator,
                data=data,
                per_device_train_batch_size=1,
                max_steps=6,
                **options,
            )
            # Ranks that have drawn other numbers of random numbers.
            torch.rand(dist.get_rank())
            trainer.train()
            read[name] = data.read[-6 * allocator.last.tasks[allocator.name] :]
    return read


def test_ranks_share_the_order_of_any_sampler(tmp_path):
    first, second = on_ranks(2, orders, tmp_path)
    joined = {
        name: [
            sample
            for step in range(6)
            for sample in (*first[name][step : step + 1], *second[name][3 * step : 3 * step + 3])
        ]
        for name in first
    }
    assert joined["sequential"] == [*range(12), *range(12)]
    for name in ("sequential", "lengths"):
        for epoch in (joined[name][:12], joined[name][12:]):
            assert sorted(epoch) == list(range(12)), name
    assert set(joined["weighted"]) == {0, 1, 2}
    for name in ("weighted", "seeded", "with replacement"):
        assert joined[name][:12] != joined[name][12:], name
        assert len(set(joined[name])) > 1


def tokens(batch):
    return batch["labels"][:, 1:].numel()


def trained_on_tokens(folder):
    """The weights of this rank, for each way in which Trainer may average tokens."""
    trained = []
    with as_ranks():
        for average in (False, True):
            trainer = trainer_of(
                folder,
                allocator_of(4, w0=(1, 1), w1=(3, 3)),
                data=Lengthy(),
                weight_of=tokens,
                per_device_train_batch_size=1,
                average_tokens_across_devices=average,
            )
            trainer.train()
            trained.append(weights(trainer).numpy())
    return trained


def test_tokens_of_all_ranks_have_one_mean(tmp_path):
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    data = Lengthy()
    for step in range(4):
        batches = [data[(4 * step + task) % SIZE] for task in range(4)]
        inputs = [{key: value[None] for key, value in batch.items()} for batch in batches]
        losses = [model(**batch).loss * tokens(batch) for batch in inputs]
        (sum(losses) / sum(map(tokens, inputs))).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = 0.5 * (1 - step / 4)
        optimizer.step()
        optimizer.zero_grad()
    expected = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    for trained in on_ranks(2, trained_on_tokens, tmp_path):
        for vector in trained:
            np.testing.assert_allclose(vector, expected, rtol=0.0, atol=3e-6)
