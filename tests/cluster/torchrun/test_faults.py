"""What is wrong with one rank's part of a round is said by every rank, with the worker's name,
before any step.
"""

import math
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from ata_gym.cluster import TaskSampler, TorchAllocator  # noqa: E402
from ata_gym.cluster.torchrun.gradients import buckets  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import refused  # noqa: E402


class Rows(nn.Module):
    def __init__(self, hook=None, **embedding):
        super().__init__()
        torch.manual_seed(0)
        self.rows = nn.Embedding(8, 3, **embedding)
        self.norm = nn.BatchNorm1d(3)
        self.last = nn.Linear(3, 1)
        for parameter in self.parameters() if hook else ():
            parameter.register_post_accumulate_grad_hook(hook)

    def forward(self, numbers):
        return self.last(self.norm(self.rows(numbers)))


class Overflow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, overflows):
        if overflows:
            ctx.factor = math.inf
        else:
            ctx.factor = 1.0
        return loss.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


def allocator_of(budget=4, **options):
    return TorchAllocator(budget, "uta", name="ab"[dist.get_rank()], **options)


def play_round(model, allocator, *, spoil=None, loader=None, weigh=lambda: None, **how):
    """A round, each of whose tasks has two samples, with ``spoil`` of the loss on the second
    rank.
    """
    if loader is None:
        loader = DataLoader(
            torch.arange(8),
            batch_sampler=TaskSampler(allocator, 8, samples=2, shuffle=False),
        )
    with allocator.round(model) as share:
        for numbers in share.take(loader):
            loss = model(numbers.to(next(model.parameters()).device)).square().mean()
            share.backward(
                spoil(loss) if spoil and dist.get_rank() == 1 else loss,
                weight=weigh(),
                **how,
            )
        share.reduce()


def state(model):
    tensors = [
        *model.parameters(),
        *(parameter.grad for parameter in model.parameters() if parameter.grad is not None),
    ]
    return [
        tensor.detach().clone()
        for tensor in (*tensors, *(b for b in model.buffers() if b.is_floating_point()))
    ]


def steps(parameter):
    with torch.no_grad():
        parameter.sub_(0.1 * parameter.grad)


def steps_unseen(parameter):
    parameter.data = parameter.data - 0.1 * parameter.grad
    parameter.grad = None


def looks(parameter):
    parameter.grad.norm()


def thaws():
    model = Rows()
    model.last.requires_grad_(False)
    play_round(model, allocator_of(), spoil=lambda loss: (model.last.requires_grad_(True), loss)[1])


def other_on_b(model, change):
    if dist.get_rank() == 1:
        change(model)
    return model


def transpose(layer):
    layer.weight = nn.Parameter(layer.weight.detach().T.contiguous().T)


def is_not_finite(spoil):
    model = Rows()
    allocator = allocator_of()
    play_round(model, allocator)
    before = state(model)
    try:
        play_round(model, allocator, spoil=spoil)
    finally:
        assert allocator.rounds == 1
        assert all(map(torch.equal, before, state(model)))
        model.zero_grad()
        play_round(model, allocator)
        assert allocator.rounds == 2


def in_order(**options):
    torch.manual_seed(0)
    allocator = allocator_of()
    loader = DataLoader(torch.arange(8), batch_sampler=TaskSampler(allocator, 8, **options))
    play_round(nn.Embedding(8, 3), allocator, loader=loader)


def second_pass_in_the_last_batch():
    """Of a model with several buckets, so that one of them is on its way; then the round is
    right.
    """
    model = Rows()
    allocator = allocator_of()
    with mock.patch.object(buckets, "_SIZE", 16):
        play_round(model, allocator)
        first = [parameter.grad.clone() for parameter in model.parameters()]

        def twice(loss):
            loss.backward(retain_graph=True, inputs=list(model.last.parameters()))
            return loss

        try:
            play_round(model, allocator, spoil=twice)
        finally:
            assert all(
                map(torch.equal, first, (parameter.grad for parameter in model.parameters())),
            )
            play_round(model, allocator, spoil=twice)
            assert allocator.rounds == 2


def fails_when_a_part_was_sent():
    model = Rows()
    allocator = allocator_of()
    with mock.patch.object(buckets, "_SIZE", 16):
        play_round(model, allocator)
        first = [parameter.grad.clone() for parameter in model.parameters()]
        # the second pass on b fails
        passes = iter(
            [None, None] if dist.get_rank() == 0 else [None],
        )
        hook = model.rows.weight.register_hook(lambda _: next(passes))
        message = refused(lambda: play_round(model, allocator))
        assert message.startswith(
            (
                "StopIteration"
                if dist.get_rank()
                else "RuntimeError: round 2: b failed inside the round"
            ),
        )
        assert all(map(torch.equal, first, (parameter.grad for parameter in model.parameters())))
        hook.remove()
        play_round(model, allocator)
        assert allocator.rounds == 2


CHANGED = "RuntimeError: round 1: the parameter {} was changed inside the round on {}"
ORDER = "RuntimeError: round 1: the ranks follow different orders of samples; b differs from a."
CASES = [
    (
        lambda: is_not_finite(lambda loss: loss * math.nan),
        "FloatingPointError: round 2: the loss of b is not finite",
    ),
    (
        lambda: is_not_finite(lambda loss: Overflow.apply(loss, True)),
        "FloatingPointError: round 2: the gradient of the parameter rows.weight on b is not finite",
    ),
    (lambda: play_round(Rows(steps), allocator_of()), CHANGED.format("rows.weight", "a")),
    (
        lambda: play_round(Rows(steps_unseen), allocator_of()),
        CHANGED.format("rows.weight", "a"),
    ),
    (lambda: play_round(Rows(looks), allocator_of()), ""),
    (
        lambda: play_round(Rows(max_norm=0.1), allocator_of()),
        CHANGED.format("rows.weight", "a"),
    ),
    (thaws, CHANGED.format("last.weight", "b")),
    (fails_when_a_part_was_sent, ""),
    (
        second_pass_in_the_last_batch,
        "RuntimeError: round 2: b computed a second backward pass in its last",
    ),
    (
        lambda: play_round(Rows(), allocator_of(), weigh=lambda: 1.0 if dist.get_rank() else None),
        "ValueError: round 1: a gave share.backward no weight, and others did",
    ),
    (
        lambda: play_round(
            other_on_b(Rows(), lambda model: nn.init.normal_(model.last.weight)),
            allocator_of(),
        ),
        "RuntimeError: round 1: the models have different weights",
    ),
    (
        lambda: play_round(
            nn.Sequential(nn.Embedding(8, 9), other_on_b(nn.Linear(9, 9), transpose)),
            allocator_of(),
        ),
        (
            "RuntimeError: round 1: the ranks train parameters of different shapes, memory formats"
            " or dtypes"
        ),
    ),
    (lambda: in_order(seed=dist.get_rank()), ORDER),
    (lambda: in_order(samples=1 + dist.get_rank()), ORDER),
    (in_order, ""),
]
"""What ranks do, and what every one of them says to it."""


def all_faults():
    return [refused(work) for work, _ in CASES]


def test_every_rank_names_the_worker_and_nothing_has_changed():
    first, second = on_ranks(2, all_faults)
    assert first == second
    for message, (_, sentence) in zip(first, CASES, strict=True):
        assert message.startswith(sentence)
        assert bool(message) == bool(sentence)


def what_is_let_through(device="cpu"):
    allocator = allocator_of(allow_nonfinite=True)
    model = Rows().to(device)
    play_round(model, allocator, spoil=lambda loss: loss * math.nan)
    assert math.isnan(allocator.last.loss)
    assert not model.last.weight.grad.isfinite().any()

    plain = allocator_of()
    allocator = allocator_of()
    model = Rows().to(device)
    scaler = torch.amp.GradScaler(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    play_round(Rows(), plain)
    for overflow in (False, True):
        before = state(model)[0]
        scale = scaler.get_scale()
        play_round(
            model,
            allocator,
            spoil=lambda loss, o=overflow: Overflow.apply(loss, o),
            scaler=scaler,
        )
        assert allocator.last.loss < 10.0
        assert overflow or math.isclose(allocator.last.loss, plain.last.loss, rel_tol=1e-6)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert torch.equal(before, model.rows.weight) == overflow
        assert scaler.get_scale() == (scale / 2 if overflow else scale)

    # one rank has no task
    model = nn.Linear(2, 2).bfloat16().to(device)
    allocator = allocator_of(budget=1)
    nn.init.ones_(model.weight)
    model.weight.grad_dtype = torch.float32
    with allocator.round(model) as share:
        for _ in range(share.tasks):
            with share.timed():
                share.backward(model(torch.ones(2, dtype=torch.bfloat16, device=device)).sum())
        share.reduce()
    assert (model.weight.grad.dtype, model.weight.grad.tolist()) == (
        torch.float32,
        [[1.0, 1.0], [1.0, 1.0]],
    )

    model = nn.Sequential(nn.Embedding(8, 3), nn.Linear(3, 1)).to(device)
    allocator = allocator_of()
    play_round(model, allocator)
    model.append(nn.BatchNorm1d(1, device=device))
    play_round(model, allocator)
    return model[2].running_mean.item()


def test_what_is_let_through_and_running_statistics_of_a_layer_that_came_later():
    first, second = on_ranks(2, what_is_let_through)
    assert first == second != 0.0
