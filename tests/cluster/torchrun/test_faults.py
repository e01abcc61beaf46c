"""What is wrong with one rank's part of a round is said by every rank, with the worker's name, before any step."""

import math

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from ata_gym.cluster import TaskSampler, TorchAllocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402

BUDGET = 4


class Net(nn.Module):
    """With running statistics, and rows that are looked up."""

    def __init__(self, **embedding):
        super().__init__()
        torch.manual_seed(0)
        self.rows, self.norm, self.last = nn.Embedding(8, 3, **embedding), nn.BatchNorm1d(3), nn.Linear(3, 1)

    def forward(self, numbers):
        return self.last(self.norm(self.rows(numbers)))


def one_round(model, allocator, *, known=True, spoil=None, loader=None):
    """A round, each of whose tasks has two samples, with ``spoil`` of the loss on the second rank."""
    with allocator.round(*([model] if known else [])) as share:
        for numbers in (
            share.take(loader) if loader is not None else torch.arange(8).reshape(4, 2)[share.first :][: share.tasks]
        ):
            with share.timed() if loader is None else torch.enable_grad():
                loss = model(numbers).square().mean()
                share.backward(spoil(loss) if spoil and dist.get_rank() == 1 else loss)
        share.reduce(model)


def state(model):
    """Weights, gradients and buffers."""
    tensors = [*model.parameters(), *(one.grad for one in model.parameters() if one.grad is not None)]
    return [tensor.detach().clone() for tensor in (*tensors, *(b for b in model.buffers() if b.is_floating_point()))]


def alike(before, after):
    return all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def steps(model):
    """An optimiser that steps in hooks."""

    def hook(parameter):
        parameter.data = parameter.data - 0.1 * parameter.grad  # as SGD in place, but unseen by the version
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    return model


def steps_in_place(model):
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())
    return model


def looks(model):
    """A hook that does no harm."""
    norms = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda parameter: norms.append(parameter.grad.norm()))
    return model


def thaws(model):
    model.last.requires_grad_(False)

    def spoil(loss):
        model.last.requires_grad_(True)
        return loss

    return model, spoil


def infinite_gradient(loss):
    return Overflow.apply(loss, True)


def refused(work):
    """The type and sentence of the error that a round ends with."""
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def faults():
    """What each set-up is refused with on this rank, and whether anything has changed then."""
    name = "ab"[dist.get_rank()]
    said, kept = {}, {}

    def attempt(case, build=Net, **options):
        model, allocator = build(), TorchAllocator(BUDGET, "uta", name=name)
        before = None
        if options.pop("after_a_round", False):
            one_round(model, allocator)
            before = state(model)
        said[case] = refused(lambda: one_round(model, allocator, **options))
        if before is not None:
            kept[case] = allocator.rounds == 1 and alike(before, state(model))
            model.zero_grad()
            one_round(model, allocator)  # and everything goes on
            kept[case] &= allocator.rounds == 2

    attempt("loss", spoil=lambda loss: loss * math.nan, after_a_round=True)
    attempt("gradient", spoil=infinite_gradient, after_a_round=True)
    attempt("gradient of a model that was not told of", spoil=infinite_gradient, known=False)
    attempt("hook", lambda: steps_in_place(Net()))
    attempt("hook that hides", lambda: steps(Net()))
    attempt("hook that was not told of", lambda: steps_in_place(Net()), known=False)
    attempt("harmless hook", lambda: looks(Net()))
    attempt("max_norm", lambda: Net(max_norm=0.1))
    model, spoil = thaws(Net())
    attempt("thawed", lambda: model, spoil=spoil)
    attempt("sparse", lambda: Net(sparse=True))

    def other_weights():
        model = Net()
        if name == "b":
            nn.init.normal_(model.last.weight)
        return model

    attempt("weights", other_weights)
    attempt("weights of a model that was not told of", other_weights, known=False)
    attempt("format", lambda: nn.Sequential(nn.Embedding(8, 9), transposed(nn.Linear(9, 9), name == "b")))
    return said, kept


def transposed(layer, really):
    torch.manual_seed(0)
    nn.init.ones_(layer.weight)
    if really:
        layer.weight = nn.Parameter(layer.weight.detach().T.contiguous().T)
    return layer


def test_every_rank_names_the_worker_and_nothing_has_changed():
    (first, kept), (second, kept_too) = on_ranks(2, faults)
    assert first == second
    assert kept == kept_too == {"loss": True, "gradient": True}
    expected = {
        "loss": "FloatingPointError: round 2: the loss of b is not finite",
        "gradient": "FloatingPointError: round 2: the gradient of the parameter rows.weight on b is not finite",
        "gradient of a model that was not told of": "FloatingPointError: round 1: the gradient of the parameter rows.w",
        "hook": "RuntimeError: round 1: the parameter rows.weight was changed inside the round on a",
        "hook that hides": "RuntimeError: round 1: the parameter rows.weight was changed inside the round on a",
        "hook that was not told of": "ValueError: a Net has hooks on its parameters",
        "max_norm": "RuntimeError: round 1: the parameter rows.weight was changed inside the round on a",
        "thawed": "RuntimeError: round 1: the parameter last.weight was changed inside the round on b",
        "sparse": "ValueError: round 1: the gradient of the parameter rows.weight on a is sparse",
        "weights": "RuntimeError: round 1: the models have different weights",
        "weights of a model that was not told of": "RuntimeError: round 1: the models have different weights",
        "format": "RuntimeError: round 1: the ranks train parameters of different shapes, memory formats or dtypes",
    }
    assert first.pop("harmless hook") == ""
    for case, sentence in expected.items():
        assert first.pop(case).startswith(sentence)
    assert not first


def what_is_let_through():
    name, found = "ab"[dist.get_rank()], {}
    allocator, model = TorchAllocator(BUDGET, "uta", name=name, allow_nonfinite=True), Net()
    one_round(model, allocator, spoil=lambda loss: loss * math.nan)
    found["allowed"] = math.isnan(allocator.last.loss) and not model.last.weight.grad.isfinite().any()

    allocator, model, scaler = TorchAllocator(BUDGET, "uta", name=name), Net(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plain = TorchAllocator(BUDGET, "uta", name=name)
    one_round(Net(), plain)
    for overflow in (False, True):
        before = state(model)[0]
        with allocator.round(model) as share:
            for numbers in torch.arange(8).reshape(4, 2)[share.first :][: share.tasks]:
                with share.timed():
                    loss = Overflow.apply(model(numbers).square().mean(), overflow and name == "b")
                    share.backward(loss, scaler=scaler)
            share.reduce(model)
        found["loss", overflow] = allocator.last.loss
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        found["stepped", overflow] = not torch.equal(before, model.rows.weight)
        found["scale", overflow] = scaler.get_scale()
    found["loss"] = plain.last.loss

    model = nn.Linear(2, 2).bfloat16()
    nn.init.ones_(model.weight)
    model.weight.grad_dtype = torch.float32
    allocator = TorchAllocator(1, "uta", name=name)  # of one task, so that one rank has none
    with allocator.round(model) as share:
        for _ in range(share.tasks):
            with share.timed():
                share.backward(model(torch.ones(2, dtype=torch.bfloat16)).sum())
        share.reduce(model)
    found["dtype"] = model.weight.grad.dtype, model.weight.grad.tolist()

    model = nn.Sequential(nn.Embedding(8, 3), nn.Linear(3, 1))
    allocator = TorchAllocator(BUDGET, "uta", name=name)
    one_round(model, allocator)
    model.append(nn.BatchNorm1d(1))
    one_round(model, allocator)
    found["statistics of a layer that came later"] = model[2].running_mean.item()

    orders = [{"seed": dist.get_rank()}, {"samples": 1 + dist.get_rank()}, {}]
    for number, options in enumerate(orders):
        allocator = TorchAllocator(BUDGET, "uta", name=name)
        loader = DataLoader(torch.arange(8), batch_sampler=TaskSampler(allocator, 8, **options))
        found["order", number] = refused(lambda a=allocator, x=loader: one_round(nn.Embedding(8, 3), a, loader=x))
    return found


class Overflow(torch.autograd.Function):
    """The same value, with a gradient that overflows if asked."""

    @staticmethod
    def forward(ctx, loss, overflows):
        ctx.factor = math.inf if overflows else 1.0
        return loss.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


def test_what_is_let_through_and_what_ranks_must_agree_on():
    first, second = on_ranks(2, what_is_let_through)
    assert first == second
    assert first["allowed"]
    assert first["loss", False] == pytest.approx(first["loss"], rel=1e-6)
    assert first["loss", True] < 10.0
    assert (first["stepped", False], first["stepped", True]) == (True, False)
    assert first["scale", True] == first["scale", False] / 2
    assert first["dtype"] == (torch.float32, [[1.0, 1.0], [1.0, 1.0]])
    assert first["statistics of a layer that came later"] != 0.0
    assert first["order", 0] == first["order", 1]
    assert first["order", 0].startswith(
        "RuntimeError: round 1: the ranks follow different orders of samples; b differs from a."
    )
    assert first["order", 2] == ""
