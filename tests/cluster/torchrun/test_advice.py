"""Who does literally what an error advises goes on, with the same allocator where there is one.

Other advice is followed where its error is tested.
"""

import math
import re

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import BatchSampler, DataLoader  # noqa: E402

from ata_gym.cluster import TaskSampler, TaskStream, TorchAllocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import refused  # noqa: E402

ROWS = 8
BUDGET = 4


def allocator_of(budget=BUDGET, **options):
    options = {"name": "ab"[dist.get_rank()], "warm_up": 0, "check_every": 1, **options}
    return TorchAllocator(budget, "uta", **options)


def model_of(seed=0, **options):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(ROWS, 3, **options), nn.Linear(3, 1))


def loader_of(allocator, **options):
    numbers = torch.arange(ROWS)
    return DataLoader(numbers, batch_sampler=TaskSampler(allocator, numbers, **options))


def loss_of(model, numbers):
    return model(numbers).square().mean()


def play(allocator, model, *, loader=None, spoil=lambda loss: loss):
    """A round that counts."""
    before = allocator.rounds
    if loader is None:
        loader = loader_of(allocator)
    with allocator.round(model) as share:
        for numbers in share.take(loader):
            share.backward(spoil(loss_of(model, numbers)))
        share.reduce()
    assert allocator.rounds == before + 1


def on_b(change, other):
    return change if dist.get_rank() else other


def same_on_every_rank(state):
    states = [state]
    dist.broadcast_object_list(states)
    return states[0]


def the_same_state():
    allocator = allocator_of()
    model = model_of()
    state = allocator.state_dict()
    play(allocator, model)
    if dist.get_rank() == 1:
        allocator.load_state_dict(state)
    message = refused(lambda: play(allocator, model))
    allocator.load_state_dict(same_on_every_rank(allocator.state_dict()))
    play(allocator, model)
    return message


def seeded_alike():
    allocator = allocator_of()
    message = refused(lambda: play(allocator, model_of(seed=dist.get_rank())))
    play(allocator, model_of(seed=0))
    return message


def the_same_checkpoint():
    allocator = allocator_of()
    model = model_of(seed=dist.get_rank())
    message = refused(lambda: play(allocator, model))
    model.load_state_dict(same_on_every_rank(model.state_dict()))
    play(allocator, model)
    return message


def converted_alike():
    allocator = allocator_of()
    message = refused(lambda: play(allocator, model_of().to(on_b(torch.bfloat16, torch.float32))))
    play(allocator, model_of().to(torch.bfloat16))
    return message


def frozen_alike():
    allocator = allocator_of()
    model = model_of()
    model[1].requires_grad_(dist.get_rank() == 0)
    message = refused(lambda: play(allocator, model))
    model[1].requires_grad_(False)
    play(allocator, model)
    return message


def the_same_order():
    allocator = allocator_of()
    model = model_of()
    loader = loader_of(allocator, seed=dist.get_rank())
    message = refused(lambda: play(allocator, model, loader=loader))
    play(allocator, model, loader=loader_of(allocator, seed=0))
    return message


def the_same_argument():
    message = refused(lambda: allocator_of(BUDGET + dist.get_rank()))
    play(allocator_of(BUDGET), model_of())
    return message.replace("the same on every rank", "the same")


def names_of_their_own():
    message = refused(lambda: allocator_of(name="gpu"))
    play(allocator_of(name=f"host/gpu{dist.get_rank()}"), model_of())
    return message


def a_group_that_this_rank_is_in():
    groups = [dist.new_group([rank]) for rank in range(2)]
    message = refused(lambda: allocator_of(group=groups[1 - dist.get_rank()]))
    play(allocator_of(group=groups[dist.get_rank()]), model_of())
    return message


def stepped_after_reduce():
    """The same weights as with an optimizer of a loop without an allocator."""
    allocator = allocator_of()
    model = model_of()
    expected = model_of()

    def step(parameter):
        with torch.no_grad():
            parameter.sub_(0.1 * parameter.grad)

    hooks = [p.register_post_accumulate_grad_hook(step) for p in model.parameters()]
    message = refused(lambda: play(allocator, model))
    for hook in hooks:
        hook.remove()
    # What the error says to have been changed is lost: the model is the one of before.
    model.load_state_dict(expected.state_dict())
    loader = loader_of(allocator, shuffle=False)
    with allocator.round(model) as share:
        for numbers in share.take(loader):
            share.backward(loss_of(model, numbers))
        share.reduce()
        for parameter in model.parameters():
            step(parameter)
    loss_of(expected, torch.arange(BUDGET)).backward()
    for parameter, other in zip(model.parameters(), expected.parameters(), strict=True):
        step(other)
        torch.testing.assert_close(parameter, other)
    return message


def rows_cut_after_reduce():
    allocator = allocator_of()
    message = refused(lambda: play(allocator, model_of(max_norm=0.1)))
    model = model_of()
    for _ in range(2):
        play(allocator, model)
        with torch.no_grad():
            model[0].weight.copy_(model[0].weight.renorm(2, 0, 0.1))
    return message


def let_through(spoil):
    message = refused(lambda: play(allocator_of(), model_of(), spoil=spoil))
    play(allocator_of(allow_nonfinite=True), model_of(), spoil=spoil)
    return message


def passes_of_the_share():
    allocator = allocator_of()
    model = model_of()

    def play_plainly():
        with allocator.round(model) as share:
            for numbers in share.take(loader_of(allocator)):
                loss_of(model, numbers).backward()
            share.reduce()

    message = refused(play_plainly)
    play(allocator, model)
    return message


def one_task_after_the_other():
    allocator = allocator_of()
    model = model_of()

    def play_nested():
        with allocator.round(model) as share, share.timed(), share.timed():
            share.backward(loss_of(model, torch.arange(2)))

    message = refused(play_nested)
    with allocator.round(model) as share:
        for number in range(share.tasks):
            with share.timed():
                share.backward(loss_of(model, torch.tensor([number])))
        share.reduce()
    return message


def a_mean_as_the_loss():
    allocator = allocator_of()
    model = model_of()
    squares = refused(lambda: play(allocator, model, spoil=lambda loss: loss[None].expand(3)))
    play(allocator, model, spoil=lambda loss: loss[None].expand(3).mean())
    return squares


def weights_in_every_pass():
    allocator = allocator_of()
    model = model_of()

    def play_with(weights):
        with allocator.round(model) as share:
            for number in range(share.tasks):
                with share.timed():
                    share.backward(loss_of(model, torch.arange(2)), weight=weights[number])
            share.reduce()

    message = refused(lambda: play_with([1.0, None]))
    for weights in ([1.0, 2.0], [None, None]):
        model.zero_grad()
        play_with(weights)
    assert allocator.rounds == 2
    return message


def the_loop_to_its_end():
    allocator = allocator_of()
    model = model_of()

    def play_first():
        with allocator.round(model) as share:
            for numbers in share.take(loader_of(allocator)):
                share.backward(loss_of(model, numbers))
                break
            share.reduce()

    message = refused(play_first)
    play(allocator, model)
    return message


def state_between_rounds(change):
    allocator = allocator_of()
    model = model_of()
    state = allocator.state_dict()

    def inside():
        with allocator.round(model):
            change(allocator, state)

    message = refused(inside)
    play(allocator, model)
    change(allocator, state)
    play(allocator, model)
    return message


def a_loader_with_the_sampler():
    allocator = allocator_of()
    model = model_of()
    numbers = torch.arange(ROWS)
    batches = BatchSampler(TaskSampler(allocator, numbers), 1, drop_last=False)
    wrapped = DataLoader(numbers, batch_sampler=batches)
    message = refused(lambda: play(allocator, model, loader=wrapped))
    loader = DataLoader(numbers, batch_sampler=TaskSampler(allocator, numbers))
    play(allocator, model, loader=loader)
    return message


def one_that_joins():
    """All have left, so that no round can tell who joins."""
    allocator = allocator_of()
    model = model_of()
    allocator.leave()
    play(allocator, model)
    messages = {refused(lambda: play(allocator, model)) for _ in range(2)}
    on_b(allocator.join, int)()
    play(allocator, model)
    assert allocator.last.tasks == {"a": 0, "b": BUDGET}
    allocator.join()
    for _ in range(2):
        play(allocator, model)
    assert min(allocator.last.tasks.values()) > 0
    (message,) = messages
    return message


def without_the_stream():
    allocator = allocator_of()
    loader = loader_of(allocator)
    message = refused(lambda: TaskStream(allocator, loader))
    play(allocator, model_of(), loader=loader)
    return message


CASES = [
    (the_same_state, "Load the same state on every rank"),
    (seeded_alike, "Seed torch alike on every rank before the model is made"),
    (the_same_checkpoint, "or load the same checkpoint"),
    (converted_alike, "Build, convert and freeze the model alike on every rank"),
    (frozen_alike, "Build, convert and freeze the model alike on every rank"),
    (the_same_order, "Give TaskSampler the same dataset, samples, sampler, shuffle and seed"),
    (the_same_argument, "budget must be the same"),
    (names_of_their_own, "give TorchAllocator(name=...), such as the host and the device"),
    (a_group_that_this_rank_is_in, "that this rank is in, as torch.distributed.new_group makes"),
    (stepped_after_reduce, "change it after share.reduce()"),
    (rows_cut_after_reduce, "change it after share.reduce()"),
    (
        lambda: let_through(lambda loss: loss * on_b(math.nan, 1.0)),
        "let it through with TorchAllocator(allow_nonfinite=True)",
    ),
    (passes_of_the_share, "call share.backward(loss) in place of loss.backward()"),
    (one_task_after_the_other, "one after the other: end the last one first"),
    (a_mean_as_the_loss, "must be a scalar, the mean over the batch"),
    (weights_in_every_pass, "a weight in every pass of a round, or in none"),
    (the_loop_to_its_end, "loop over share.take(loader) to its end, and reduce after it"),
    (
        lambda: state_between_rounds(lambda allocator, _: allocator.state_dict()),
        "save the state between rounds",
    ),
    (
        lambda: state_between_rounds(lambda allocator, state: allocator.load_state_dict(state)),
        "load the state between rounds",
    ),
    (a_loader_with_the_sampler, "a DataLoader with batch_sampler=TaskSampler(...)"),
    (without_the_stream, "leave TaskStream out"),
    (one_that_joins, "no worker is there: let one join"),
]
"""What ranks do first, and then by the advice; the advice."""


def all_advice():
    return [act() for act, _ in CASES]


def test_who_follows_an_error_goes_on():
    for messages in on_ranks(2, all_advice):
        for message, (_, advice) in zip(messages, CASES, strict=True):
            assert advice in message


@pytest.mark.usefixtures("alone")
def test_a_loader_with_worker_processes_in_order_is_shared_out():
    allocator = allocator_of()
    numbers = torch.arange(ROWS)
    options = {"batch_size": 2, "num_workers": 1}
    with pytest.raises(ValueError, match=r"DataLoader\(in_order=True\)"):
        TaskStream(allocator, DataLoader(numbers, in_order=False, **options))
    stream = TaskStream(allocator, DataLoader(numbers, in_order=True, **options))
    play(allocator, model_of(), loader=stream)


def test_without_a_process_group_one_is_started_as_the_error_says(monkeypatch):
    with pytest.raises(RuntimeError, match="start the script with torchrun, and call") as refusal:
        TorchAllocator(BUDGET)
    (call,) = re.findall(r"call (torch\S+)\,", str(refusal.value))
    # What torchrun gives to a process.
    environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert call == 'torch.distributed.init_process_group("gloo")'
    dist.init_process_group("gloo")
    try:
        play(TorchAllocator(BUDGET), model_of())
    finally:
        dist.destroy_process_group()
