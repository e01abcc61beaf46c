"""Losses with weights: one mean over all that counts in an optimizer step, whatever the split, the
rounds and the tasks in which nothing counts.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import fixed_shares, refused, whole  # noqa: E402

SHARES = (1, 2, 2)
BUDGET = sum(SHARES)
ROUNDS = 4
ACCUMULATED = 2
STEP = 0.1
TOKENS = np.array([[0, 3, 0, 1, 4], [1, 0, 0, 0, 0], [2, 4, 4, 4, 4], [0, 0, 0, 0, 1]])
"""The tokens that count, by round and task; the first share of rank 0 has none."""
IGNORED = -100


class Tokens(nn.Module):
    """It classifies tokens; its last layer is used in the second round of each step alone."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(5, 3)
        self.late = nn.Linear(5, 3)
        self.double()

    def forward(self, x, number):
        if number % ACCUMULATED == 0:
            return self.first(x)
        return self.first(x) + self.late(x)


def task(number, place):
    """The tokens of a task, and their classes."""
    generator = torch.Generator().manual_seed(BUDGET * number + place)
    x = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (4,), generator=generator)
    labels[TOKENS[number, place] :] = IGNORED
    return x, labels


def loss_of(model, number, place):
    x, labels = task(number, place)
    return cross_entropy(model(x, number), labels, reduction="sum", ignore_index=IGNORED)


def play(allocator, model, number, *, leaves_out=False, scaler=None):
    with allocator.round(model) as share:
        for place in range(share.first, share.first + share.tasks):
            with share.timed():
                tokens = TOKENS[number, place]
                if leaves_out and not tokens:
                    continue
                loss = loss_of(model, number, place)
                weight = torch.tensor(tokens) if place % 2 else float(tokens)
                share.backward(loss, weight=weight, scaler=scaler)
        share.reduce()


def gradients(model):
    return np.concatenate([whole(parameter.grad).ravel() for parameter in model.parameters()])


def train(kind):
    """The gradient of each step, and the mean loss and weight of each round."""
    model = Tokens()
    if kind == "ddp":
        model = DistributedDataParallel(model, find_unused_parameters=True)
    if kind == "fsdp":
        model = fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    allocator = fixed_shares(SHARES)
    optimizer = torch.optim.SGD(model.parameters(), STEP)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0) if kind == "scaler" else None
    other = nn.Linear(1, 1)
    steps = []
    records = []
    for number in range(ROUNDS):
        if kind == "failed":
            assert refused(lambda: fail(allocator, model))
        if kind == "alternating":
            with allocator.round(other) as share:
                with share.timed(share.tasks):
                    share.backward(other.weight.sum())
                share.reduce()
        play(allocator, model, number, leaves_out=kind == "left out", scaler=scaler)
        records.append((allocator.last.loss, allocator.last.weight))
        if number % ACCUMULATED == ACCUMULATED - 1:
            if scaler is not None:
                scaler.unscale_(optimizer)
            steps.append(gradients(model))
            if kind != "skipped":
                optimizer.step()
            if scaler is not None:
                scaler.update()
            optimizer.zero_grad(set_to_none=kind not in ("zeroed", "skipped"))
        if kind == "clipped":
            # It is long, and so changes nothing; but it writes to the gradients.
            nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    return steps, records


def fail(allocator, model):
    with allocator.round(model) as share:
        if dist.get_rank() == 1:
            raise KeyError("an error of the loop")
        play_nothing(share)


def play_nothing(share):
    with share.timed(share.tasks):
        pass
    share.reduce()


def alone(kind):
    """The same steps by one process, without any round."""
    model = Tokens()
    optimizer = torch.optim.SGD(model.parameters(), STEP)
    steps = []
    for step in range(ROUNDS // ACCUMULATED):
        numbers = range(step * ACCUMULATED, (step + 1) * ACCUMULATED)
        losses = [loss_of(model, number, place) for number in numbers for place in range(BUDGET)]
        (sum(losses) / TOKENS[list(numbers)].sum()).backward()
        steps.append(gradients(model))
        if kind != "skipped":
            optimizer.step()
        optimizer.zero_grad()
    return steps


KINDS = (
    "plain",
    "left out",
    "zeroed",
    "skipped",
    "clipped",
    "failed",
    "alternating",
    "scaler",
    "ddp",
    "fsdp",
)


def all_kinds():
    return [train(kind) for kind in KINDS]


def test_the_rounds_of_a_step_have_one_mean_over_its_tokens_whatever_the_split():
    for rank in on_ranks(3, all_kinds):
        for kind, (steps, records) in zip(KINDS, rank, strict=True):
            for step, expected in zip(steps, alone(kind), strict=True):
                np.testing.assert_allclose(step, expected, rtol=1e-12, atol=1e-14, err_msg=kind)
            np.testing.assert_array_equal([weight for _, weight in records], TOKENS.sum(axis=1))
    model = Tokens()
    first = sum(loss_of(model, 0, place).item() for place in range(BUDGET)) / TOKENS[0].sum()
    assert records[0][0] == pytest.approx(first)


def two_parts():
    """Two parts of a model in turn, of which each is stepped with the gradients of the other one
    still there.
    """
    torch.manual_seed(0)
    parts = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)]).double()
    optimizers = [torch.optim.SGD(part.parameters(), STEP) for part in parts]
    allocator = fixed_shares(SHARES)
    seen = []
    for number in range(4):
        part = parts[number % 2]
        optimizers[number % 2].zero_grad()
        with allocator.round(parts) as share:
            with share.timed(share.tasks):
                x = torch.full((share.tasks, 2), 1.0 + number, dtype=torch.float64)
                share.backward(part(x).sum(), weight=7.0 * share.tasks)
            share.reduce()
        seen.append(part.weight.grad.ravel().tolist())
        optimizers[number % 2].step()
    return seen


def test_gradients_of_before_the_last_step_are_no_part_of_the_mean():
    expected = [[(1.0 + number) / 7.0] * 2 for number in range(4)]
    for rank in on_ranks(3, two_parts):
        np.testing.assert_allclose(rank, expected, rtol=1e-12)


def weighted_round(allocator, model, weight_of_rank, loss=None):
    with allocator.round(model) as share:
        with share.timed(share.tasks):
            given = model(torch.ones(1, 2)).sum() if loss is None else loss(model)
            share.backward(given, weight=weight_of_rank[dist.get_rank()])
        share.reduce()


def mean_of_nothing(model):
    return cross_entropy(model(torch.ones(1, 2)), torch.tensor([IGNORED]))


def summed(model):
    return cross_entropy(model(torch.ones(1, 2)), torch.tensor([IGNORED]), reduction="sum")


def no_pass(allocator, model):
    with allocator.round(model) as share:
        play_nothing(share)


def faults():
    """What is said where weights give no mean, and then a round that follows the advice."""
    answers = []

    def check(work, follow):
        model = nn.Linear(2, 3)
        allocator = fixed_shares(SHARES)
        answers.append(refused(lambda: work(allocator, model)))
        assert (allocator.rounds, model.weight.grad) == (0, None)
        follow(allocator, model)
        assert allocator.rounds == 1
        assert model.weight.grad.isfinite().all()

    def with_weights(*weights, loss=None):
        return lambda allocator, model: weighted_round(allocator, model, weights, loss)

    check(with_weights(0, 0.0, torch.tensor(0)), with_weights(0, 2, torch.tensor(0)))
    check(no_pass, with_weights(0, 1, 1))
    check(with_weights(0, None, None), with_weights(0, 1, 1))
    check(with_weights(0, 1, 1, loss=mean_of_nothing), with_weights(0, 1, 1, loss=summed))

    def then_without(allocator, model):
        with_weights(1, 1, 1)(allocator, model)
        try:
            with_weights(None, None, None)(allocator, model)
        finally:
            # The advice is to set the gradients to None after each step.
            model.zero_grad()
            with_weights(None, None, None)(allocator, model)
            allocator.rounds -= 2
            model.zero_grad()

    check(then_without, with_weights(1, 1, 1))
    return answers


def test_weights_without_a_mean_are_refused_on_all_ranks_and_the_advice_works():
    first, *others = on_ranks(3, faults)
    assert others == [first] * 2
    for message, sentence in zip(
        first,
        (
            "ValueError: round 1: the weights of all ranks are 0, so that their losses have no",
            "RuntimeError: round 1: no task of any rank had a backward pass: call",
            "ValueError: round 1: b, c gave share.backward no weight, and others did",
            "FloatingPointError: round 1: a loss of a has weight 0 and is not finite, as a mean",
            "ValueError: round 2: its losses have no weights, and losses of earlier rounds, whose"
            " gradients the model still has, have weights. The step is not taken",
        ),
        strict=True,
    ):
        assert message.startswith(sentence)


def without_gradients(weight):
    """What rounds leave of which some tasks, or all, are said to have no gradient."""
    model = nn.Linear(2, 1, bias=False)
    allocator = fixed_shares(SHARES)
    tasks = range(BUDGET)
    answers = []

    def play_some(*places):
        with allocator.round(model) as share:
            for place in tasks[share.first :][: share.tasks]:
                with share.timed():
                    loss = None
                    if place in places:
                        loss = model(torch.ones(1, 2)).sum() * float(place)
                    share.backward(loss, weight=weight)
            share.reduce()
        assert all(len(times) == allocator.last.tasks[name] for name, times in seconds())
        gradient = model.weight.grad
        answers.append(None if gradient is None else gradient[0, 0].item())

    def seconds():
        return allocator.last.seconds.items()

    play_some()
    play_some(2, 3)
    play_some()
    play_some(4)
    assert allocator.rounds == 4
    return answers


@pytest.mark.parametrize("weight", [None, 2.0])
def test_tasks_may_have_no_gradient_also_all_of_a_round(weight):
    if weight is None:
        expected = [None, 5 / BUDGET, 5 / BUDGET, 9 / BUDGET]
    else:
        expected = [None, 5 / (2 * weight), 5 / (2 * weight), 9 / (3 * weight)]
    for answers in on_ranks(3, without_gradients, weight):
        assert answers == pytest.approx(expected)
