"""Rounds whose gradients add up before a step: what else a loop does between them changes nothing,
and ranks that would add to different gradients hear of it.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import fixed_shares, refused, whole  # noqa: E402

SHARES = (1, 3)
BUDGET = sum(SHARES)
RATE = 0.1


def batch(number, place):
    """The inputs of a task, and its weight."""
    generator = torch.Generator().manual_seed(BUDGET * number + place)
    weight = 1.0 + (BUDGET * number + place) % 7
    return torch.randn(3, 4, generator=generator, dtype=torch.float64), weight


def layers(*names):
    torch.manual_seed(0)
    return nn.ModuleDict({name: nn.Linear(4, 4) for name in names}).double()


class OnRanks:
    """What ranks do in rounds."""

    def __init__(self):
        self.allocator = fixed_shares(SHARES)

    def play(self, model, number, loss_of, *, scaler=None, fails=False):
        with self.allocator.round(model) as share:
            for place in range(share.first, share.first + share.tasks):
                with share.timed():
                    x, weight = batch(number, place)
                    share.backward(loss_of(x).square().sum(), weight=weight, scaler=scaler)
            share.reduce()
            if fails:
                raise KeyError("an error of the loop")

    def end(self, model):
        """The gradients are means."""

    def clip(self, model, length):
        nn.utils.clip_grad_norm_(model.parameters(), length)


class Alone:
    """The same by one process without an allocator, which divides by the weights at the end."""

    def __init__(self):
        self.total = 0.0

    def play(self, model, number, loss_of, *, scaler=None, fails=False):
        if fails:
            raise KeyError("an error of the loop")
        for place in range(BUDGET):
            x, weight = batch(number, place)
            loss = loss_of(x).square().sum()
            (loss if scaler is None else scaler.scale(loss)).backward()
            self.total += weight

    def end(self, model):
        self._multiply(model, 1.0 / self.total)
        self.total = 0.0

    def clip(self, model, length):
        total = self.total
        self.end(model)
        nn.utils.clip_grad_norm_(model.parameters(), length)
        self._multiply(model, total)
        self.total = total

    @staticmethod
    def _multiply(model, factor):
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(factor)


def flat(tensors):
    return [number for tensor in tensors for number in whole(tensor).ravel().tolist()]


def gradients(model):
    return flat(p.grad for p in model.parameters() if p.grad is not None)


def end_step(engine, model, optimizer, **options):
    """Step, and return the gradients that the step had."""
    engine.end(model)
    had = gradients(model)
    optimizer.step()
    optimizer.zero_grad(**options)
    return had


def frozen_between(engine):
    """A layer is frozen in the second of three rounds, and one is frozen in the last one."""
    model = layers("first", "second", "third")
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    steps = []
    for number in range(6):
        model["second"].requires_grad_(number % 3 != 1)
        model["third"].requires_grad_(number % 3 != 2)
        engine.play(
            model, number, lambda x: model["third"](model["second"](model["first"](x)).tanh())
        )
        if number % 3 == 2:
            steps.append(end_step(engine, model, optimizer))
    return steps


def reached_early(engine):
    """A layer is used in the first round of each step alone."""
    model = layers("first", "early")
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    steps = []
    for number in range(6):
        early = model["early"] if number % 3 == 0 else nn.Identity()
        engine.play(model, number, lambda x, early=early: early(model["first"](x)))
        if number % 3 == 2:
            steps.append(end_step(engine, model, optimizer))
    return steps


def without_a_layer(engine):
    """The optimizer has the head alone, so that nothing sets the gradients of the other layer to
    None.
    """
    model = layers("body", "head")
    optimizer = torch.optim.SGD(model["head"].parameters(), RATE)
    steps = []
    for number in range(6):
        engine.play(model, number, lambda x: model["head"](model["body"](x).tanh()))
        if number % 2 == 1:
            engine.end(model["head"])
            steps.append(gradients(model["head"]))
            optimizer.step()
            optimizer.zero_grad()
    return steps


def in_turn(engine):
    """A critic has several steps for each one of a generator, whose gradients stay meanwhile."""
    model = layers("critic", "generator")
    optimizers = {name: torch.optim.SGD(part.parameters(), RATE) for name, part in model.items()}
    steps = []
    names = ["critic", "critic", "generator", "critic", "critic", "critic", "generator", "critic"]
    for number, name in enumerate(names):
        optimizers[name].zero_grad()
        engine.play(model, number, model[name])
        engine.end(model[name])
        steps.append(gradients(model[name]))
        optimizers[name].step()
    return steps


def skipped_by_a_scaler(engine):
    """The gradient of the second step overflows, so that it is left out."""
    model = layers("first")
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    steps = []
    for number in range(6):
        factor = torch.inf if number == 2 else 1.0

        def outputs(x, factor=factor):
            y = model["first"](x)
            y.register_hook(lambda gradient: gradient * factor)
            return y

        engine.play(model, number, outputs, scaler=scaler)
        if number % 2 == 1:
            engine.end(model)
            steps.append([*flat(model.parameters()), scaler.get_scale()])
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=number == 1)
    return steps


def clipped_and_failed(engine):
    """Gradients are clipped between rounds, and a round of the middle fails."""
    model = layers("first")
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    steps = []
    for number in range(6):
        with pytest.raises(KeyError):
            engine.play(model, number, model["first"], fails=True)
        engine.play(model, number, model["first"])
        engine.clip(model, 1.0)
        if number % 3 == 2:
            steps.append(end_step(engine, model, optimizer, set_to_none=False))
    return steps


LOOPS = (
    frozen_between,
    reached_early,
    without_a_layer,
    in_turn,
    skipped_by_a_scaler,
    clipped_and_failed,
)


def all_loops():
    return [loop(OnRanks()) for loop in LOOPS]


def test_what_a_loop_does_between_rounds_leaves_the_mean_of_one_process():
    expected = [loop(Alone()) for loop in LOOPS]
    for rank in on_ranks(2, all_loops):
        for loop, steps, right in zip(LOOPS, rank, expected, strict=True):
            for step, right_step in zip(steps, right, strict=True):
                np.testing.assert_allclose(
                    step, right_step, rtol=1e-12, atol=1e-13, err_msg=loop.__name__
                )


def one_round(allocator, model, weight, scale=1.0):
    with allocator.round(model) as share:
        with share.timed(share.tasks):
            loss = scale * share.tasks * model(torch.ones(1, 4).double()).sum()
            if weight is None:
                loss = loss / share.tasks
            share.backward(loss, weight=None if weight is None else weight * share.tasks)
        share.reduce()


def sharded_with_zeros():
    """The gradients of a model, of which the part of one rank is 0 and was written to."""
    torch.manual_seed(0)
    model = nn.Linear(4, 4, bias=False).double()
    plain = nn.Linear(4, 4, bias=False).double()
    plain.load_state_dict(model.state_dict())
    sharded = fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    allocator = fixed_shares(SHARES)
    total = 0.0
    for number in range(3):
        with allocator.round(sharded) as share:
            for place in range(share.first, share.first + share.tasks):
                with share.timed():
                    x, weight = batch(number, place)
                    share.backward(sharded(x)[:, :2].square().sum(), weight=weight)
            share.reduce()
        for parameter in sharded.parameters():
            parameter.grad.mul_(0.5)
        for place in range(BUDGET):
            x, weight = batch(number, place)
            plain(x)[:, :2].square().sum().backward()
            total += weight
        plain.weight.grad.mul_(0.5)
    return whole(sharded.weight.grad), (plain.weight.grad / total).numpy()


def test_a_rank_whose_part_of_a_gradient_is_zero_adds_to_the_same_mean():
    for gradient, expected in on_ranks(2, sharded_with_zeros):
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-14)


def gradients_that_differ():
    """What is said where one rank alone has set its gradients to None, or has stepped; then the
    gradient of a step that follows the advice.
    """
    answers = []
    for weight in (None, 2.0):
        for change in ("None", "zeros", "step"):
            model = layers("first")["first"]
            optimizer = torch.optim.SGD(model.parameters(), 0.0)
            allocator = fixed_shares(SHARES)
            one_round(allocator, model, weight)
            if dist.get_rank() == 1:
                if change == "step":
                    optimizer.step()
                else:
                    optimizer.zero_grad(set_to_none=change == "None")
            kept = gradients(model)
            message = refused(lambda a=allocator, m=model, w=weight: one_round(a, m, w))
            assert gradients(model) == kept
            model.zero_grad()
            for _ in range(2):
                one_round(allocator, model, weight)
            answers.append((message, allocator.rounds, model.weight.grad.tolist()))
    return answers


def test_ranks_with_gradients_of_different_rounds_are_refused_and_the_advice_works():
    first, second = on_ranks(2, gradients_that_differ)
    assert first == second
    for place, (message, rounds, gradient) in enumerate(first):
        assert message.startswith(
            "RuntimeError: round 2: the models have gradients of different earlier rounds; b"
            " differs from a. The step is not taken. Set all gradients to None on every rank"
        )
        assert rounds == 3
        np.testing.assert_allclose(gradient, np.full((4, 4), 2.0 if place < 3 else 0.5))


def some_with_weights():
    """A round with weights after one without."""
    model = layers("first")["first"]
    allocator = fixed_shares(SHARES)
    one_round(allocator, model, None)
    message = refused(lambda: one_round(allocator, model, 2.0))
    # The advice is to set the gradients to None after each step.
    model.zero_grad()
    one_round(allocator, model, 2.0)
    return message, model.weight.grad.tolist()


def test_rounds_without_weights_and_with_them_have_no_mean():
    first, second = on_ranks(2, some_with_weights)
    assert first == second
    message, gradient = first
    assert message.startswith(
        "ValueError: round 2: its losses have weights, and losses of earlier rounds, whose"
        " gradients the model still has, have no weights. The step is not taken. Give weight=... in"
        " every"
    )
    np.testing.assert_allclose(gradient, np.full((4, 4), 0.5))
