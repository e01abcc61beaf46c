"""Trainers of other projects under torchrun: ranks of unequal shares train as one process does, in
double precision.
"""

import multiprocessing
import os
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402

from ata_gym.cluster import TaskSampler, TaskStream, TorchAllocator  # noqa: E402
from ata_gym.cluster.trainers.rounds import begin_scaling  # noqa: E402
from tests.cluster.torchrun.processes import as_torchrun  # noqa: E402
from tests.cluster.torchrun.test_example import run_script  # noqa: E402
from tests.waiting import PATIENCE  # noqa: E402

BUDGET = 4
SAMPLES = 2
STEPS = 6
ACCUMULATED = 2
CLIPPED = 0.05


class Digits(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(64, 5, 6, generator=generator, dtype=torch.float64)
        self.labels = torch.where(
            torch.rand(64, 5, generator=generator) < 0.4,
            -100,
            self.x[..., 0].gt(0).long(),
        )
        # The samples count for 1 to 4 tokens, and one in four for none.
        counted = torch.randint(5, (64, 1), generator=generator)
        self.labels[torch.arange(5) >= counted] = -100

    def __len__(self):
        return 64

    def __getitem__(self, number):
        return {"x": self.x[number], "labels": self.labels[number]}


class DigitStream(IterableDataset):
    def __iter__(self):
        digits = Digits()
        yield from (digits[number] for number in range(len(digits)))


class TrainerNet(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 2)).double()

    def forward(self, x, labels, num_items_in_batch=None, **_more):
        summed = cross_entropy(self.layers(x).flatten(0, 1), labels.flatten(), reduction="sum")
        return {
            "loss": (
                summed
                / (
                    labels.ne(-100).sum().clamp(min=1)
                    if num_items_in_batch is None
                    else num_items_in_batch
                )
            ),
        }


def tokens(batch):
    return batch["labels"].ne(-100).sum()


def allocator_of():
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    return TorchAllocator(BUDGET, "thompson", warm_up=0, name=f"worker {dist.get_rank()}", seed=1)


def weights(model):
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in model.parameters()])


def tell(folder, allocator, model, losses=()):
    np.savez(
        folder / f"rank-{dist.get_rank()}.npz",
        weights=weights(model),
        losses=losses,
        rounds=allocator.rounds,
    )


def with_transformers(folder, weigh, resume=None, stream=False):
    import transformers

    from ata_gym.cluster import TaskTrainer

    # as users have it: workers of the loader are forked, and import nothing
    multiprocessing.set_start_method("fork", force=True)
    args = transformers.TrainingArguments(
        str(folder / "hf"),
        max_steps=STEPS,
        per_device_train_batch_size=SAMPLES,
        learning_rate=0.05,
        use_cpu=True,
        gradient_accumulation_steps=ACCUMULATED,
        max_grad_norm=CLIPPED,
        lr_scheduler_type="linear",
        save_steps=2,
        report_to=[],
        disable_tqdm=True,
        logging_steps=1,
        seed=3,
        remove_unused_columns=False,
        ddp_backend="gloo",
        save_strategy="steps",
        optim="adamw_torch",
        dataloader_num_workers=int(stream),
    )
    allocator = allocator_of()
    model = TrainerNet()
    if weigh:
        weight = tokens
    else:
        weight = None
    trainer = TaskTrainer(
        model,
        args,
        train_dataset=DigitStream() if stream else Digits(),
        allocator=allocator,
        weight_of=weight,
    )
    trainer.train(resume_from_checkpoint=resume)
    tell(
        folder,
        allocator,
        model,
        [line["loss"] for line in trainer.state.log_history if "loss" in line],
    )


def with_lightning(folder, scale, weigh, resume=None, stream=False):
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.plugins import MixedPrecision

    from ata_gym.cluster import TaskStrategy

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = TrainerNet()

        def training_step(self, batch, _number):
            return self.net(**batch, num_items_in_batch=1 if weigh else None)["loss"]

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
            scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=STEPS)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    allocator = allocator_of()
    module = Module()
    data = Digits()
    if stream:
        loader = TaskStream(allocator, DataLoader(DigitStream(), SAMPLES))
    else:
        sampler = TaskSampler(allocator, data, samples=SAMPLES, seed=3)
        loader = DataLoader(data, batch_sampler=sampler)
    off = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    kept = ModelCheckpoint(folder / "pl", filename="{step}", every_n_train_steps=2, save_top_k=-1)
    if scale:  # the model has float64, which autocast leaves as it is
        off["plugins"] = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    trainer = pl.Trainer(
        strategy=TaskStrategy(allocator, weight_of=tokens if weigh else None),
        accelerator="cpu",
        devices=dist.get_world_size(),
        max_steps=STEPS,
        accumulate_grad_batches=ACCUMULATED,
        gradient_clip_val=CLIPPED,
        callbacks=[kept],
        **off,
    )
    trainer.fit(module, loader, ckpt_path=resume)
    assert not scale or trainer.precision_plugin.scaler.get_scale() == 2.0**16
    tell(folder, allocator, module)


def play(work, folder, size, *arguments):
    with as_torchrun(work, folder, *arguments, size=size) as running:
        running.result(PATIENCE)
    return [np.load(folder / f"rank-{rank}.npz") for rank in range(size)]


def alone(weigh, decay, stream=False):
    model = TrainerNet()
    data = Digits()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=0.05,
        weight_decay=decay,
    )
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=STEPS)
    order = TaskSampler(SimpleNamespace(budget=BUDGET), data, samples=SAMPLES, seed=3)
    losses = []
    for step in range(STEPS):
        losses.append(0.0)
        tokens_of_step = 0
        for part in range(ACCUMULATED):
            start = (step * ACCUMULATED + part) * BUDGET * SAMPLES
            if stream:
                samples = [place % len(data) for place in range(start, start + BUDGET * SAMPLES)]
            else:
                samples = order.samples_from(start, BUDGET * SAMPLES)
            tasks = [data[samples[at : at + SAMPLES]] for at in range(0, len(samples), SAMPLES)]
            if weigh:
                loss = sum(model(**task, num_items_in_batch=1)["loss"] for task in tasks)
                tokens_of_step += sum(map(tokens, tasks))
            else:
                loss = sum(model(**task)["loss"] for task in tasks) / BUDGET / ACCUMULATED
            loss.backward()
            losses[-1] += loss.item()
        if weigh:
            losses[-1] /= tokens_of_step
            for parameter in model.parameters():
                parameter.grad /= tokens_of_step
        nn.utils.clip_grad_norm_(model.parameters(), CLIPPED)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return weights(model), losses


def assert_alike(ranks, expected):
    for rank in ranks:
        np.testing.assert_allclose(rank["weights"], expected, rtol=1e-10, atol=1e-12)
        assert rank["rounds"] == STEPS * ACCUMULATED


@pytest.mark.parametrize("weigh", [False, True])
def test_transformers_trains_as_one_process_and_goes_on_from_its_checkpoint_with_other_ranks(
    tmp_path,
    weigh,
):
    pytest.importorskip("transformers")
    expected, losses = alone(weigh, decay=0.0)
    ranks = play(with_transformers, tmp_path, 2, weigh)
    assert_alike(ranks, expected)
    np.testing.assert_allclose([rank["losses"] for rank in ranks], [losses] * 2, rtol=1e-3)
    if weigh:
        assert_alike(
            play(with_transformers, tmp_path, 3, weigh, str(tmp_path / "hf" / "checkpoint-4")),
            expected,
        )


@pytest.mark.parametrize(("scale", "weigh"), [(False, False), (True, True)])
def test_lightning_trains_as_one_process_and_goes_on_from_its_checkpoint_with_other_ranks(
    tmp_path,
    scale,
    weigh,
):
    pytest.importorskip("lightning")
    expected, _ = alone(weigh, decay=0.01)
    assert_alike(play(with_lightning, tmp_path, 2, scale, weigh), expected)
    assert_alike(
        play(with_lightning, tmp_path, 3, scale, weigh, str(tmp_path / "pl" / "step=4.ckpt")),
        expected,
    )


def test_trainers_share_a_stream_out_and_go_on_from_a_checkpoint_with_other_ranks(tmp_path):
    pytest.importorskip("transformers")
    expected, _ = alone(False, decay=0.0, stream=True)
    assert_alike(play(with_transformers, tmp_path, 2, None, None, True), expected)
    checkpoint = str(tmp_path / "hf" / "checkpoint-4")
    assert_alike(play(with_transformers, tmp_path, 3, None, checkpoint, True), expected)
    pytest.importorskip("lightning")
    expected, _ = alone(None, decay=0.01, stream=True)
    assert_alike(play(with_lightning, tmp_path, 2, False, None, None, True), expected)


def test_a_stream_has_one_task_in_a_pass():
    transformers = pytest.importorskip("transformers")
    from ata_gym.cluster import TaskTrainer

    arguments = transformers.TrainingArguments(use_cpu=True, report_to=[], max_steps=1)
    allocator = SimpleNamespace(budget=BUDGET, rounds=0, elastic=False, replica_size=1)
    options = {"train_dataset": DigitStream(), "allocator": allocator}
    with pytest.raises(ValueError, match="tasks_per_pass must be 1 for an IterableDataset"):
        TaskTrainer(TrainerNet(), arguments, tasks_per_pass=None, **options)
    arguments.per_device_train_batch_size = 3
    trainer = TaskTrainer(TrainerNet(), arguments, **options)
    assert next(iter(trainer.get_train_dataloader()))["task"].tolist() == list(range(BUDGET))
    share = SimpleNamespace(tasks=1, first=2, done=0, orders=[])
    allocator.share = share
    (batch,) = trainer._tasks
    assert torch.equal(batch["x"], Digits().x[6:9])


def test_a_scaler_steps_on_a_rank_that_had_no_tasks():
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    begin_scaling(None, weight.device)
    begin_scaling(scaler, weight.device)
    weight.grad = torch.full((2,), 2.0)
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.5, 0.5]


SCRIPTS = Path(__file__).parents[3] / "notebooks" / "cluster"


@pytest.mark.parametrize("library", ["accelerate", "transformers", "lightning"])
def test_the_scripts_train_and_go_on_from_their_checkpoints(tmp_path, library):
    pytest.importorskip(library)
    for steps in (4, 6) if library == "accelerate" else (6,):
        options = ("--cpu", "--steps", str(steps))
        with as_torchrun(
            run_script,
            SCRIPTS / f"train_{library}.py",
            tmp_path,
            *options,
            size=2,
        ) as running:
            running.result(PATIENCE)
        if library == "accelerate":
            state = torch.load(
                tmp_path / "accelerated" / "custom_checkpoint_0.pkl",
                weights_only=True,
            )
            assert state["rounds"] == steps
    assert library == "accelerate" or "round 6: " in (tmp_path / "said-0").read_text()


def test_each_row_of_the_table_of_engines_names_tests_that_exist():
    page = (SCRIPTS / "README.md").read_text("utf-8")
    head = "| engine | what works | test |\n|---|---|---|\n"
    table = page.partition(head)[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert len(rows) > 10
    assert all(len(row) == 3 for row in rows)
    tests = [set(re.findall(r"`(test_\w+)`", row[2])) for row in rows]
    files = [path.read_text("utf-8") for path in Path(__file__).parents[1].rglob("test_*.py")]
    there = {name for text in files for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert all(tests)
    assert set().union(*tests) <= there
    # A test that is named elsewhere on the page exists, too.
    assert set(re.findall(r"`(test_\w+)`", page)) <= there


def test_an_allocator_with_a_manager_is_refused_since_a_trainer_steps_after_each_round():
    pytest.importorskip("lightning")
    from types import SimpleNamespace

    from ata_gym.cluster import TaskStrategy
    from ata_gym.cluster.trainers.rounds import for_trainer

    elastic = SimpleNamespace(elastic=True)
    for make in (TaskStrategy, lambda allocator: for_trainer(allocator, "TaskTrainer")):
        with pytest.raises(ValueError, match=r"a loop of your own, which steps if share.committed"):
            make(elastic)
