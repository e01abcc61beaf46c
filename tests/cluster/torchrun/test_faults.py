"""What is wrong with one rank's part of a round is said by every rank, with the worker's name, before any step."""

import math

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from ata_gym.cluster import TaskSampler, TorchAllocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import refused  # noqa: E402


class Net(nn.Module):
    """With running statistics, and rows that are looked up; a hook may see each gradient."""

    def __init__(self, hook=None, **embedding):
        super().__init__()
        torch.manual_seed(0)
        self.rows, self.norm, self.last = nn.Embedding(8, 3, **embedding), nn.BatchNorm1d(3), nn.Linear(3, 1)
        for parameter in self.parameters() if hook else ():
            parameter.register_post_accumulate_grad_hook(hook)

    def forward(self, numbers):
        return self.last(self.norm(self.rows(numbers)))


class Overflow(torch.autograd.Function):
    """The same value, with a gradient that overflows if asked."""

    @staticmethod
    def forward(ctx, loss, overflows):
        ctx.factor = math.inf if overflows else 1.0
        return loss.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


def allocator_of(budget=4, **options):
    return TorchAllocator(budget, "uta", name="ab"[dist.get_rank()], **options)


def one_round(model, allocator, *, spoil=None, loader=None, **how):
    """A round, each of whose tasks has two samples, with ``spoil`` of the loss on the second rank."""
    with allocator.round(model) as share:
        for numbers in (
            share.take(loader) if loader is not None else torch.arange(8).reshape(4, 2)[share.first :][: share.tasks]
        ):
            with share.timed() if loader is None else torch.enable_grad():
                loss = model(numbers).square().mean()
                share.backward(spoil(loss) if spoil and dist.get_rank() == 1 else loss, **how)
        share.reduce()


def state(model):
    """Weights, gradients and buffers."""
    tensors = [*model.parameters(), *(one.grad for one in model.parameters() if one.grad is not None)]
    return [tensor.detach().clone() for tensor in (*tensors, *(b for b in model.buffers() if b.is_floating_point()))]


def steps(parameter):
    """As an optimiser that steps in a hook."""
    with torch.no_grad():
        parameter.sub_(0.1 * parameter.grad)


def steps_unseen(parameter):
    """The same, but unseen by the version."""
    parameter.data = parameter.data - 0.1 * parameter.grad
    parameter.grad = None


def looks(parameter):
    parameter.grad.norm()


def thawed():
    model = Net()
    model.last.requires_grad_(False)
    return model, lambda loss: (model.last.requires_grad_(True), loss)[1]


def other_on_b(model, change):
    if dist.get_rank() == 1:
        change(model)
    return model


def transpose(layer):
    layer.weight = nn.Parameter(layer.weight.detach().T.contiguous().T)


def faults():
    """What each set-up is refused with on this rank, and whether anything has changed then."""
    said, unchanged = {}, []
    spoils = {"loss": lambda loss: loss * math.nan, "gradient": lambda loss: Overflow.apply(loss, True)}
    for case, spoil in spoils.items():
        model, allocator = Net(), allocator_of()
        one_round(model, allocator)
        before = state(model)
        said[case] = refused(lambda m=model, a=allocator, s=spoil: one_round(m, a, spoil=s))
        unchanged.append(allocator.rounds == 1 and all(map(torch.equal, before, state(model))))
        model.zero_grad()
        one_round(model, allocator)  # and everything goes on
        unchanged.append(allocator.rounds == 2)
    models = {
        "hook": (Net(steps), None),
        "hook that hides": (Net(steps_unseen), None),
        "harmless hook": (Net(looks), None),
        "max_norm": (Net(max_norm=0.1), None),
        "thawed": thawed(),
        "sparse": (Net(sparse=True), None),
        "weights": (other_on_b(Net(), lambda model: nn.init.normal_(model.last.weight)), None),
        "format": (nn.Sequential(nn.Embedding(8, 9), other_on_b(nn.Linear(9, 9), transpose)), None),
    }
    for case, (model, spoil) in models.items():
        said[case] = refused(lambda m=model, s=spoil: one_round(m, allocator_of(), spoil=s))
    orders = ({"seed": dist.get_rank()}, {"samples": 1 + dist.get_rank()}, {})
    for options in orders:
        torch.manual_seed(0)
        allocator, model = allocator_of(), nn.Embedding(8, 3)
        loader = DataLoader(torch.arange(8), batch_sampler=TaskSampler(allocator, 8, **options))
        said[f"order {len(said)}"] = refused(lambda m=model, a=allocator, x=loader: one_round(m, a, loader=x))
    return said, unchanged


def test_every_rank_names_the_worker_and_nothing_has_changed():
    (first, unchanged), (second, unchanged_too) = on_ranks(2, faults)
    assert first == second
    assert unchanged == unchanged_too == [True] * 4
    changed = "RuntimeError: round 1: the parameter {} was changed inside the round on {}"
    order = "RuntimeError: round 1: the ranks follow different orders of samples; b differs from a."
    expected = {
        "loss": "FloatingPointError: round 2: the loss of b is not finite",
        "gradient": "FloatingPointError: round 2: the gradient of the parameter rows.weight on b is not finite",
        "hook": changed.format("rows.weight", "a"),
        "hook that hides": changed.format("rows.weight", "a"),
        "max_norm": changed.format("rows.weight", "a"),
        "thawed": changed.format("last.weight", "b"),
        "sparse": "ValueError: round 1: the gradient of the parameter rows.weight on a is sparse",
        "weights": "RuntimeError: round 1: the models have different weights",
        "format": "RuntimeError: round 1: the ranks train parameters of different shapes, memory formats or dtypes",
        "order 10": order,
        "order 11": order,
    }
    assert first.pop("harmless hook") == first.pop("order 12") == ""
    for case, sentence in expected.items():
        assert first.pop(case).startswith(sentence)
    assert not first


def what_is_let_through():
    found = {}
    allocator, model = allocator_of(allow_nonfinite=True), Net()
    one_round(model, allocator, spoil=lambda loss: loss * math.nan)
    found["allowed"] = math.isnan(allocator.last.loss) and not model.last.weight.grad.isfinite().any()

    plain, allocator, model, scaler = allocator_of(), allocator_of(), Net(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one_round(Net(), plain)
    found["loss"] = plain.last.loss
    for overflow in (False, True):
        before = state(model)[0]
        one_round(model, allocator, spoil=lambda loss, o=overflow: Overflow.apply(loss, o), scaler=scaler)
        found["loss", overflow] = allocator.last.loss
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        found["stepped", overflow] = not torch.equal(before, model.rows.weight)
        found["scale", overflow] = scaler.get_scale()

    model, allocator = nn.Linear(2, 2).bfloat16(), allocator_of(budget=1)  # of one task, so that one rank has none
    nn.init.ones_(model.weight)
    model.weight.grad_dtype = torch.float32
    with allocator.round(model) as share:
        for _ in range(share.tasks):
            with share.timed():
                share.backward(model(torch.ones(2, dtype=torch.bfloat16)).sum())
        share.reduce()
    found["dtype"] = model.weight.grad.dtype, model.weight.grad.tolist()

    model, allocator = nn.Sequential(nn.Embedding(8, 3), nn.Linear(3, 1)), allocator_of()
    one_round(model, allocator)
    model.append(nn.BatchNorm1d(1))
    one_round(model, allocator)
    found["statistics of a layer that came later"] = model[2].running_mean.item()
    return found


def test_what_is_let_through():
    first, second = on_ranks(2, what_is_let_through)
    assert first == second
    assert first["allowed"]
    assert first["loss", False] == pytest.approx(first["loss"], rel=1e-6)
    assert first["loss", True] < 10.0
    assert (first["stepped", False], first["stepped", True]) == (True, False)
    assert first["scale", True] == first["scale", False] / 2
    assert first["dtype"] == (torch.float32, [[1.0, 1.0], [1.0, 1.0]])
    assert first["statistics of a layer that came later"] != 0.0
