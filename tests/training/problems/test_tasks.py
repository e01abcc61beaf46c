"""Tasks of the user, and the batches of their loaders in a keyed order."""

import random
from itertools import count

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
)

from ata_gym.pools import deterministic, exponential
from ata_gym.simulation.keys import derive_keys
from ata_gym.training import DeviceClock, Tasks, Trainer, TrainingWrapper
from ata_gym.training.problems.batches import keyed_batches
from tests.training.small_problem import mean_loss, run_method, small, weights

B = 4
INPUTS = torch.linspace(-1, 1, 96).reshape(48, 2)
LABELS = torch.arange(48) % 3
DATA = TensorDataset(INPUTS, LABELS)


def normed():
    return nn.Sequential(
        nn.Linear(2, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(8, 3),
    )


def same(first, second):
    return all(torch.equal(first[name], part) for name, part in second.items())


def tasks(model=normed, **options):
    return Tasks(model, mean_loss, DataLoader(DATA, 4, shuffle=True), **options)


class Drawn:
    """The batches that a problem draws for a trainer: task b of round k is number k B + b."""

    def __init__(self, trainer):
        self._draw = trainer.problem.draw
        self._key = trainer._gradient_key

    def __len__(self):
        return 10**6

    def __getitem__(self, t):
        return self._draw(derive_keys(self._key, t // B, np.array([t % B])))


@pytest.mark.parametrize("chunk", [1, 3])
def test_tasks_take_the_steps_of_one_fused_pass(chunk):
    build = lambda: nn.Sequential(nn.Linear(2, 8), nn.GroupNorm(2, 8), nn.ReLU(), nn.Linear(8, 3))  # noqa: E731
    fused = Trainer(small(build), B, seed=3)
    separate = Trainer(
        Tasks(build, mean_loss, Drawn(fused), chunk=chunk, learning_rates={"sgd": 0.1}),
        B,
        seed=3,
    )
    for _ in range(5):
        assert separate.step() == pytest.approx(fused.step(), rel=1e-6)
    torch.testing.assert_close(weights(separate), weights(fused), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("chunk", [3, None])
def test_a_fused_problem_in_chunks_takes_the_same_steps(chunk):
    (whole, parts), sizes = (
        (Trainer(small(), B, micro_batch=2, chunk=size) for size in (None, chunk)),
        [],
    )
    parts.model.register_forward_hook(lambda _model, inputs, _outputs: sizes.append(len(inputs[0])))
    for _ in range(3):
        assert parts.step() == pytest.approx(whole.step(), rel=1e-6)
    torch.testing.assert_close(weights(parts), weights(whole))
    assert max(sizes) == 2 * (chunk or B)


def test_a_mapping_with_a_loss_figures_of_ones_own_and_bfloat16():
    def of_the_model(model, batch):
        return {"loss": mean_loss(model, batch), "logits": None}

    first, second = (
        Trainer(Tasks(normed, loss, [DATA[:8]]), B) for loss in (mean_loss, of_the_model)
    )
    half = Trainer(Tasks(normed, mean_loss, [DATA[:8]]), B, precision="bfloat16")
    loss = first.step()
    assert second.step() == loss
    assert loss != half.step() == pytest.approx(loss, rel=0.05)
    assert first.evaluate() == {}
    evaluated = tasks(evaluate=lambda model: {"training": float(model.training)})
    assert Trainer(evaluated, B).evaluate() == {"training": 0.0}


def test_lengths_that_vary_are_not_joined():
    batches = [torch.arange(length) % 7 for length in (3, 5, 3, 9)]
    sizes = []

    def of_text(model, tokens):
        sizes.append(len(tokens))
        return cross_entropy(model(tokens), tokens)

    build = lambda: nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))  # noqa: E731
    joined, alone = (Trainer(Tasks(build, of_text, batches, chunk=chunk), B) for chunk in (4, 1))
    assert [joined.step() for _ in range(3)] == pytest.approx([alone.step() for _ in range(3)])
    assert set(sizes) == {3, 5, 9}


def test_joined_tasks_that_depend_on_each_other_are_refused():
    with pytest.raises(ValueError, match="chunk=2 changes the gradient of tasks"):
        Trainer(tasks(chunk=2), B)
    Trainer(
        tasks(lambda: nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 3)), chunk=2),
        B,
    )


def test_the_memory_is_that_of_one_batch():
    done = []
    model = nn.Linear(2, 3)
    trainer = Trainer(Tasks(model, mean_loss, [DATA[:8]]), 6)

    def forward(_model, _inputs, outputs):
        done.append("forward")
        outputs.register_hook(lambda _gradient: done.append("backward"))

    trainer.model.register_forward_hook(forward)
    trainer.step()
    # each backward pass runs before the next forward pass
    assert done == ["forward", "backward"] * 6


def test_a_method_trains_on_tasks():
    result = run_method(
        "minibatch",
        deterministic([1.0, 2.0]),
        tasks(),
        updates=6,
        budget=2,
        lr=0.1,
    )
    trainer = Trainer(tasks(), 2, optimizer="sgd", lr=0.1)
    assert result.loss.tolist() == [trainer.step() for _ in range(6)]
    asynchronous = run_method(
        "ringmaster",
        exponential([1.0, 9.0]),
        tasks(),
        updates=30,
        budget=2,
        lr=0.1,
    )
    assert np.isfinite(asynchronous.loss).all()


def test_a_device_clock_runs_tasks():
    build = lambda: nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 3))  # noqa: E731
    clock = DeviceClock(Trainer(tasks(build), B, seed=1), "cpu:1, cpu:2")
    env = TrainingWrapper(
        gym.make("ata_gym/TaskAllocation-v0", pool=clock.pool, budget=B, backend=clock),
    )
    env.reset(seed=0)
    alone = Trainer(tasks(build), B, seed=1)
    for _ in range(4):
        assert env.step(np.array([3, 1]))[-1]["loss"] == pytest.approx(alone.step())
    with pytest.raises(ValueError, match="changes its buffers"):  # running statistics
        DeviceClock(Trainer(tasks(), B), "cpu:1, cpu:2")


def test_a_failed_round_changes_nothing():
    factor = [1.0]
    loader = DataLoader(DATA, 4)
    trainer = Trainer(Tasks(normed, lambda *args: mean_loss(*args) * factor[0], loader), B)
    undisturbed = Trainer(Tasks(normed, mean_loss, loader), B)
    trainer.step()
    undisturbed.step()
    factor[0] = float("nan")
    with pytest.raises(FloatingPointError, match="loss is nan in round 2"):
        trainer.step()
    assert same(undisturbed.model.state_dict(), trainer.model.state_dict())
    factor[0] = 1.0
    assert trainer.step() == undisturbed.step()


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (3.0, 'must give a scalar tensor, or a mapping with "loss", not a float'),
        (torch.ones(4), r"not a tensor of shape \(4,\)"),
        ({"logits": 1}, "not a dict"),
    ],
)
def test_what_is_no_loss(result, sentence):
    with pytest.raises(ValueError, match=sentence):
        Trainer(Tasks(normed, lambda _model, _batch: result, [0]), B).step()


class Noisy(Dataset):
    def __init__(self, size=10):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, k):
        return (
            k
            + 0.1 * torch.rand(())
            + 0.01 * random.random()
            + 0.001 * torch.tensor(np.random.random())  # noqa: NPY002
        )


class Stream(IterableDataset):
    def __init__(self, length=None):
        self.length = length

    def __iter__(self):
        for k in count() if self.length is None else range(self.length):
            yield k + 0.5 * torch.rand(())


class Growing:
    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        yield from ([k] for k in range(2 + self.epoch))


def loader(data=None, **options):
    return DataLoader(
        Noisy() if data is None else data,
        **({"batch_size": 3, "shuffle": True} | options),
    )


def collate(items):
    return torch.stack(items) + 0.1 * torch.rand(())


SOURCES = {
    "shuffled": lambda: loader(collate_fn=collate),
    "in order": lambda: loader(shuffle=False, drop_last=True),
    "of its own generator": lambda: loader(generator=torch.Generator().manual_seed(5)),
    "worker processes": lambda: loader(num_workers=2),
    "without batches": lambda: loader(batch_size=None),
    "of sampled batches": lambda: DataLoader(
        Noisy(),
        batch_sampler=BatchSampler(RandomSampler(Noisy()), 4, False),
    ),
    "growing": lambda: DataLoader(Noisy(), batch_sampler=Growing()),
    "stream": lambda: DataLoader(Stream(10), batch_size=3),
    "endless": lambda: DataLoader(Stream(), batch_size=3),
    "sequence": lambda: Noisy(4),
    "iterable": lambda: Stream(4),
    "list": lambda: list(torch.arange(12.0).reshape(4, 3)),
}


def read(batches, ts):
    return [batches[t] for t in ts]


def equal(first, second):
    return len(first) == len(second) and all(
        torch.equal(a, b) for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_each_batch_depends_on_its_number_and_the_key_alone(source):
    first = read(keyed_batches(source(), 1), range(9))
    torch.manual_seed(3)
    random.seed(3)
    batches = keyed_batches(source(), 1)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    assert equal(read(batches, (7, 8)), first[7:])  # as after a restart
    assert equal(read(batches, (2, 3, 2, 0, 8)), [first[t] for t in (2, 3, 2, 0, 8)])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])  # noqa: NPY002


@pytest.mark.parametrize("name", ["shuffled", "of its own generator", "without batches"])
def test_an_epoch_has_each_sample_once_in_an_order_of_its_own(name):
    batches = keyed_batches(SOURCES[name](), 1)
    if name == "without batches":
        size = 10
    else:
        size = 4
    epochs = [
        torch.cat([b.reshape(-1) for b in read(batches, range(e * size, (e + 1) * size))])
        for e in range(3)
    ]
    orders = [epoch.floor().int().tolist() for epoch in epochs]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    other_batches = keyed_batches(SOURCES[name](), 2)
    assert not equal(read(other_batches, range(size)), read(batches, range(size)))


def test_the_users_generator_stays_as_it_is_and_augmentation_is_drawn_anew_in_each_epoch():
    generator = torch.Generator().manual_seed(5)
    read(keyed_batches(loader(generator=generator), 1), range(9))
    assert torch.equal(generator.get_state(), torch.Generator().manual_seed(5).get_state())
    first, second = read(keyed_batches(loader(shuffle=False, batch_size=10), 1), (0, 1))
    assert torch.equal(first.floor(), second.floor())
    assert not torch.equal(first, second)
    growing = read(keyed_batches(SOURCES["growing"](), 1), range(9))
    assert [batch.floor().item() for batch in growing] == [0, 1, 0, 1, 2, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "empty",
    [[], DataLoader(Noisy(2), batch_size=3, drop_last=True), DataLoader(Stream(0))],
)
def test_a_source_without_batches(empty):
    with pytest.raises(ValueError, match="at least one batch in each epoch"):
        keyed_batches(empty, 0)[0]


@pytest.mark.parametrize("wrong", [3, {"a": 1}, "text", iter([1]), None])
def test_what_gives_no_batches(wrong):
    with pytest.raises(
        TypeError,
        match=r"batches must (be a DataLoader|give one epoch after the other)",
    ):
        keyed_batches(wrong, 0)


class FailingTask(Noisy):
    broken = True

    def __getitem__(self, k):
        if k == 4 and self.broken:
            raise KeyError(k)
        return super().__getitem__(k)


def test_a_dataset_that_fails_can_be_asked_again():
    data = FailingTask()
    batches = keyed_batches(DataLoader(data, batch_size=3), 1)
    batches[0]
    with pytest.raises(KeyError):
        read(batches, range(1, 5))
    data.broken = False
    assert equal(
        read(batches, range(1, 5)),
        read(keyed_batches(DataLoader(data, batch_size=3), 1), range(1, 5)),
    )
