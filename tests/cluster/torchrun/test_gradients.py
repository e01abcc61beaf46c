"""The gradient of a round is that of one process, whatever the split and however the model is wrapped."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from ata_gym.cluster import TaskSampler, TorchAllocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import Net, data, train, whole  # noqa: E402


def alone(budget, rounds):
    (only,) = on_ranks(1, train, "plain", "uta", budget, rounds)
    return only


def assert_alike(ranks, one):
    for rank in ranks:
        assert rank["allocations"] == ranks[0]["allocations"]
        np.testing.assert_allclose(rank["losses"], one["losses"], rtol=1e-5)
        for ours, theirs in zip(rank["weights"], one["weights"], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("kind", ["plain", "ddp", "fsdp"])
def test_training_is_that_of_one_process(kind):
    one = alone(8, 10)
    ranks = on_ranks(3, train, kind, "thompson", 8, 10)
    assert_alike(ranks, one)
    assert {sum(shares) for shares in ranks[0]["allocations"]} == {8}
    assert len(set(ranks[0]["allocations"])) > 1  # with one split there would be little to see
    if kind != "fsdp":
        assert [gradient is None for gradient in ranks[0]["gradients"]] == [False] * 4 + [True] * 2  # the unused layer


@pytest.mark.gpu(2)
def test_each_rank_trains_on_a_gpu_of_its_own_with_nccl():
    ranks = on_ranks(2, train, "ddp", "thompson", 6, 8, backend="nccl")
    assert [rank["device"] for rank in ranks] == [0, 1]
    assert_alike(ranks, alone(6, 8))


@pytest.mark.parametrize("kind", ["plain", "fsdp"])
def test_ranks_without_tasks_take_part(kind):
    ranks = on_ranks(3, train, kind, "uta", 1, 5)
    assert_alike(ranks, alone(1, 5))
    assert {max(shares) for shares in ranks[0]["allocations"]} == {1}


def several_forms():
    """Trainings of other forms, one after the other in the same processes."""
    forms = {"together": {"together": 3}, "samples": {"samples": 2}, "accumulated": {"accumulate": 3}}
    kinds = ("plain", "ddp", "fsdp")
    return {(form, kind): train(kind, "uta", 7, 6, **forms[form]) for form in forms for kind in kinds}


def test_tasks_computed_together_larger_tasks_and_gradients_of_several_rounds():
    (one,) = on_ranks(1, several_forms)
    ranks = on_ranks(2, several_forms)
    for form, kind in one:
        assert_alike([rank[form, kind] for rank in ranks], one[form, "plain"])
    assert not np.allclose(one["together", "plain"]["weights"][0], one["accumulated", "plain"]["weights"][0])


def one_round(model, allocator, samples=1, beside=lambda _: None):
    """A round of squares, in which another function sees the samples too; the number of tasks of this rank."""
    pairs = data()
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs, samples=samples))
    with allocator.round(model) as share:
        for x, _ in share.take(loader):
            beside(x)
            share.backward(model(x).square().mean())
        share.reduce()
    return share.tasks


def in_several_ways():
    """A round of batch norm, beside its own statistics, and three rounds in which a layer is frozen and thawed."""
    model, own = nn.BatchNorm1d(5), nn.BatchNorm1d(5)
    tasks = one_round(model, TorchAllocator(3, "uta"), samples=2, beside=own)
    return (tasks, own.running_mean.numpy(), model.running_mean.numpy()), frozen_and_thawed()


def frozen_and_thawed():
    model, allocator, seen = Net(), TorchAllocator(3, "uta"), []
    for trained in (True, False, True):
        model.first.requires_grad_(trained)
        one_round(model, allocator)
        seen.append([None if p.grad is None else whole(p.grad) for p in model.parameters()])
        model.zero_grad()
    return seen


def test_running_statistics_are_means_over_tasks_and_layers_may_be_frozen_and_thawed_between_rounds():
    (statistics, one), (statistics_too, other) = on_ranks(2, in_several_ways)
    expected = sum(tasks * own for tasks, own, _ in (statistics, statistics_too)) / 3
    for _, _, after in (statistics, statistics_too):
        np.testing.assert_allclose(after, expected, atol=1e-7)
    (alone,) = on_ranks(1, frozen_and_thawed)
    absent = [[gradient is None for gradient in step[:3]] for step in one]
    assert absent == [[False] * 3, [True, True, False], [False] * 3]
    for ranks in zip(one, other, alone, strict=True):
        for first, second, expected in zip(*ranks, strict=True):
            assert (first is None) == (second is None) == (expected is None)
            if expected is not None:
                np.testing.assert_allclose(first, expected, atol=1e-6)
                np.testing.assert_array_equal(first, second)
