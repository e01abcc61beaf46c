"""What a share can do beside the mean loss of its tasks: weights, costs, noise by task, memory, and
loading ahead.
"""

import logging
import random
from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from ata_gym.cluster import KeyedSamples, TaskSampler, TorchAllocator  # noqa: E402
from ata_gym.cluster.torchrun import torch_allocator  # noqa: E402
from ata_gym.cluster.torchrun.gradients import buckets  # noqa: E402
from ata_gym.cluster.torchrun.ranks import waiting  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.waiting import until  # noqa: E402

BUDGET = 6
TOKENS = torch.tensor([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0, 5.0, 8.0])
DATA = TensorDataset(
    torch.arange(12),
    TOKENS,
    torch.linspace(-1.0, 2.0, 36, dtype=torch.float64).reshape(12, 3),
)


def net(dropout=0.0, device="cpu"):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Dropout(dropout), nn.Linear(5, 1)).double().to(device)


def gradients(model):
    return (
        torch.cat([parameter.grad.flatten().cpu() for parameter in model.parameters()])
        .numpy()
        .copy()
    )


def train(
    tasks_per_pass,
    rounds=3,
    *,
    weighted=False,
    dropout=0.0,
    device="cpu",
    split=False,
    within=nullcontext,
    **options,
):
    """The gradient and loss of each round, and how many parts were sent before the rank reduced.

    With ``split`` the last layer is on the CPU. Each forward pass is ``within`` a context.
    """
    model = net(dropout, device)
    rounds_of_rank = []
    if split:
        model[2].cpu().register_forward_pre_hook(lambda _, given: given[0].cpu())
    allocator = TorchAllocator(BUDGET, "thompson", warm_up=0, **options)
    loader = DataLoader(
        DATA, batch_sampler=TaskSampler(allocator, DATA, tasks_per_pass=tasks_per_pass)
    )
    with mock.patch.object(buckets, "_SIZE", 64):
        for _ in range(rounds):
            with allocator.round(model) as share:
                for _, tokens, x in share.take(loader):
                    with within():
                        losses = model(x.to(device))[:, 0].square()
                    if weighted:
                        share.backward((losses * tokens).sum(), weight=tokens.sum())
                    else:
                        share.backward(losses.mean())
                early = allocator._gradients._buckets.sent
                share.reduce()
            rounds_of_rank.append((gradients(model), allocator.last.loss, early))
            model.zero_grad()
    return rounds_of_rank


def alike(ranks, expected):
    for rank in ranks:
        for (gradient, loss, _), (mean_gradient, mean, _) in zip(rank, expected, strict=True):
            np.testing.assert_allclose(gradient, mean_gradient, rtol=1e-12)
            np.testing.assert_allclose(loss, mean, rtol=1e-6)


@pytest.mark.parametrize("tasks_per_pass", [1, None])
def test_the_gradient_is_sent_while_it_is_computed_and_is_that_of_one_process(tasks_per_pass):
    ranks = on_ranks(3, train, tasks_per_pass)
    (expected,) = on_ranks(1, train, tasks_per_pass)
    alike(ranks, expected)
    assert {rank[0][2] for rank in ranks} == {0}  # what the passes of a batch are is not known yet
    # a rank without tasks sends nothing early
    assert any(early for rank in ranks for *_, early in rank[1:])


def by_tokens(tasks_per_pass):
    return train(tasks_per_pass, weighted=True)


def test_with_weights_the_loss_is_the_mean_over_all_tokens():
    ranks = on_ranks(3, by_tokens, 2)
    (expected,) = on_ranks(1, by_tokens, 1)
    alike(ranks, expected)
    model = net()
    order = TaskSampler(mock.Mock(budget=BUDGET), DATA).samples_from(0, BUDGET)
    _, tokens, x = DATA[order]
    loss = (model(x)[:, 0].square() * tokens).sum() / tokens.sum()
    loss.backward()
    np.testing.assert_allclose(expected[0][0], gradients(model), rtol=1e-12)
    np.testing.assert_allclose(expected[0][1], loss.item(), rtol=1e-6)


def with_dropout(keyed):
    return train(1, dropout=0.5, keyed_noise=keyed, seed=3)


def test_keyed_noise_is_that_of_one_process_and_other_noise_is_not():
    ranks = on_ranks(3, with_dropout, True)
    (expected,) = on_ranks(1, with_dropout, True)
    alike(ranks, expected)
    assert len({loss for _, loss, _ in expected}) == len(expected)
    (other,) = on_ranks(1, with_dropout, False)
    assert not np.allclose(other[0][0], expected[0][0])


@pytest.mark.usefixtures("alone")
def test_times_are_divided_by_the_costs_of_samples():
    allocator = TorchAllocator(BUDGET, warm_up=0, name="a")
    clock = [0.0]
    sampler = TaskSampler(allocator, DATA, samples=2, tasks_per_pass=2, cost=TOKENS)
    watch = mock.Mock(mark=lambda: clock[0], seconds=lambda start, end: end - start)
    with (
        mock.patch.object(torch_allocator, "Stopwatch", return_value=watch),
        allocator.round(net()) as share,
    ):
        for _, tokens, x in share.take(DataLoader(DATA, batch_sampler=sampler)):
            clock[0] += 2.0 * tokens.sum().item()
            share.backward(allocator._gradients.model(x).sum())
        share.reduce()
    assert allocator.last.seconds["a"] == pytest.approx([2.0 * 2 * TOKENS.mean().item()] * BUDGET)
    for wrong in (TOKENS[:3], -TOKENS, TOKENS * torch.inf):
        with pytest.raises(
            ValueError,
            match="cost must be a finite number above 0 for each of the 12 samples",
        ):
            TaskSampler(allocator, DATA, cost=wrong)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_the_largest_batch_that_fits_is_found_and_remembered(where, caplog):
    allocator = TorchAllocator(BUDGET)
    model = net()
    limit = 2
    tried = []
    sampler = TaskSampler(allocator, DATA, tasks_per_pass=None)
    loader = DataLoader(DATA, batch_sampler=sampler)

    def lacks(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    def loss_of(batch):
        tried.append(len(batch[0]))
        hidden = model[0](batch[2])
        if len(batch[0]) > limit:
            lacks() if where == "forward" else hidden.register_hook(lacks)
        return model[2](hidden).square().mean()

    for expected in ([6, 3, 1, 1, 1, 1, 1, 1], [1] * 6):
        tried.clear()
        with allocator.round(model) as share:
            share.compute(loader, loss_of)
            share.reduce()
        assert tried == expected
    assert [record.args for record in caplog.records] == [(6, 3), (3, 1)]
    mean_gradients = gradients(model)  # of two rounds
    model.zero_grad()
    for start in (0, BUDGET):
        model(DATA[sampler.samples_from(start, BUDGET)][2]).square().mean().backward()
    np.testing.assert_allclose(mean_gradients, gradients(model), rtol=1e-12)
    limit = 0
    with pytest.raises(torch.OutOfMemoryError), allocator.round(model) as share:
        share.compute(loader, loss_of)


class Counted(torch.utils.data.Dataset):
    def __init__(self):
        self.loaded = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __len__(self):
        return 60

    def __getitem__(self, number):
        self.loaded += 1
        return number


@pytest.mark.usefixtures("alone")
def test_worker_processes_load_the_next_share_between_rounds_and_nothing_in_vain():
    allocator = TorchAllocator(2, "uta")
    data = Counted()
    sampler = TaskSampler(allocator, data)
    loader = DataLoader(data, batch_sampler=sampler, num_workers=1, persistent_workers=True)
    samples = []
    for number in range(1, 4):
        with allocator.round(nn.Identity()) as share:
            for batch in share.take(loader):
                samples += batch.tolist()
                share.backward(torch.ones((), requires_grad=True))
            share.reduce()
        until(lambda number=number: int(data.loaded) == 2 * (number + 1), about="the next share")
    assert samples == sampler.samples_from(0, 6)


def late():
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    handler = mock.Mock(level=0, handle=lambda record: store.set("named", record.getMessage()))
    logging.getLogger("ata_gym.cluster").addHandler(handler)
    with mock.patch.object(waiting, "_LOOK_SECONDS", 0.01):
        allocator = TorchAllocator(2, "uta", name="ab"[rank], patience=0.05)
        with allocator.round(nn.Identity()) as share:
            for _ in range(share.tasks):
                with share.timed():
                    share.backward(torch.ones((), requires_grad=True))
            if rank == 1:
                store.wait(["named"])
            share.reduce()
    logging.getLogger("ata_gym.cluster").removeHandler(handler)
    return store.get("named").decode()


def test_ranks_that_others_wait_for_are_named_in_the_log():
    assert on_ranks(2, late)[0].startswith("round 1: waiting for b for ")


class Augmented(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, number):
        return (
            number,
            torch.rand(()),
            torch.tensor(random.random()),
            torch.tensor(np.random.rand()),  # noqa: NPY002
        )


def augmented(workers):
    allocator = TorchAllocator(BUDGET, "thompson", warm_up=0)
    data = KeyedSamples(Augmented())
    samples = []
    sampler = TaskSampler(allocator, data, tasks_per_pass=1 + workers)
    loader = DataLoader(
        data,
        batch_sampler=sampler,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    for _ in range(3):
        with allocator.round(nn.Identity()) as share:
            for batch in share.take(loader):
                samples += [tuple(row) for row in torch.stack(list(batch), dim=1).tolist()]
                share.backward(torch.ones((), requires_grad=True))
            share.reduce()
    assert data[0] != data[0]  # without a place in the order there is no key
    return samples


@pytest.mark.usefixtures("alone")
def test_augmentation_depends_on_no_rank_and_no_worker_process():
    ranks = on_ranks(2, augmented, 0)
    expected = augmented(1)
    assert sorted(row for rank in ranks for row in rank) == sorted(expected)
    # also in the second epoch
    assert len({drawn for _, *drawn in expected for drawn in drawn}) == 3 * len(
        expected,
    )
