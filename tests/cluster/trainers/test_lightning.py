"""TaskStrategy: each option of Lightning's Trainer trains as ever or is refused by name."""

import inspect
import os
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import mse_loss  # noqa: E402
from torch.utils.data import (  # noqa: E402
    DataLoader,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
)

from ata_gym.cluster import TaskSampler, TaskStream, TorchAllocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402

# Lightning calls what torch has deprecated, and warns of samplers and worker processes.
pytestmark = pytest.mark.filterwarnings("ignore")
SIZE = 12
SILENT = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
DEFAULTS = {"devices": 1, "max_steps": 4, "limit_val_batches": 0}


def numbers(size=SIZE):
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(size, 3, generator=generator),
        torch.randn(size, generator=generator),
        torch.arange(size),
    )


def allocator_of(budget, **limits):
    return TorchAllocator(
        budget, "uta", name=f"w{dist.get_rank()}", warm_up=0, limits=limits or None
    )


def tasks(allocator, data, **options):
    sampler = TaskSampler(allocator, data, shuffle=False, **options)
    return DataLoader(data, batch_sampler=sampler)


def module_of(**methods):
    """A module that traces its hooks, with other methods."""
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
            self.trace = []
            self.samples = []

        def loss(self, batch):
            x, y, number = batch
            self.samples += number.tolist()
            return mse_loss(self.layers(x)[:, 0], y)

        def training_step(self, batch, batch_idx):
            return self.loss(batch)

        def validation_step(self, batch, batch_idx):
            self.trace.append(("validation", self.global_step))

        def on_before_zero_grad(self, optimizer):
            self.trace.append(("zero", self.global_step))

        def on_before_backward(self, loss):
            self.trace.append(("backward", round(float(loss), 5)))

        def on_after_backward(self):
            self.trace.append(("gradient", round(float(self.layers[0].weight.grad.sum()), 5)))

        def on_before_optimizer_step(self, optimizer):
            self.trace.append(("step", self.global_step))

        def on_train_batch_end(self, outputs, batch, batch_idx):
            self.trace.append(("loss", round(float(outputs["loss"]), 5)))

        def on_train_epoch_end(self):
            self.trace.append(("epoch", self.current_epoch))

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.05)

    for name, method in methods.items():
        setattr(Module, name, method)
    return Module()


def fit(module, loaders, allocator=None, strategy=None, datamodule=None, **options):
    """Train with TaskStrategy, or as Lightning does without an allocator."""
    import lightning.pytorch as pl

    from ata_gym.cluster import TaskStrategy

    chosen = TaskStrategy(allocator, **(strategy or {})) if allocator else "auto"
    trainer = pl.Trainer(strategy=chosen, **{**SILENT, **DEFAULTS, **options})
    trainer.fit(module, loaders, datamodule=datamodule)
    return trainer


def weights(module):
    return torch.cat([weight.detach().double().flatten() for weight in module.parameters()])


class Works(NamedTuple):
    """With these values training is as Lightning's, and another than without them."""

    options: dict


class Shown(NamedTuple):
    """The effect is shown by a test of this folder."""

    test: str


class Refused(NamedTuple):
    """The option is refused with this sentence; the cure trains."""

    options: dict
    sentence: str
    cure: dict


class Unmet(NamedTuple):
    """What TaskStrategy replaces does not meet the option."""

    reason: str


LOGGED = "what is logged and shown, and where"
EVALUATED = "no training"
ROUNDS = "test_each_epoch_has_rounds_and_samples_go_on"
OPTIONS = {
    "accelerator": Shown("test_each_option_trains_as_lightning_does"),
    "strategy": Shown("test_each_option_trains_as_lightning_does"),
    "devices": Shown("test_a_batch_may_have_no_loss"),
    "num_nodes": Shown("test_nodes_and_validation"),
    "precision": Works({"precision": "bf16-true"}),
    "logger": Unmet(LOGGED),
    "callbacks": Shown("test_callbacks_see_rounds"),
    "fast_dev_run": Works({"fast_dev_run": 2}),
    "max_epochs": Works({"max_epochs": 2, "max_steps": -1}),
    "min_epochs": Works({"min_epochs": 1, "max_steps": 5}),
    "max_steps": Works({"max_steps": 5}),
    "min_steps": Works({"min_steps": 3, "max_steps": 6}),
    "max_time": Works({"max_time": {"seconds": 0}, "max_steps": -1}),
    "limit_train_batches": Shown(ROUNDS),
    "limit_val_batches": Works({"limit_val_batches": 2, "max_epochs": 1, "max_steps": -1}),
    "limit_test_batches": Unmet(EVALUATED),
    "limit_predict_batches": Unmet(EVALUATED),
    "overfit_batches": Refused(
        {"overfit_batches": 2},
        "TaskStrategy does not support overfit_batches: the samples go on from epoch to epoch",
        {},
    ),
    "val_check_interval": Works({"val_check_interval": 2, "limit_val_batches": 1}),
    "check_val_every_n_epoch": Works(
        {
            "check_val_every_n_epoch": 2,
            "limit_val_batches": 1,
            "max_epochs": 2,
            "max_steps": -1,
            "num_sanity_val_steps": 0,
        },
    ),
    "num_sanity_val_steps": Works({"num_sanity_val_steps": 3, "limit_val_batches": 3}),
    "log_every_n_steps": Unmet(LOGGED),
    "enable_checkpointing": Shown(
        "test_lightning_trains_as_one_process_and_goes_on_from_its_checkpoint_with_other_ranks",
    ),
    "enable_progress_bar": Unmet(LOGGED),
    "enable_model_summary": Unmet(LOGGED),
    "accumulate_grad_batches": Works({"accumulate_grad_batches": 3, "max_steps": 3}),
    "gradient_clip_val": Works({"gradient_clip_val": 0.1}),
    "gradient_clip_algorithm": Works(
        {"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"},
    ),
    "deterministic": Unmet("a setting of torch"),
    "benchmark": Unmet("a setting of torch"),
    "inference_mode": Unmet(EVALUATED),
    "use_distributed_sampler": Shown("test_nodes_and_validation"),
    "profiler": Unmet(LOGGED),
    "detect_anomaly": Shown("test_an_anomaly_is_detected"),
    "barebones": Works({"barebones": True, "max_steps": 3}),
    "plugins": Shown(
        "test_lightning_trains_as_one_process_and_goes_on_from_its_checkpoint_with_other_ranks",
    ),
    "sync_batchnorm": Refused(
        {"sync_batchnorm": True},
        "TaskStrategy does not support sync_batchnorm: ranks compute different numbers of batches",
        {},
    ),
    "reload_dataloaders_every_n_epochs": Works(
        {"reload_dataloaders_every_n_epochs": 1, "max_epochs": 2, "max_steps": -1},
    ),
    "default_root_dir": Unmet(LOGGED),
    "enable_autolog_hparams": Unmet(LOGGED),
    "model_registry": Unmet(LOGGED),
}
"""Each option of Lightning's ``Trainer``."""

STARTED = "Lightning does not start a process group that the script has started"
SENT = "does not take {}: gradients"
STRATEGY_OPTIONS = {
    "accelerator": Unmet("an option of Trainer, which hands it on"),
    "parallel_devices": Unmet("an option of Trainer, which hands it on"),
    "cluster_environment": Unmet("an option of Trainer, which hands it on"),
    "checkpoint_io": Unmet("an option of Trainer, which hands it on"),
    "precision_plugin": Unmet("an option of Trainer, which hands it on"),
    "ddp_comm_state": Refused({"ddp_comm_state": object()}, SENT, {}),
    "ddp_comm_hook": Refused({"ddp_comm_hook": print}, SENT, {}),
    "ddp_comm_wrapper": Refused({"ddp_comm_wrapper": print}, SENT, {}),
    "model_averaging_period": Refused({"model_averaging_period": 2}, SENT, {}),
    "process_group_backend": Unmet(STARTED),
    "timeout": Unmet(STARTED),
    "start_method": Refused(
        {"start_method": "spawn"},
        "does not take start_method: the script has started",
        {},
    ),
    "dim": Unmet("for one process with several devices"),
    "output_device": Unmet("for one process with several devices"),
    "device_ids": Unmet("Lightning sets it"),
    "broadcast_buffers": Unmet("a round broadcasts no buffers"),
    "forward_sync_buffers": Unmet("a round broadcasts no buffers"),
    "init_sync": Unmet("before the first round"),
    "process_group": Unmet("a round has the group of the allocator"),
    "device_mesh": Unmet("a round has the group of the allocator"),
    "bucket_cap_mb": Refused({"bucket_cap_mb": 5}, SENT, {}),
    "bucket_cap_mb_list": Refused({"bucket_cap_mb_list": [5]}, SENT, {}),
    "batched_grad_copy": Refused({"batched_grad_copy": True}, SENT, {}),
    "find_unused_parameters": Unmet("parameters without a gradient are no fault in a round"),
    "skip_all_reduce_unused_params": Unmet("parameters without a gradient are no fault in a round"),
    "check_reduction": Unmet("torch ignores it"),
    "gradient_as_bucket_view": Unmet("gradients are views of what is summed in any case"),
    "static_graph": Refused({"static_graph": True}, SENT, {}),
    "delay_all_reduce_named_params": Refused({"delay_all_reduce_named_params": ["x"]}, SENT, {}),
    "param_to_hook_all_reduce": Refused({"param_to_hook_all_reduce": "x"}, SENT, {}),
    "mixed_precision": Refused({"mixed_precision": object()}, SENT, {}),
}
"""Each option of ``DDPStrategy``, and of ``DistributedDataParallel``, which gets the others."""


def test_the_tables_name_each_option_of_the_libraries():
    import lightning.pytorch as pl
    from lightning.pytorch.strategies import DDPStrategy

    other = {"self", "kwargs", "module"}
    assert set(inspect.signature(pl.Trainer.__init__).parameters) - other <= set(OPTIONS)
    options = set(inspect.signature(DDPStrategy.__init__).parameters)
    options |= set(inspect.signature(nn.parallel.DistributedDataParallel.__init__).parameters)
    assert options - other <= set(STRATEGY_OPTIONS)
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    for option in (*OPTIONS.values(), *STRATEGY_OPTIONS.values()):
        assert not isinstance(option, Shown) or f"def {option.test}(" in tests


def history(allocated, options):
    """What the hooks of a module see in training, and its weights after it."""
    module = module_of()
    data = numbers()
    allocator = allocator_of(1) if allocated else None

    def loader():
        module.trace.append("loader")
        if allocated:
            return tasks(allocator, data, samples=2)
        return DataLoader(data, batch_size=2)

    module.train_dataloader = loader
    module.val_dataloader = lambda: DataLoader(data, batch_size=2)
    fit(module, None, allocator, **options)
    return module.trace, weights(module).tolist()


@pytest.mark.usefixtures("quick")
def test_each_option_trains_as_lightning_does():
    default = history(True, {})
    assert default == history(False, {})
    for name, option in OPTIONS.items():
        if isinstance(option, Works):
            trained = history(True, option.options)
            assert trained == history(False, option.options), name
            assert trained != default, name


@pytest.mark.usefixtures("quick")
def test_callbacks_see_rounds():
    from lightning.pytorch import callbacks

    makers = {
        "accumulation": lambda: callbacks.GradientAccumulationScheduler({0: 1, 1: 2}),
        "averaging": lambda: callbacks.StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1),
        "decay": lambda: callbacks.EMAWeightAveraging(decay=0.5),
        "stopping": lambda: callbacks.LambdaCallback(
            on_train_batch_start=lambda trainer, *_: setattr(
                trainer, "should_stop", trainer.global_step == 2
            ),
        ),
    }
    epochs = {"max_epochs": 3, "max_steps": -1}
    default = history(True, epochs)
    for name, maker in makers.items():
        trained, expected = (
            history(allocated, {**epochs, "callbacks": [maker()]}) for allocated in (True, False)
        )
        assert trained == expected, name
        assert trained != default, name


@pytest.mark.usefixtures("quick")
def test_each_option_that_is_refused_is_named_and_the_cure_trains():
    data = numbers()
    for name, option in OPTIONS.items():
        if isinstance(option, Refused):
            allocator = allocator_of(2)
            module = module_of()
            with pytest.raises(ValueError, match=option.sentence):
                fit(module, tasks(allocator, data), allocator, **option.options)
            assert allocator.rounds == 0, name
            fit(module, tasks(allocator, data), allocator, **option.cure)
            assert allocator.rounds == 4, name
    for name, option in STRATEGY_OPTIONS.items():
        if isinstance(option, Refused):
            allocator = allocator_of(2)
            loader = tasks(allocator, data)
            with pytest.raises(ValueError, match=option.sentence.format(name)):
                fit(module_of(), loader, allocator, option.options)
            fit(module_of(), loader, allocator, option.cure)
            assert allocator.rounds == 4, name


@pytest.mark.usefixtures("quick")
def test_the_cures_of_refused_options_have_the_effect_that_was_asked_for():
    # overfit_batches
    data = Subset(numbers(), range(4))
    allocator = allocator_of(2)
    module = module_of()
    fit(module, tasks(allocator, data), allocator)
    assert module.samples == [0, 1, 2, 3] * 2


def refuse(sentence, module, loaders, allocator, error=ValueError, **options):
    with pytest.raises(error, match=sentence):
        fit(module, loaders, allocator, **options)


@pytest.mark.usefixtures("quick")
def test_what_a_module_may_not_do_is_refused_and_the_cure_trains():
    data = numbers()
    allocator = allocator_of(2)
    loader = tasks(allocator, data)
    trained = module_of()
    fit(trained, loader, allocator)

    manual = module_of()
    manual.automatic_optimization = False
    refuse("does not support manual optimisation", manual, loader, allocator)
    manual = module_of()
    optimizer = manual.configure_optimizers()
    allocator = allocator_of(2)
    loader = tasks(allocator, data)
    for _ in range(4):
        with allocator.round(manual) as share:
            for batch in share.take(loader):
                share.backward(manual.loss(batch))
            share.reduce()
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(weights(manual), weights(trained))

    def step_of_iterator(self, dataloader_iter):
        return self.loss(next(dataloader_iter)[0])

    iterating = module_of(training_step=step_of_iterator)
    refuse(r"support training_step\(dataloader_iter\)", iterating, loader, allocator)

    def backward(_module, loss):
        (2.0 * loss).backward()

    refuse("a backward of the module's own", module_of(backward=backward), loader, allocator)

    def on_after_backward(self):
        for parameter in self.parameters():
            parameter.grad *= 2.0

    def double_loss(self, batch, _number):
        return 2.0 * self.loss(batch)

    doubled = []
    for methods in ({"on_after_backward": on_after_backward}, {"training_step": double_loss}):
        module = module_of(configure_optimizers=plain_descent, **methods)
        allocator = allocator_of(2)
        fit(module, tasks(allocator, data), allocator)
        doubled.append(weights(module))
    torch.testing.assert_close(*doubled)


def plain_descent(self):
    return torch.optim.SGD(self.parameters(), lr=0.05)


@pytest.mark.usefixtures("quick")
def test_hooks_of_the_transfer_get_batches():
    import lightning.pytorch as pl

    data = numbers()
    expected = module_of()
    allocator = allocator_of(2)
    scaled = TensorDataset(3.0 * data.tensors[0], *data.tensors[1:])
    fit(expected, tasks(allocator, scaled), allocator)

    def scale(_module, batch, _place):
        x, y, number = batch
        return 3.0 * x, y, number

    def transfer(module, batch, _device, place):
        return scale(module, batch, place)

    class Data(pl.LightningDataModule):
        on_after_batch_transfer = scale

        def train_dataloader(self):
            return tasks(allocator, data)

    class DataBefore(Data):
        on_before_batch_transfer = scale

    allocator = allocator_of(2)
    loader = tasks(allocator, data)
    early = module_of(on_before_batch_transfer=scale)
    refuse("does not support on_before_batch_transfer", early, loader, allocator)
    refuse("on_before_batch_transfer", module_of(), None, allocator, datamodule=DataBefore())
    cures = [
        (module_of(on_after_batch_transfer=scale), {}),
        (module_of(transfer_batch_to_device=transfer), {}),
        (module_of(), {"datamodule": Data()}),
    ]
    for module, options in cures:
        allocator = allocator_of(2)
        loaders = None if options else tasks(allocator, data)
        fit(module, loaders, allocator, **options)
        torch.testing.assert_close(weights(module), weights(expected))


@pytest.mark.usefixtures("quick")
def test_a_precision_that_converts_its_inputs_gets_batches():
    trained = []
    for allocator in (allocator_of(1), None):
        module = module_of()
        data = numbers()
        loader = tasks(allocator, data) if allocator else DataLoader(data)
        fit(module, loader, allocator, precision="64-true")
        assert module.layers[0].weight.dtype == torch.float64
        trained.append(weights(module))
    torch.testing.assert_close(*trained)


@pytest.mark.usefixtures("quick")
def test_several_loaders_are_refused_and_one_of_stacked_datasets_trains():
    from lightning.pytorch.utilities import CombinedLoader

    first = numbers()
    second = TensorDataset(*(tensor.flip(0) for tensor in first.tensors))
    allocator = allocator_of(2)
    loaders = {"a": tasks(allocator, first), "b": tasks(allocator, second)}

    def training_step(self, batch, _number):
        return self.loss(batch["a"]) + 2.0 * self.loss(batch["b"])

    for several in (
        loaders,
        list(loaders.values()),
        {"a": loaders["a"]},
        {"a": loaders["a"], "b": DataLoader(second)},
        CombinedLoader(loaders, "min_size"),
    ):
        refuse(
            "takes one training loader, and not a collection",
            module_of(training_step=training_step),
            several,
            allocator,
        )
        assert allocator.rounds == 0
    module = module_of(training_step=training_step)
    stacked = StackDataset(a=first, b=second)
    fit(module, tasks(allocator, stacked), allocator)
    assert module.samples == [number for task in range(8) for number in (task, SIZE - 1 - task)]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(numbers())


@pytest.mark.usefixtures("quick")
def test_a_loader_without_a_task_sampler_is_refused():
    data = numbers()
    allocator = allocator_of(2)
    for loader in (DataLoader(data), DataLoader(Stream()), {"a": DataLoader(data)}):
        refuse("needs a training loader with batch_sampler=", module_of(), loader, allocator)
    assert allocator.rounds == 0
    fit(module_of(), tasks(allocator, data), allocator)
    assert allocator.rounds == 4
    module = module_of()
    allocator = allocator_of(2)
    fit(module, TaskStream(allocator, DataLoader(Stream(), batch_size=1)), allocator)
    assert module.samples == list(range(8))


@pytest.mark.usefixtures("quick")
def test_an_optimizer_calls_its_closure_once():
    data = numbers()

    def with_iterations(number):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=number)

        return module_of(configure_optimizers=configure_optimizers)

    allocator = allocator_of(1)
    loader = tasks(allocator, data)
    refuse("LBFGS calls its closure again", with_iterations(3), loader, allocator, RuntimeError)
    trained = []
    for allocator in (allocator_of(1), None):
        module = with_iterations(1)
        fit(module, tasks(allocator, data) if allocator else DataLoader(data), allocator)
        trained.append(weights(module))
    torch.testing.assert_close(*trained)

    def every_other(_module, _epoch, number, optimizer, closure):
        if number % 2:
            optimizer.step(closure=closure)
        else:
            closure()

    trained = []
    for allocator in (allocator_of(1), None):
        module = module_of(optimizer_step=every_other)
        fit(module, tasks(allocator, data) if allocator else DataLoader(data), allocator)
        trained.append(weights(module))
    torch.testing.assert_close(*trained)


@pytest.mark.usefixtures("quick")
def test_what_waits_for_other_ranks_is_refused_in_a_task():
    data = numbers()
    gathered = []

    def log(self, outputs, _batch, _number):
        self.log("loss", outputs["loss"], sync_dist=True)
        gathered.append(self.all_gather(outputs["loss"]))
        self.trainer.strategy.barrier()
        gathered.append(self.trainer.strategy.broadcast(3.0))

    calls = {
        "self.log": lambda self, loss: self.log("loss", loss, sync_dist=True),
        "self.log(": lambda self, loss: self.log(
            "loss", loss, sync_dist=True, on_step=False, on_epoch=True
        ),
        "all_gather": lambda self, loss: self.all_gather(loss),
        "broadcast": lambda self, loss: self.trainer.strategy.broadcast(loss),
        "barrier": lambda self, _: self.trainer.strategy.barrier(),
    }
    for name, call in calls.items():

        def training_step(self, batch, _number, call=call):
            loss = self.loss(batch)
            call(self, loss)
            return loss

        allocator = allocator_of(2)
        module = module_of(training_step=training_step)
        loader = tasks(allocator, data)
        sentence = f"{name.removesuffix('(')}.* in training_step waits for ranks"
        refuse(sentence, module, loader, allocator, RuntimeError)
    module = module_of(on_train_batch_end=log)
    trainer = fit(module, tasks(allocator, data), allocator)
    assert float(trainer.callback_metrics["loss"]) == float(gathered[-2])
    assert gathered[-1] == 3.0


@pytest.mark.usefixtures("quick")
def test_an_anomaly_is_detected():
    def training_step(self, batch, _number):
        return (0.0 * self.loss(batch)).sqrt()

    data = numbers()
    allocator = allocator_of(1)
    loader = tasks(allocator, data)
    bad = module_of(training_step=training_step)
    refuse("returned nan values", bad, loader, allocator, RuntimeError, detect_anomaly=True)
    refuse("is not finite", bad, loader, allocator, FloatingPointError)


@pytest.mark.usefixtures("quick")
def test_each_epoch_has_rounds_and_samples_go_on():
    data = numbers()
    allocator = allocator_of(2)
    module = module_of()
    fit(
        module,
        tasks(allocator, data),
        allocator,
        limit_train_batches=2,
        max_epochs=4,
        max_steps=-1,
    )
    assert module.samples == [*range(SIZE), *range(4)]
    assert [entry for entry in module.trace if entry[0] == "epoch"] == [
        ("epoch", epoch) for epoch in range(4)
    ]

    def end_epoch(_module, _batch, number):
        return -1 if number == 1 else None

    allocator = allocator_of(2)
    module = module_of(on_train_batch_start=end_epoch)
    fit(module, tasks(allocator, data), allocator, max_epochs=2, max_steps=-1)
    assert module.samples == [0, 1, 2, 3]


def as_ranks(nodes=1):
    """The environment that torchrun gives to one process of several."""
    rank = dist.get_rank()
    size = dist.get_world_size()
    return mock.patch.dict(
        os.environ,
        RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_RANK=str(rank % (size // nodes)),
        LOCAL_WORLD_SIZE=str(size // nodes),
        GROUP_RANK=str(rank // (size // nodes)),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
        TORCHELASTIC_RUN_ID="test",
    )


SKIPPED = (0, 4, 5, 6, 7, 8, 9, 13, 14, 15, 16, 17, 18, 19)
"""Of rounds of 4 tasks, the first of which is of rank 0: all of a rank, all, some of each rank, all
of the other rank, all.
"""


def tokens_of(batch):
    return (batch[2].item() + 1) % 3


def skipping_step(self, batch, _number):
    loss = self.loss(batch)
    if batch[2].item() in SKIPPED:
        return None
    return {"loss": loss, "more": 1}


def skipping_sum(self, batch, number):
    output = skipping_step(self, batch, number)
    return output and tokens_of(batch) * output["loss"]


def doubles(size):
    x, y, number = numbers(size).tensors
    return TensorDataset(x.double(), y.double(), number)


def with_skips(accumulated, scale, weighted):
    from lightning.pytorch.plugins import MixedPrecision

    allocator = allocator_of(4, w0=(1, 1), w1=(3, 3))
    timed = []

    def note_times(_module, _outputs, _batch, _number):
        timed.append(allocator.last.seconds.keys())

    module = module_of(
        training_step=skipping_sum if weighted else skipping_step,
        on_train_batch_end=note_times,
    ).double()
    plugins = [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))] if scale else None
    with as_ranks():
        fit(
            module,
            tasks(allocator, doubles(24)),
            allocator,
            strategy={"weight_of": tokens_of} if weighted else None,
            devices=2,
            max_steps=6 // accumulated,
            accumulate_grad_batches=accumulated,
            plugins=plugins,
        )
    # The times of each round are learned, also of those in which all batches were skipped.
    assert timed == [{"w0", "w1"}] * 6
    return weights(module).numpy(), allocator.last.tasks


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("accumulated", "scale"), [(1, False), (1, True), (2, False), (3, False)])
def test_a_batch_may_have_no_loss(accumulated, scale, weighted):
    module = module_of().double()
    optimizer = module.configure_optimizers()
    data = doubles(24)
    for tasks_of_step in np.arange(24).reshape(-1, 4 * accumulated):
        batches = [data[task : task + 1] for task in tasks_of_step if task not in SKIPPED]
        if weighted:
            total = sum(map(tokens_of, batches))
        else:
            total = 4 * accumulated
        for batch in batches:
            weight = tokens_of(batch) if weighted else 1
            (weight * module.loss(batch) / total).backward()
        optimizer.step()
        optimizer.zero_grad()
    for trained, shares in on_ranks(2, with_skips, accumulated, scale, weighted):
        assert shares == {"w0": 1, "w1": 3}
        np.testing.assert_allclose(trained, weights(module), rtol=1e-11, atol=1e-12)


def validated():
    def validation_step(self, batch, _number):
        self.samples += batch[2].tolist()

    allocator = allocator_of(4, w0=(1, 1), w1=(3, 3))
    module = module_of(validation_step=validation_step)
    module.val_dataloader = lambda: DataLoader(numbers(), batch_size=5)
    with as_ranks(nodes=2):
        fit(
            module,
            tasks(allocator, numbers()),
            allocator,
            num_nodes=2,
            max_epochs=1,
            max_steps=-1,
            limit_val_batches=1.0,
            num_sanity_val_steps=0,
        )
    return module.samples


def test_nodes_and_validation():
    every = list(range(SIZE))
    first, second = on_ranks(2, validated)
    assert first == [0, 4, 8, *every]
    assert second == [1, 2, 3, 5, 6, 7, 9, 10, 11, *every]
