"""Rounds of a process group: agreement, membership, restarts, and what a mistake says."""

import json
import re
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

from ata_gym.cluster import TaskSampler, TorchAllocator  # noqa: E402
from ata_gym.cluster.torchrun import torch_allocator  # noqa: E402
from ata_policies.allocator.state import sealed  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import compute, data  # noqa: E402


def play(allocator, rounds):
    """Rounds without a model; the share of this rank in each."""
    shares = []
    for _ in range(rounds):
        with allocator.round() as share:
            for _ in range(share.tasks):
                with share.timed():
                    share.backward(torch.ones((), requires_grad=True))
            share.reduce()
        shares.append(share.tasks)
    return shares


def coming_and_going():
    import torch.distributed as dist

    rank = dist.get_rank()
    allocator = TorchAllocator(6, "uta", name="abc"[rank])
    seen = []
    for number in range(5):
        if rank == 1 and number == 1:
            allocator.leave()
        if rank == 1 and number == 3:
            allocator.join()
        play(allocator, 1)
        seen.append((allocator.last.tasks["b"], "b" in allocator.last.away))
    return seen, str(allocator.last)


def test_a_rank_that_leaves_gets_no_tasks_until_it_joins():
    (first, line), (second, other) = on_ranks(2, coming_and_going)
    assert first == second == [(3, False), (3, False), (0, True), (0, True), (3, False)]
    assert line.partition(";")[2] == other.partition(";")[2]
    assert re.fullmatch(r"round 5: .* s, waited for [ab],.* loss 1; a 3 in .* s.*, b 3 in .* s.*", line)


def all_leave():
    allocator = TorchAllocator(2, "uta")
    allocator.leave()
    play(allocator, 2)


def test_nobody_there_is_said_by_every_rank():
    with pytest.raises(RuntimeError, match="no worker is there"):
        on_ranks(2, all_leave)


def disagreeing():
    import torch.distributed as dist

    allocator = TorchAllocator(4, "certainty-equivalence", check_every=1)
    if dist.get_rank():
        state = allocator.state_dict()
        slower = json.loads(json.dumps(state["allocator"]).replace("0.0", "1.5"))
        allocator._allocator.load_state_dict(sealed({key: slower[key] for key in slower if key != "checksum"}))
    model = nn.Linear(1, 1)
    before = model.weight.item()
    try:
        play(allocator, 1)
    except RuntimeError as error:
        return str(error), allocator.rounds, model.weight.item() == before
    return "", allocator.rounds, False


def test_a_checksum_finds_ranks_that_decide_differently():
    for said, rounds, same in on_ranks(2, disagreeing):
        assert "round 1: the ranks decided on different allocations" in said
        assert rounds == 0
        assert same


@pytest.mark.parametrize(
    ("budgets", "names", "sentence"),
    [
        ((4, 5), (None, None), "budget must be the same on every rank: it is 4 on .*/0 and 5 on .*/1"),
        ((4, 4), ("gpu", "gpu"), r"each rank needs a worker's name of its own, and \['gpu'\] stand for several"),
    ],
)
def test_ranks_must_agree_on_what_they_are(budgets, names, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        on_ranks(2, made_of_each, budgets, names)


def made_of_each(budgets, names):
    rank = torch.distributed.get_rank()
    TorchAllocator(budgets[rank], name=names[rank])


class Told:
    """A stopwatch that says a worker's time, so that no other work on the machine matters."""

    def __init__(self, seconds):
        self._seconds = seconds

    def mark(self):
        return 0.0

    def seconds(self, start, end):
        return self._seconds


def with_names(names, state, rounds):
    import torch.distributed as dist

    name = names[dist.get_rank()]
    allocator = TorchAllocator(9, "certainty-equivalence", name=name, warm_up=0)
    if state is not None:
        allocator.load_state_dict(state)
    watch = Told({"a": 4.0, "b": 1.0, "c": 2.0, "d": 1.0}[name])
    with mock.patch.object(torch_allocator, "Stopwatch", return_value=watch):
        play(allocator, rounds)
    return allocator.last.tasks, allocator.rounds, allocator.state_dict()


def test_beliefs_follow_the_name_through_a_restart_with_other_ranks():
    (_, rounds, state), *_ = on_ranks(3, with_names, "abc", None, 5)
    assert rounds == 5
    state = json.loads(json.dumps(state))
    tasks, rounds, _ = on_ranks(2, with_names, "ba", state, 1)[0]  # in another order, and one is gone
    assert rounds == 6
    assert tasks == {"b": 7, "a": 2}
    tasks, rounds, _ = on_ranks(4, with_names, "dcba", state, 3)[0]
    assert rounds == 8
    assert tasks == {"a": 1, "b": 4, "c": 1, "d": 3}


@pytest.mark.usefixtures("alone")
def test_an_error_leaves_the_round_to_be_done_again():
    allocator, pairs = TorchAllocator(3), data()
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs))
    seen = []

    def interrupted():
        with allocator.round() as share:
            for x, _ in share.take(loader):
                seen.append(x)
                if len(seen) == 2:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert allocator.rounds == 0
    assert allocator.last is None
    model = nn.Linear(5, 1)
    with allocator.round() as share:
        again = []
        for x, _ in share.take(loader):
            again.append(x)
            share.backward(model(x).sum())
        share.reduce(model)
    assert torch.equal(torch.cat(again)[:2], torch.cat(seen))
    assert (allocator.rounds, len(again)) == (1, 3)


@pytest.mark.usefixtures("alone")
def test_an_error_leaves_the_gradients_of_before():
    allocator, pairs, model = TorchAllocator(3), data(), nn.Linear(5, 1)
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs))

    def one_round(most, *, known=(model,), fails=False):
        with allocator.round(*known) as share:
            for done, (x, _) in enumerate(share.take(loader)):
                if done == most:
                    raise KeyboardInterrupt
                share.backward(model(x).sum())
            share.reduce(model)
            if fails:
                raise KeyboardInterrupt

    one_round(3)
    first = model.weight.grad.clone()
    with pytest.raises(KeyboardInterrupt):
        one_round(2)
    assert torch.equal(model.weight.grad, first)
    model.zero_grad()
    with pytest.raises(KeyboardInterrupt):
        one_round(2)
    assert model.weight.grad is None
    one_round(3)
    samples = torch.tensor(TaskSampler(allocator, pairs).samples_from(3, 3))
    second = model.weight.grad.clone()
    for known in ([model], []):
        with pytest.raises(KeyboardInterrupt):
            one_round(3, known=known, fails=True)
        assert torch.equal(model.weight.grad, second)
    torch.testing.assert_close(model.weight.grad[0], pairs.tensors[0][samples].mean(0))


@pytest.mark.usefixtures("alone")
def test_warm_up_rounds_teach_nothing():
    allocator = TorchAllocator(3, "certainty-equivalence", name="w", warm_up=2)
    play(allocator, 2)
    assert not allocator._allocator.expected_times()
    play(allocator, 2)
    assert allocator.last.estimates.keys() == {"w"}


class Endless(IterableDataset):
    def __iter__(self):
        yield from (torch.full((1,), float(number)) for number in range(4))


@pytest.mark.usefixtures("alone")
def test_another_loader_goes_on_where_it_stopped_and_starts_over():
    allocator, loader, seen = TorchAllocator(3), DataLoader(Endless(), batch_size=1), []
    for _ in range(2):
        with allocator.round() as share:
            seen += compute(share, loader)
            share.reduce()
    assert torch.cat(seen).flatten().tolist() == [0, 1, 2, 3, 0, 1]


def stop_early(share, loader):
    for _ in share.take(loader):
        share.backward(torch.ones((), requires_grad=True))
        break
    share.reduce()


def sparse(share, loader):
    model = nn.Embedding(3, 1, sparse=True)
    for _ in share.take(loader):
        share.backward(model(torch.tensor([1])).sum())
    share.reduce(model)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (stop_early, "of the 3 tasks of this share are computed"),
        (lambda share, loader: (list(share.take(loader)), share.reduce()), r"call share.backward\(loss\)"),
        (compute, "call share.reduce"),
        (lambda share, _: share.backward(torch.ones((), requires_grad=True)), "inside the loop"),
        (lambda share, loader: [share.backward(x * torch.ones((), requires_grad=True)) for x, _ in share.take(loader)],
         "must be a scalar"),
        (lambda share, _: share.timed(4).__enter__(), "has 3 tasks, and 0 are done: 4 more"),
        (lambda share, loader: (compute(share, loader), share.reduce(), share.reduce()), "reduced once"),
        (sparse, "sparse"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("alone")
def test_a_mistake_gets_a_sentence_and_the_round_can_be_repeated(mistake, sentence):
    allocator, pairs = TorchAllocator(3), data()
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs))
    with pytest.raises((RuntimeError, ValueError), match=sentence), allocator.round() as share:
        mistake(share, loader)
    assert play(allocator, 1) == [3]
    assert allocator.rounds == 1


@pytest.mark.usefixtures("alone")
def test_outside_a_round_there_is_no_share_and_inside_no_state():
    allocator, pairs = TorchAllocator(3), data()
    with pytest.raises(RuntimeError, match="no round is open"):
        next(iter(DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs))))
    state = allocator.state_dict()
    with allocator.round() as share:
        for change in (allocator.state_dict, lambda: allocator.load_state_dict(state), allocator.round().__enter__):
            with pytest.raises(RuntimeError, match="a round is open"):
                change()
        with share.timed(3):
            share.backward(torch.ones((), requires_grad=True))
        share.reduce()
    for wrong in ({}, {"rounds": -1, "allocator": state["allocator"]}, TorchAllocator(4).state_dict()):
        with pytest.raises(ValueError, match="this is no state of"):
            allocator.load_state_dict(wrong)


def test_without_a_process_group_the_error_says_how_to_get_one():
    with pytest.raises(RuntimeError, match="start the script with torchrun"):
        TorchAllocator(3)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("group", [3.0, "data", torch.distributed.GroupMember.NON_GROUP_MEMBER])
def test_a_group_that_is_none_is_refused(group):
    with pytest.raises(ValueError, match="group must be None, or a process group that this rank is in"):
        TorchAllocator(3, group=group)


@pytest.mark.gpu
@pytest.mark.usefixtures("alone")
def test_times_on_cuda_are_those_of_the_device():
    allocator = TorchAllocator(2, device="cuda", warm_up=0)
    matrix = torch.ones(4096, 4096, device="cuda", requires_grad=True)
    for _ in range(3):
        with allocator.round() as share:
            for _ in range(2):
                with share.timed():
                    share.backward((matrix @ matrix).sum())
            share.reduce()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    (matrix @ matrix).sum().backward()
    end.record()
    end.synchronize()
    (times,) = allocator.last.seconds.values()
    assert min(times) > 0.2 * start.elapsed_time(end) / 1000  # launching takes microseconds, the product milliseconds
