"""Rounds of a process group: agreement, membership, restarts, and what a mistake says."""

import contextlib
import json
import re
from types import SimpleNamespace
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed import checkpoint  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from ata_gym.cluster import TaskSampler, TorchAllocator  # noqa: E402
from ata_gym.cluster.torchrun import torch_allocator  # noqa: E402
from ata_policies.allocator.state import sealed  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import backward, compute, data, refused  # noqa: E402

NOTHING = nn.Identity()  # a model without parameters, where a test looks at tasks and times alone


def play(allocator, rounds):
    shares = []
    for _ in range(rounds):
        with allocator.round(NOTHING) as share:
            for _ in range(share.tasks):
                with share.timed():
                    backward(share)
            share.reduce()
        shares.append(share.tasks)
    return shares


def membership():
    """Two ranks, where one leaves and joins, all leave, or the ranks differ in what must be the
    same.
    """
    rank = dist.get_rank()
    allocator = TorchAllocator(6, "uta", name="abc"[rank])
    for number, away in enumerate((False, False, True, True, False)):
        if rank == 1 and number == 1:
            allocator.leave()
        if rank == 1 and number == 3:
            allocator.join()
        play(allocator, 1)
        assert (allocator.last.tasks["b"], "b" in allocator.last.away) == (0 if away else 3, away)
    allocator.leave()
    assert "Error: no worker is there" in refused(lambda: play(allocator, 2))
    assert re.match(
        r"round 6: .* s, waited for [ab],.* loss 1; a 3 in .* s.*, b 3 in .* s.*",
        str(allocator.last),
    )

    other = TorchAllocator(4, "certainty-equivalence", check_every=1)
    if rank:
        state = other.state_dict()
        slower = json.loads(json.dumps(state["allocator"]).replace("0.0", "1.5"))
        other._allocator.load_state_dict(
            sealed({key: slower[key] for key in slower if key != "checksum"}),
        )
    assert "RuntimeError: round 1: the ranks decided on different allocations" in refused(
        lambda: play(other, 1),
    )
    assert other.rounds == 0
    budgets = refused(lambda: TorchAllocator(4 + rank))
    names = refused(lambda: TorchAllocator(4, name="gpu"))
    assert re.match(
        "ValueError: budget must be the same on every rank: it is 4 on .*/0 and 5 on .*/1",
        budgets,
    )
    assert names.startswith(
        "ValueError: each rank needs a worker's name of its own, and ['gpu'] stand for several",
    )
    return str(allocator.last).partition(";")[2]


def test_a_rank_gets_no_tasks_while_it_is_away_and_ranks_must_agree():
    first, second = on_ranks(2, membership)
    assert first == second


def with_names(names, state, rounds):
    name = names[dist.get_rank()]
    allocator = TorchAllocator(9, "certainty-equivalence", name=name, warm_up=0)
    if state is not None:
        allocator.load_state_dict(state)
    seconds = {"a": 4.0, "b": 1.0, "c": 2.0, "d": 1.0}[name]  # whatever else the machine does
    play_by_a_clock(allocator, rounds, seconds)
    return allocator.last.tasks, allocator.rounds, allocator.state_dict()


def test_beliefs_follow_the_name_through_a_restart_with_other_ranks():
    (_, rounds, state), *_ = on_ranks(3, with_names, "abc", None, 5)
    assert rounds == 5
    state = json.loads(json.dumps(state))
    # in another order, and one is gone
    tasks, rounds, _ = on_ranks(2, with_names, "ba", state, 1)[0]
    assert (rounds, tasks) == (6, {"b": 7, "a": 2})
    tasks, rounds, _ = on_ranks(3, with_names, "dba", state, 3)[0]
    assert (rounds, tasks) == (8, {"a": 1, "b": 4, "d": 4})


def play_by_a_clock(allocator, rounds, seconds, *, before=0.0, after=0.0, first=0.0):
    """The round times of this rank by a clock that tasks and what is before and after them move.

    The first task takes longer.
    """
    clock = [0.0]
    times = []
    watch = SimpleNamespace(mark=lambda: clock[0], seconds=lambda start, end: end - start)
    with mock.patch.object(torch_allocator, "Stopwatch", return_value=watch):
        for _ in range(rounds):
            start = clock[0]
            with allocator.round(NOTHING) as share:
                if share.tasks:
                    clock[0] += before
                for _ in range(share.tasks):
                    with share.timed():
                        clock[0] += seconds + first
                        first = 0.0
                        backward(share)
                if share.tasks:
                    clock[0] += after
                share.reduce()
            times.append(clock[0] - start)
    return times


STARTS = (0.03, 0.0, 0.012)
TASKS = (0.002, 0.004, 0.003)


def with_start_up_costs(policy, rounds):
    rank = dist.get_rank()
    allocator = TorchAllocator(24, policy, name="abc"[rank])
    start = STARTS[rank]
    times = play_by_a_clock(
        allocator, rounds, TASKS[rank], before=0.75 * start, after=0.25 * start, first=1.0
    )
    return times, allocator.last


@pytest.mark.parametrize("policy", ["default", "certainty-equivalence"])
def test_ranks_with_a_start_up_cost_and_a_slow_first_task_soon_have_the_best_split(policy):
    answers = on_ranks(3, with_start_up_costs, policy, 40)
    splits = [(a, b, 24 - a - b) for a in range(25) for b in range(25 - a)]
    best = min(
        max((c + x * a) for c, a, x in zip(STARTS, TASKS, split, strict=True) if x)
        for split in splits
    )
    steps = [max(ranks) for ranks in zip(*(times for times, _ in answers), strict=True)]
    # each rank has had its slow task and its warm-up by then
    assert sum(steps[10:]) <= 1.05 * 30 * best
    record = answers[0][1]
    assert record.latency == pytest.approx(
        {name: c for name, c in zip("abc", STARTS, strict=True) if record.tasks[name]}, abs=1e-6
    )
    for name, task in zip("abc", TASKS, strict=True):
        assert record.seconds.get(name, ()) == pytest.approx([task] * record.tasks[name])
    assert record.busy[record.waited_for] == pytest.approx(steps[-1])


@pytest.mark.usefixtures("alone")
def test_latency_and_task_times_of_a_share_are_all_of_its_time():
    clock = [0.0]

    def work(seconds):
        clock[0] += seconds

    allocator = TorchAllocator(3, "uta", name="a", warm_up=0)
    watch = SimpleNamespace(mark=lambda: clock[0], seconds=lambda start, end: end - start)
    patch = mock.patch.object(torch_allocator, "Stopwatch", return_value=watch)
    with patch, allocator.round(NOTHING) as share:
        assert share.latency() == 0.0
        work(4.0)
        with share.timed():
            work(1.0)
            backward(share)
        work(0.5)  # what is done between two tasks is done for each task
        with share.timed(2):
            work(2.0)
            backward(share)
        assert share.latency() == 4.0
        work(8.0)
        reduce = share._reduce
        share._reduce = lambda: (work(100.0), reduce())  # others are waited for
        share.reduce()
    assert allocator.last.seconds == {"a": (1.0, 1.25, 1.25)}
    assert allocator.last.latency == {"a": 12.0}


def one_round_by_a_clock(ends):
    """A round in which this rank computes until its own of the moments ``ends``, and the sum is
    there at 3.5.
    """
    rank = dist.get_rank()
    clock = [0.0]
    allocator = TorchAllocator(2, "uta", name="ab"[rank], warm_up=0)
    watch = SimpleNamespace(mark=lambda: clock[0], seconds=lambda start, end: end - start)
    with (
        mock.patch.object(torch_allocator, "Stopwatch", return_value=watch),
        allocator.round(NOTHING) as share,
    ):
        with share.timed():
            clock[0] = ends[rank]
            backward(share)
        reduce = share._reduce
        share._reduce = lambda: (reduce(), clock.__setitem__(0, 3.5))
        share.reduce()
    return allocator.last.communication, allocator.last.round_time, allocator.last.seconds


def test_the_time_that_a_rank_waited_for_others_is_no_communication():
    assert (
        on_ranks(2, one_round_by_a_clock, [1.0, 3.0])
        == [(0.5, 3.5, {"a": (1.0,), "b": (3.0,)})] * 2
    )


def distributed_checkpoint(folder, saves):
    allocator = TorchAllocator(9, "certainty-equivalence", name="abc"[dist.get_rank()], warm_up=0)
    torch.manual_seed(int(saves))  # the ranks have the same weights, since any may save them
    model = nn.Linear(2, 1)
    state = {"allocator": allocator, "model": model.state_dict()}
    if saves:
        play(allocator, 4)
        checkpoint.save(state, checkpoint_id=folder)
    else:
        checkpoint.load(state, checkpoint_id=folder)
    return allocator.rounds, model.weight.tolist(), set(allocator._allocator.expected_times())


def test_a_distributed_checkpoint_of_two_ranks_is_loaded_by_three(tmp_path):
    (rounds, weight, _), _ = on_ranks(2, distributed_checkpoint, tmp_path, True)
    assert rounds == 4
    for loaded in on_ranks(3, distributed_checkpoint, tmp_path, False):
        assert loaded == (4, weight, {"a", "b"})


@pytest.mark.usefixtures("alone")
def test_an_error_leaves_the_gradients_of_before_and_the_round_to_be_done_again():
    allocator = TorchAllocator(3)
    pairs = data()
    model = nn.Linear(12, 1)
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs))

    def one_round(most=3, *, fails=False):
        with allocator.round(model) as share:
            for done, (x, _) in enumerate(share.take(loader)):
                if done == most:
                    raise KeyboardInterrupt
                share.backward(model(x).sum())
            share.reduce()
            if fails:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one_round(2)
    assert (allocator.rounds, allocator.last, model.weight.grad) == (0, None, None)
    one_round()
    first = model.weight.grad.clone()
    samples = torch.tensor(TaskSampler(allocator, pairs).samples_from(0, 6))
    torch.testing.assert_close(first[0], pairs.tensors[0][samples[:3]].mean(0))
    for arguments in ({"most": 2}, {"fails": True}):
        with pytest.raises(KeyboardInterrupt):
            one_round(**arguments)
        assert torch.equal(model.weight.grad, first)
    one_round()
    torch.testing.assert_close(model.weight.grad[0], 2 * pairs.tensors[0][samples].mean(0))
    assert allocator.rounds == 2


@pytest.mark.usefixtures("alone")
def test_warm_up_rounds_teach_nothing():
    allocator = TorchAllocator(3, "certainty-equivalence", name="w", warm_up=2)
    play(allocator, 2)
    assert not allocator._allocator.expected_times()
    play(allocator, 2)
    assert allocator.last.estimates.keys() == {"w"}
    with pytest.raises(ValueError, match="warm_up must be a whole number from 0"):
        TorchAllocator(3, warm_up=-1)


def slow_first_tasks(warm_up, policy="default"):
    """Rounds by a clock, in which the first tasks of each rank after its start take 1 s longer:
    first its process starts, then the fastest rank leaves and comes back, and then a state is
    loaded.

    After each, the tasks of the ranks in the last of the rounds, the round times of the last four,
    in seconds of work, and the estimates of the task times.
    """
    rank = dist.get_rank()
    seconds = (0.02, 0.02, 0.005)[rank]
    clock = [0.0]
    worked = [0]  # the rounds since the start
    allocator = TorchAllocator(2, policy, name="abc"[rank], warm_up=warm_up)
    watch = SimpleNamespace(mark=lambda: clock[0], seconds=lambda start, end: end - start)
    seen = []

    def rounds(number):
        times = []
        for _ in range(number):
            with allocator.round(NOTHING) as share:
                for _ in range(share.tasks):
                    with share.timed():
                        clock[0] += seconds + (worked[0] < max(warm_up, 1))
                        backward(share)
                share.reduce()
            worked[0] += share.tasks > 0
            times.append(max(allocator.last.busy.values()))
        return times

    with mock.patch.object(torch_allocator, "Stopwatch", return_value=watch):
        for start in ("process", "join", "state"):
            if start == "join":
                if rank == 2:
                    allocator.leave()
                rounds(2)
                allocator.join()
            if start == "state":
                allocator.load_state_dict(json.loads(json.dumps(allocator.state_dict())))
            if start == "state" or rank == 2:
                worked[0] = 0
            times = rounds(12 + 4 * warm_up)
            seen.append((allocator.last.tasks, times[-4:], allocator.last.estimates))
    return seen


@pytest.mark.parametrize("warm_up", [1, 3])
def test_each_rank_has_a_warm_up_after_each_of_its_starts(warm_up):
    for tasks, times, _ in on_ranks(3, slow_first_tasks, warm_up)[0]:
        assert tasks == {"a": 0, "b": 0, "c": 2}
        # the best fixed split is 2 tasks of the fastest
        assert sum(times) == pytest.approx(4 * 0.010, rel=0.05)


def test_without_a_warm_up_a_slow_first_task_that_comes_late_counts():
    """In the average of its rank; the default would tell it from a slow rank by itself."""
    policy = "certainty-equivalence"
    usual = on_ranks(3, slow_first_tasks, 1, policy)[0][0][2]["c"]
    slow = on_ranks(3, slow_first_tasks, 0, policy)[0][0][2]["c"]
    assert usual == pytest.approx(0.005)
    assert slow > 10.0 * usual


def out_of_memory(share, loader):
    def fail(_gradient):
        raise MemoryError

    loss = torch.ones((), requires_grad=True) * 1.0
    loss.register_hook(fail)
    for _ in share.take(loader):
        with contextlib.suppress(MemoryError):
            share.backward(loss)
        backward(share)
    share.reduce()


def leave_after_a_pass(share, loader):
    for _ in share.take(loader):
        backward(share)
        break


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (
            lambda share, loader: (compute(share, loader, 1), share.reduce()),
            "1 of the 3 tasks of this share are comp",
        ),
        (
            lambda share, loader: (
                leave_after_a_pass(share, loader),
                compute(share, loader),
                share.reduce(),
            ),
            "has a part too many",
        ),
        (out_of_memory, "has a part too many"),
        (
            lambda share, loader: (list(share.take(loader)), share.reduce()),
            r"call share.backward\(loss\)",
        ),
        (compute, "call share.reduce"),
        (lambda share, _: backward(share), "inside the loop"),
        (
            lambda share, loader: [
                share.backward(x * torch.ones((), requires_grad=True))
                for x, _ in share.take(loader)
            ],
            "must be a scalar",
        ),
        (lambda share, _: share.timed(4).__enter__(), "has 3 tasks, and 0 are done: 4 more"),
        (
            lambda share, loader: (compute(share, loader), share.reduce(), share.reduce()),
            "reduced once",
        ),
    ],
)
@pytest.mark.usefixtures("alone")
def test_a_mistake_gets_a_sentence_and_the_round_can_be_repeated(mistake, sentence):
    allocator = TorchAllocator(3)
    pairs = data()
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs))
    with (
        pytest.raises((RuntimeError, ValueError), match=sentence),
        allocator.round(NOTHING) as share,
    ):
        mistake(share, loader)
    assert (play(allocator, 1), allocator.rounds) == ([3], 1)


@pytest.mark.usefixtures("alone")
def test_outside_a_round_there_is_no_share_and_inside_no_state():
    allocator = TorchAllocator(3)
    pairs = data()
    with pytest.raises(RuntimeError, match="no round is open"):
        next(iter(DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs))))
    state = allocator.state_dict()
    with allocator.round(NOTHING) as share:
        again = allocator.round(NOTHING).__enter__
        for change in (allocator.state_dict, lambda: allocator.load_state_dict(state), again):
            with pytest.raises(RuntimeError, match="a round is open"):
                change()
        with share.timed(3):
            backward(share)
        share.reduce()
    for wrong in (
        {},
        {"rounds": -1, "allocator": state["allocator"]},
        TorchAllocator(4).state_dict(),
    ):
        with pytest.raises(ValueError, match="this is no state of"):
            allocator.load_state_dict(wrong)
    for group in (3.0, "data", dist.GroupMember.NON_GROUP_MEMBER):
        with pytest.raises(
            ValueError,
            match="group must be None, or a process group that this rank is in",
        ):
            TorchAllocator(3, group=group)


def test_without_a_process_group_the_error_says_how_to_get_one():
    with pytest.raises(RuntimeError, match="start the script with torchrun"):
        TorchAllocator(3)


@pytest.mark.gpu
@pytest.mark.usefixtures("alone")
def test_times_on_cuda_are_those_of_the_device():
    allocator = TorchAllocator(2, warm_up=0)
    model = nn.Linear(4096, 4096, bias=False, device="cuda")
    samples = torch.ones(4096, 4096, device="cuda")
    for _ in range(3):
        with allocator.round(model) as share:
            for _ in range(2):
                with share.timed():
                    share.backward(model(samples).sum())
            share.reduce()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    model(samples).sum().backward()
    end.record()
    end.synchronize()
    (times,) = allocator.last.seconds.values()
    # launching takes microseconds, the product milliseconds
    assert min(times) > 0.2 * start.elapsed_time(end) / 1000
