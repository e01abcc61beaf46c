"""Other models with ``DistributedDataParallel`` inside a round, and sparse gradients."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import fixed_shares, refused  # noqa: E402

SHARES = (1, 3)
BUDGET = sum(SHARES)
X = torch.linspace(-1.0, 2.0, 6 * BUDGET, dtype=torch.float64).reshape(BUDGET, 2, 3)


def student():
    torch.manual_seed(0)
    return nn.Linear(3, 3).double()


def teacher():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).double()


def distill(share, model, other, context):
    for task in range(share.first, share.first + share.tasks):
        with share.timed():
            with context():
                target = other(X[task])
            share.backward((model(X[task]) - target).square().mean())
    share.reduce()


def expected_gradient():
    model = student()
    with torch.no_grad():
        targets = [teacher().eval()(x) for x in X]
    losses = [(model(x) - target).square().mean() for x, target in zip(X, targets, strict=True)]
    (sum(losses) / BUDGET).backward()
    return model.weight.grad.tolist()


def with_a_teacher():
    """What is said of a teacher that is trained, or in training mode; then what is advised."""
    allocator = fixed_shares(SHARES)
    model = DistributedDataParallel(student())
    other = DistributedDataParallel(teacher())
    forward = DistributedDataParallel.forward

    def play(models, context):
        with allocator.round(models) as share:
            distill(share, model, other, context)

    messages = [
        refused(lambda: play(model, torch.enable_grad)),
        refused(lambda: play(model, torch.no_grad)),
    ]
    play(nn.ModuleList([model, other]), torch.enable_grad)
    trained = [other.module[0].weight.grad.tolist(), other.module[1].running_mean.tolist()]
    other.module.load_state_dict(teacher().state_dict())
    other.eval()
    model.zero_grad()
    play(model, torch.no_grad)
    gradient = model.module.weight.grad.tolist()
    assert DistributedDataParallel.forward is forward
    assert other.require_forward_param_sync
    assert other.require_backward_grad_sync
    return messages, trained, gradient, allocator.rounds


def test_another_model_is_refused_if_it_is_trained_and_computes_without_communication_if_not():
    first, second = on_ranks(2, with_a_teacher)
    assert first == second
    (trained, in_training), _, gradient, rounds = first
    start = "RuntimeError: DistributedDataParallel(Sequential) is called inside a round of another"
    assert trained.startswith(start)
    assert "as one torch.nn.ModuleList" in trained
    assert in_training.startswith(start)
    assert "call eval()" in in_training
    assert rounds == 2
    np.testing.assert_allclose(gradient, expected_gradient(), rtol=1e-12)


ROWS = ((0, 1), (3, 1), (5,), (3, 3))
"""The rows of the table that each task uses."""


class Table(nn.Module):
    def __init__(self, table, *, tied=False):
        super().__init__()
        torch.manual_seed(0)
        self.table = table
        self.last = nn.Linear(2, 1).double()
        self.tied = tied

    def forward(self, rows):
        vectors = self.table(torch.tensor([rows]))
        loss = self.last(vectors).sum()
        if self.tied:
            loss = loss + self.table.weight.square().sum()
        return loss


def embedding(kind):
    return (nn.EmbeddingBag if kind == "bag" else nn.Embedding)(7, 2, sparse=True).double()


def coordinates(gradient):
    """The numbers of the rows of a gradient, and the whole gradient."""
    if not gradient.is_sparse:
        return None, gradient.tolist()
    gradient = gradient.coalesce()
    return gradient.indices().tolist(), gradient.to_dense().tolist()


def train_table(kind):
    """The gradients and the weights of steps with an optimizer for sparse gradients."""
    torch.manual_seed(0)
    model = Table(embedding(kind), tied=kind == "tied")
    optimizer = (torch.optim.SGD if kind == "tied" else torch.optim.SparseAdam)(
        model.table.parameters(), lr=0.1
    )
    allocator = fixed_shares(SHARES) if dist.is_initialized() else None
    seen = []
    for number in range(4):
        if allocator is None:
            (sum(model(rows) for rows in ROWS) / BUDGET).backward()
        else:
            with allocator.round(model) as share:
                for task in range(share.first, share.first + share.tasks):
                    with share.timed():
                        share.backward(model(ROWS[task]))
                share.reduce()
        if number % 2:
            seen.append(coordinates(model.table.weight.grad))
            optimizer.step()
            model.zero_grad()
    return seen, model.table.weight.tolist()


KINDS = ("embedding", "bag", "tied")


def train_tables():
    return [train_table(kind) for kind in KINDS]


def test_sparse_gradients_have_the_rows_of_one_process():
    for rank in on_ranks(2, train_tables):
        for kind, (seen, weights) in zip(KINDS, rank, strict=True):
            expected, expected_weights = train_table(kind)
            for (rows, gradient), (expected_rows, expected_gradient) in zip(
                seen, expected, strict=True
            ):
                assert rows == expected_rows
                np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-12)
            np.testing.assert_allclose(weights, expected_weights, rtol=1e-12)
        assert [rank[0][0][0][0], rank[2][0][0][0]] == [[[0, 1, 3, 5]], None]


class Looked(nn.Module):
    """It looks rows up itself."""

    def __init__(self, sparse):
        super().__init__()
        self.rows = nn.Parameter(torch.ones(7, 2))
        self.sparse = sparse

    def forward(self, rows):
        return nn.functional.embedding(torch.tensor(rows), self.rows, sparse=self.sparse).sum()


def sparse_elsewhere():
    allocator = fixed_shares(SHARES)

    def play(model):
        with allocator.round(model) as share:
            with share.timed(share.tasks):
                share.backward(model((dist.get_rank(),)))
            share.reduce()

    message = refused(lambda: play(Looked(sparse=True)))
    play(Looked(sparse=False))
    play(Table(embedding("embedding")))
    return message, allocator.rounds


def test_sparse_gradients_of_other_parameters_are_refused_by_name():
    first, second = on_ranks(2, sparse_elsewhere)
    assert first == second
    assert first[0].startswith(
        "RuntimeError: round 1: the gradient of the parameter rows on a is sparse"
    )
    assert first[1] == 2
