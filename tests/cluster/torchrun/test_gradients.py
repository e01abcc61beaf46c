"""The gradient of a round is the gradient of one process, whatever the split, the form and the
wrapper of the model.
"""

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


def assert_alike(ranks, expected):
    for rank in ranks:
        assert rank["allocations"] == ranks[0]["allocations"]
        np.testing.assert_allclose(rank["losses"], expected["losses"], rtol=1e-5)
        for weights, expected_weights in zip(rank["weights"], expected["weights"], strict=True):
            np.testing.assert_allclose(
                weights.reshape(expected_weights.shape), expected_weights, atol=1e-6
            )


KINDS = ("plain", "ddp", "fsdp")


@pytest.mark.parametrize(
    ("kind", "policy", "budget"),
    [
        *((kind, "thompson", 8) for kind in KINDS),
        *((kind, "thompson", 8) for kind in ("transposed", "channels last", "compiled")),
        ("zero redundancy", "thompson", 8),
        *((kind, "uta", 1) for kind in ("plain", "fsdp")),
    ],
)
def test_training_is_that_of_one_process_also_where_ranks_have_no_tasks(kind, policy, budget):
    ranks = on_ranks(3, train, kind, policy, budget, 8)
    assert_alike(ranks, alone(budget, 8))
    assert {sum(shares) for shares in ranks[0]["allocations"]} == {budget}
    # with one split there would be little to see
    assert len(set(ranks[0]["allocations"])) > 1 or policy == "uta"
    if kind != "fsdp":
        assert [gradient is None for gradient in ranks[0]["gradients"]] == [False] * 4 + [
            True,
        ] * 2  # the unused layer


@pytest.mark.gpu(2)
def test_each_rank_trains_on_a_gpu_of_its_own_with_nccl():
    ranks = on_ranks(2, train, "ddp", "thompson", 6, 8, backend="nccl")
    assert [rank["device"] for rank in ranks] == [0, 1]
    assert_alike(ranks, alone(6, 8))


def several_forms(kinds):
    forms = {
        "tasks_per_pass": {"tasks_per_pass": 3},
        "samples": {"samples": 2},
        "accumulated": {"accumulate": 3},
    }
    return {
        (form, kind): train(kind, "uta", 7, 6, **forms[form]) for form in forms for kind in kinds
    }


def test_tasks_computed_together_larger_tasks_and_gradients_of_several_rounds():
    (expected,), ranks = on_ranks(1, several_forms, KINDS[:1]), on_ranks(2, several_forms, KINDS)
    for form, kind in ranks[0]:
        assert_alike([rank[form, kind] for rank in ranks], expected[form, "plain"])
    assert not np.allclose(
        expected["tasks_per_pass", "plain"]["weights"][0],
        expected["accumulated", "plain"]["weights"][0],
    )


def one_round(model, allocator, samples=1, observe=lambda _: None):
    """A round of squares, in which another function sees the samples too; the number of tasks of
    this rank.
    """
    pairs = data()
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs, samples=samples))
    with allocator.round(model) as share:
        for x, _ in share.take(loader):
            observe(x)
            share.backward(model(x).square().mean())
        share.reduce()
    return share.tasks


def batch_norm():
    model = nn.BatchNorm1d(12)
    reference = nn.BatchNorm1d(12)
    tasks = one_round(model, TorchAllocator(3, "uta"), samples=2, observe=reference)
    return tasks, reference.running_mean.numpy(), model.running_mean.numpy()


def test_running_statistics_are_means_over_tasks():
    ranks = on_ranks(2, batch_norm)
    expected = sum(tasks * reference for tasks, reference, _ in ranks) / 3
    for _, _, after in ranks:
        np.testing.assert_allclose(after, expected, atol=1e-7)


def frozen_and_thawed():
    model = Net()
    allocator = TorchAllocator(3, "uta")
    gradients = []
    for trained in (True, False, True):
        model.first.requires_grad_(trained)
        one_round(model, allocator)
        assert [p.grad is None for p in model.parameters()] == [not trained] * 2 + [False] * 2 + [
            True,
        ] * 2
        gradients += [whole(p.grad) for p in model.parameters() if p.grad is not None]
        model.zero_grad()
    return gradients


def test_layers_may_be_frozen_and_thawed_between_rounds():
    first, second = on_ranks(2, frozen_and_thawed)
    (alone,) = on_ranks(1, frozen_and_thawed)
    for gradient, other, expected in zip(first, second, alone, strict=True):
        np.testing.assert_array_equal(gradient, other)
        np.testing.assert_allclose(gradient, expected, atol=1e-6)
