"""A rank that fails inside a round: the others hear of it at once, and who follows the advice of
the error can begin the round again.
"""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from ata_gym.cluster import TaskSampler, TorchAllocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import fixed_shares, refused  # noqa: E402

SHARES = (1, 3, 1)
BUDGET = sum(SHARES)
X = torch.linspace(-1.0, 2.0, 3 * BUDGET, dtype=torch.float64).reshape(BUDGET, 3)


class Counting(nn.Linear):
    """A layer with a buffer that each task changes."""

    def __init__(self):
        super().__init__(3, 1, dtype=torch.float64)
        self.register_buffer("total", torch.zeros(3, dtype=torch.float64))

    def forward(self, x):
        self.total += x.detach().sum(0)
        return super().forward(x)


class Loop:
    """A round of a loop, whose parts the cases replace on the second rank."""

    def __init__(self, allocator=None):
        self.allocator = allocator or fixed_shares(SHARES)
        torch.manual_seed(0)
        self.model = Counting()
        sampler = TaskSampler(self.allocator, BUDGET, shuffle=False)
        self.loader = DataLoader(X, batch_sampler=sampler)

    def loss(self, x):
        return self.model(x).mean()

    def play(self, share):
        for x in share.take(self.loader):
            share.backward(self.loss(x))
        share.reduce()

    def one_round(self, play):
        with self.allocator.round(self.model) as share:
            (play if dist.get_rank() == 1 else Loop.play)(self, share)


def tasks_in_tasks(loop, share):
    for _ in share.take(loop.loader):
        with share.timed():
            pass


def too_many(_loop, share):
    with share.timed(SHARES[1] + 1):
        pass


def outside(loop, share):
    share.backward(loop.loss(X))


def no_scalar(loop, share):
    for x in share.take(loop.loader):
        share.backward(loop.model(x).expand(1, 2))


def weight_in_some(loop, share):
    for number, x in enumerate(share.take(loop.loader)):
        share.backward(loop.loss(x), weight=None if number else 1.0)


def with_weight(weight):
    def play(loop, share):
        for x in share.take(loop.loader):
            share.backward(loop.loss(x), weight=weight)
        share.reduce()

    return play


def too_early(loop, share):
    for x in share.take(loop.loader):
        share.backward(loop.loss(x))
        share.reduce()


def left(loop, share):
    for x in share.take(loop.loader):
        share.backward(loop.loss(x))
        break
    Loop.play(loop, share)


def without_share(loop, share):
    for x in share.take(loop.loader):
        loop.loss(x).backward()
    share.reduce()


def not_reduced(loop, share):
    for x in share.take(loop.loader):
        share.backward(loop.loss(x))


def without_batches(_loop, share):
    for _ in share.take(DataLoader([])):
        pass


def in_the_loop(loop, share):
    for _ in share.take(loop.loader):
        raise ZeroDivisionError("in the loop")


def in_the_loader(loop, share):
    def collate(_samples):
        raise KeyError("no such file")

    sampler = TaskSampler(loop.allocator, BUDGET, shuffle=False)
    for _ in share.take(DataLoader(X, batch_sampler=sampler, collate_fn=collate)):
        pass


def another_round(loop, _share):
    with loop.allocator.round(loop.model):
        pass


CASES = [
    (tasks_in_tasks, "RuntimeError: the tasks of a share are computed one after the other"),
    (too_many, "RuntimeError: this share has 3 tasks, and 0 are done: 4 more"),
    (outside, "RuntimeError: call backward inside the loop over share.take(loader)"),
    (no_scalar, "ValueError: the loss must be a scalar"),
    (weight_in_some, "ValueError: give share.backward a weight in every pass of a round"),
    *(
        (with_weight(weight), "ValueError: weight must be a finite number from 0 on")
        for weight in (-1, float("nan"), torch.tensor(torch.inf), "7", torch.ones(2))
    ),
    (too_early, "RuntimeError: 0 of the 3 tasks of this share are computed: loop over"),
    (left, "RuntimeError: a backward pass failed, or its batch was left before the end"),
    (without_share, "RuntimeError: the gradient has parts of which the share does not know: call"),
    (not_reduced, "RuntimeError: call share.reduce() inside the round, on every rank"),
    (without_batches, "ValueError: the DataLoader has no batches"),
    (in_the_loop, "ZeroDivisionError: in the loop"),
    (in_the_loader, "KeyError: 'no such file'"),
    (another_round, "RuntimeError: a round is open: end it before the next one begins"),
]
"""What the second rank does, and what it says."""


def all_cases():
    """What this rank says in each case, and the gradient of the round that was begun again."""
    answers = []
    for play, _ in CASES:
        loop = Loop()
        message = refused(lambda loop=loop, play=play: loop.one_round(play))
        assert (loop.allocator.rounds, loop.model.weight.grad) == (0, None)
        loop.one_round(Loop.play)
        assert loop.allocator.rounds == 1
        answers.append((message, loop.model.weight.grad.tolist()))
    return answers


def test_the_others_hear_of_an_error_and_all_begin_the_round_again():
    first, second, third = on_ranks(3, all_cases)
    for case, a, b, c in zip(CASES, first, second, third, strict=True):
        _, sentence = case
        assert b[0].startswith(sentence)
        assert a[0] == c[0]
        assert a[0].startswith("RuntimeError: round 1: b failed inside the round; it says why")
        for _, gradient in (a, b, c):
            np.testing.assert_allclose(gradient, [X.mean(0).tolist()], rtol=1e-12)


def interrupted():
    """The second rank is interrupted and begins the round again, of which no other rank hears."""
    loop = Loop()

    def interrupt(loop, share):
        for x in share.take(loop.loader):
            share.backward(loop.loss(x))
            raise KeyboardInterrupt

    if dist.get_rank() == 1:
        with pytest.raises(KeyboardInterrupt), loop.allocator.round(loop.model) as share:
            interrupt(loop, share)
    loop.one_round(Loop.play)
    return loop.allocator.rounds, loop.model.weight.grad.tolist()


def test_an_interrupted_rank_may_begin_the_round_again_alone():
    for rounds, gradient in on_ranks(3, interrupted):
        assert rounds == 1
        np.testing.assert_allclose(gradient, [X.mean(0).tolist()], rtol=1e-12)


def after_the_reduction():
    """The second rank fails when the others have ended the round."""
    loop = Loop()

    def twice(loop, share):
        Loop.play(loop, share)
        share.reduce()

    before = loop.allocator.state_dict()
    model = copy.deepcopy(loop.model.state_dict())
    first = refused(lambda: loop.one_round(twice))
    second = refused(lambda: loop.one_round(Loop.play))
    # The advice is to load the same state on every rank.
    loop.allocator.load_state_dict(before)
    loop.model.load_state_dict(model)
    loop.model.zero_grad()
    loop.one_round(Loop.play)
    gradient = loop.model.weight.grad.tolist()
    return first, second.partition("allocations")[2], loop.allocator.rounds, gradient


def test_a_rank_that_is_a_round_behind_computes_no_samples_twice():
    first, second, third = on_ranks(3, after_the_reduction)
    assert [first[0], second[0], third[0]] == ["", "RuntimeError: a round is reduced once", ""]
    for _, message, rounds, gradient in (first, second, third):
        assert message.startswith(", or for different rounds; b differs from a.")
        assert rounds == 1
        np.testing.assert_allclose(gradient, [X.mean(0).tolist()], rtol=1e-12)


def loads_alone(on_a_mesh):
    """The second rank alone loads a state, and then all do."""
    allocator = None
    if on_a_mesh:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        name = f"w{mesh.get_coordinate()[0]}"
        allocator = TorchAllocator(BUDGET, "uta", mesh=mesh["dp"], name=name)
    loop = Loop(allocator)
    state = loop.allocator.state_dict()
    loop.one_round(Loop.play)
    if dist.get_rank() == 1:
        loop.allocator.load_state_dict(state)
    loop.model.zero_grad()
    text = refused(lambda: loop.one_round(Loop.play))
    loop.allocator.load_state_dict(state)
    loop.one_round(Loop.play)
    return text, loop.allocator.rounds, loop.model.weight.grad.tolist()


@pytest.mark.parametrize("on_a_mesh", [False, True])
def test_a_rank_that_loads_a_state_alone_is_noticed_by_all(on_a_mesh):
    for text, rounds, gradient in on_ranks(4 if on_a_mesh else 3, loads_alone, on_a_mesh):
        assert "the ranks decided on different allocations, or for different rounds" in text
        assert rounds == 1
        np.testing.assert_allclose(gradient, [X.mean(0).tolist()], rtol=1e-12)


class LacksMemory(nn.Sequential):
    def named_parameters(self, *_arguments, **_options):
        raise torch.OutOfMemoryError("memory is lacking")


def refuses_to_begin(bad_model):
    """The second rank has a model with which no round can begin, and then another one."""
    loop = Loop()
    linear = loop.model
    if dist.get_rank() == 1:
        loop.model = bad_model(linear)
    texts = [refused(lambda: loop.one_round(Loop.play)) for _ in range(2)]
    loop.model = linear
    loop.one_round(Loop.play)
    return texts, loop.allocator.rounds, linear.weight.grad.tolist()


def with_sync_batch_norm(linear):
    return nn.Sequential(linear, nn.SyncBatchNorm(1))


@pytest.mark.parametrize(
    ("bad_model", "error"),
    [
        (with_sync_batch_norm, "ValueError: SyncBatchNorm"),
        (LacksMemory, "OutOfMemoryError: memory is lacking"),
    ],
)
def test_a_rank_that_cannot_begin_the_first_round_leaves_no_other_waiting(bad_model, error):
    answers = on_ranks(3, refuses_to_begin, bad_model)
    for rank, (texts, rounds, gradient) in enumerate(answers):
        if rank == 1:
            assert all(text.startswith(error) for text in texts)
        else:
            start = "RuntimeError: round 1: b refuses to begin; it says why itself"
            assert all(text.startswith(start) for text in texts)
        assert rounds == 1
        np.testing.assert_allclose(gradient, [X.mean(0).tolist()], rtol=1e-12)


def refuses_a_later_round():
    """The second rank refuses its model when the others have begun, and then takes the cure."""
    loop = Loop()
    loop.one_round(Loop.play)
    loop.model.zero_grad()
    linear = loop.model
    if dist.get_rank() == 1:
        loop.model = nn.Sequential(linear, nn.SyncBatchNorm(1))
    texts = [refused(lambda: loop.one_round(Loop.play)) for _ in range(2)]
    # Where all refuse alike, each says why.
    for module in [nn.SyncBatchNorm(1), nn.LazyLinear(1)]:
        loop.model = nn.Sequential(linear, module)
        texts.append(refused(lambda: loop.one_round(Loop.play)))
    loop.model = linear
    loop.one_round(Loop.play)
    return texts, loop.allocator.rounds, linear.weight.grad.tolist()


def test_a_rank_that_refuses_its_model_in_a_later_round_leaves_no_other_waiting():
    for rank, (texts, rounds, gradient) in enumerate(on_ranks(3, refuses_a_later_round)):
        start = "RuntimeError: round 2: b failed inside the round; it says why itself"
        assert all(
            text.startswith("ValueError: SyncBatchNorm" if rank == 1 else start)
            for text in texts[:2]
        )
        assert texts[2].startswith("ValueError: SyncBatchNorm")
        assert texts[3].startswith("ValueError: LazyLinear")
        assert rounds == 2
        np.testing.assert_allclose(gradient, [X.mean(0).tolist()], rtol=1e-12)


def one_rank_of_a_mesh_refuses():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    allocator = TorchAllocator(4, "uta", mesh=mesh["dp"], name=f"w{mesh.get_coordinate()[0]}")
    torch.manual_seed(0)
    linear = Counting()
    loader = DataLoader(X, batch_sampler=TaskSampler(allocator, BUDGET, shuffle=False))

    def play(model):
        with allocator.round(model) as share:
            for x in share.take(loader):
                share.backward(model(x).mean())
            share.reduce()

    model = nn.Sequential(linear, nn.SyncBatchNorm(1)) if dist.get_rank() == 3 else linear
    text = refused(lambda: play(model))
    play(linear)
    return text, linear.weight.grad.tolist()


def test_a_rank_of_a_mesh_that_refuses_its_model_leaves_no_other_waiting():
    answers = on_ranks(4, one_rank_of_a_mesh_refuses)
    texts, gradients = zip(*answers, strict=True)
    assert texts == (texts[0],) * 4
    assert "SyncBatchNorm" in texts[0] or "refuses to begin" in texts[0]
    for gradient in gradients:
        np.testing.assert_allclose(gradient, gradients[0], rtol=1e-12)
