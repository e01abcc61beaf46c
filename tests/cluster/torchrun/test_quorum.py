"""Replicas of torchft, which die and come back: each step that counts has B tasks, and is the step
of one process.
"""

import logging
import os
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ata_gym.cluster import TorchAllocator  # noqa: E402
from ata_gym.utils.extras import MissingExtraError  # noqa: E402
from tests.cluster.disturbances import Kind  # noqa: E402
from tests.cluster.torchrun import replicas  # noqa: E402
from tests.cluster.torchrun.journal import loss_of, parts_of_training, weights_of  # noqa: E402
from tests.cluster.torchrun.processes import CONTEXT  # noqa: E402
from tests.cluster.torchrun.replicas import together  # noqa: E402
from tests.cluster.torchrun.test_example import run_script  # noqa: E402
from tests.cluster.torchrun.training import refused  # noqa: E402
from tests.waiting import PATIENCE, until  # noqa: E402

SCRIPT = Path(__file__).parents[3] / "notebooks" / "cluster" / "train_torchft.py"


def test_without_torchft_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchft", None)
    with pytest.raises(MissingExtraError, match=r'needs torchft: pip install "ata-gym\[torchft\]"'):
        TorchAllocator(4, manager=object(), name="a")


@pytest.mark.usefixtures("address")
def test_steps_are_those_of_one_process_while_replicas_are_killed_and_come_back(tmp_path):
    kinds = [Kind.KILL, Kind.TERM]
    told = replicas.attempt(np.random.default_rng(1), tmp_path, kinds, rounds=10)
    assert told["rounds"] > 10


def buffers_of_rounds(name, address, waits):
    """What the buffers are in each round, before and after the reduction.

    The second replica starts when the first has said that they are too few.
    """

    def listen(record):
        if "too few replicas" in record.getMessage():
            waits.set()
        return True

    _, model, optimizer = parts_of_training()
    if name == "replica_0":
        logging.getLogger("ata_gym.cluster").addFilter(listen)
    else:
        assert waits.wait(PATIENCE)
    manager = replicas.manager_of(address, model, optimizer, name, min_replica_size=2)
    limits = {"replica_0": (1, 1), "replica_1": (3, 3)}
    allocator = TorchAllocator(4, "uta", manager=manager, limits=limits, warm_up=0)
    rounds = []
    while len(rounds) < 3:
        with allocator.round(model) as share:
            with share.timed(share.tasks):
                x = torch.full((3, 4), 1.0 + share.tasks).double() * torch.arange(4)
                share.backward(loss_of(model, x))
            before = {key: buffer.tolist() for key, buffer in model.named_buffers()}
            share.reduce()
        optimizer.zero_grad()
        if share.committed:
            after = {key: buffer.tolist() for key, buffer in model.named_buffers()}
            rounds.append((before, after))
    manager.shutdown(wait=False)
    return rounds


def test_buffers_are_means_over_the_tasks_of_a_quorum_that_is_complete(address):
    """The limits allow no round of one replica, and no round of one would count."""
    names = ["replica_0", "replica_1"]
    waits = CONTEXT.Event()
    for (before, after), (other_before, other_after) in zip(
        *together(buffers_of_rounds, address, waits, names=names), strict=True
    ):
        assert after == other_after
        for key in ("0.running_mean", "0.running_var"):
            mean = (np.array(before[key]) + 3 * np.array(other_before[key])) / 4
            np.testing.assert_allclose(after[key], mean, rtol=1e-12)
        assert after["0.num_batches_tracked"] == before["0.num_batches_tracked"]


def what_is_refused(name):
    from torchft.manager import WorldSizeMode

    _, model, optimizer = parts_of_training()

    def play(allocator, inside=lambda: None):
        with allocator.round(model) as share:
            with share.timed(share.tasks):
                share.backward(loss_of(model, torch.ones(3, 4).double()))
            share.reduce()
            inside()

    def make(manager):
        return TorchAllocator(4, manager=manager)

    def make_twice(manager):
        make(manager)
        make(manager)

    def give_both(manager):
        TorchAllocator(4, manager=manager, group=object())

    def begin(manager):
        play(make(manager))

    def commit_too(manager):
        allocator = make(manager)
        for _ in range(2):
            play(allocator)
            manager.start_quorum()
            manager.should_commit()

    def step_inside(manager):
        play(make(manager), optimizer.step)

    def step_as_advised(manager):
        """Steps of a plain optimizer, after the blocks of the rounds that count."""
        allocator = make(manager)
        while allocator.rounds < 2:
            with allocator.round(model) as share:
                with share.timed(share.tasks):
                    share.backward(loss_of(model, torch.ones(3, 4).double()))
                share.reduce()
            if share.committed:
                optimizer.step()
            optimizer.zero_grad()

    def begin_registered(manager):
        manager.register_state_dict_fn("model", model.load_state_dict, model.state_dict)
        begin(manager)

    def begin_named(manager):
        play(TorchAllocator(4, manager=manager, name="replica_0"))

    def text_of(work, **options):
        # Where all have one lighthouse, the last heartbeat of a manager keeps the next one waiting.
        lighthouse = replicas.make_lighthouse()
        address = replicas.address_of(lighthouse)
        manager = replicas.manager_of(address, model, optimizer, name, **options)
        text = refused(lambda: work(manager))
        manager.shutdown(wait=False)
        lighthouse.shutdown()
        return text

    return [
        refused(lambda: make("a")),
        text_of(make, use_async_quorum=True),
        text_of(make, world_size_mode=WorldSizeMode.FIXED_WITH_SPARES),
        text_of(make, world_size=2),
        text_of(make, replica_id=None),
        text_of(make_twice),
        text_of(give_both),
        text_of(begin, state_dict=None, load_state_dict=None),
        text_of(commit_too),
        text_of(step_inside),
        # What these errors advise.
        text_of(step_as_advised, use_async_quorum=False, world_size_mode=WorldSizeMode.DYNAMIC),
        text_of(begin_named, replica_id=None),
        text_of(begin_registered, state_dict=None, load_state_dict=None),
        # In one process, a new Manager, and no group.
        text_of(begin, world_size=1),
    ]


@pytest.mark.usefixtures("torchft")
def test_what_a_round_cannot_respect_is_refused_by_name():
    (texts,) = together(what_is_refused, names=["replica_0"])
    for text, part in zip(
        texts,
        [
            "ValueError: manager must be a torchft.Manager, not 'a'",
            "make it with Manager(use_async_quorum=False)",
            "make it with Manager(world_size_mode=WorldSizeMode.DYNAMIC)",
            "ValueError: a replica of 2 processes is not supported",
            "give Manager(replica_id=...) or TorchAllocator(name=...)",
            "ValueError: the Manager has a TorchAllocator already",
            "ValueError: give TorchAllocator a group, a mesh or a manager",
            "give Manager(load_state_dict=..., state_dict=...) of the model and the optimizer",
            "so give the plain optimizer, and step if share.committed",
            "step after the block of the round, if share.committed",
            "",
            "",
            "",
            "",
        ],
        strict=True,
    ):
        assert part in text, text
        assert bool(part) == bool(text)


def what_fails(name, address):
    """A task fails on one of two replicas, then no loss is finite, then one replica leaves."""
    _, model, optimizer = parts_of_training()
    manager = replicas.manager_of(address, model, optimizer, name, min_replica_size=2)
    limits = {"replica_7": (1, 2)}
    allocator = TorchAllocator(
        6, "certainty-equivalence", manager=manager, limits=limits, check_every=1
    )

    def play(scale=1.0, fails=False):
        with allocator.round(model) as share:
            for _ in range(share.tasks):
                if fails:
                    raise KeyError("a task failed")
                with share.timed():
                    share.backward(scale * loss_of(model, torch.ones(3, 4).double()))
            share.reduce()
        optimizer.zero_grad()
        return share.committed

    def play_until_one_counts():
        while not play():
            pass

    play_until_one_counts()
    if name == "replica_1":
        told = [refused(lambda: play(fails=True))]
    else:
        told = [(play(), allocator.rounds)]
    play_until_one_counts()
    told.append(refused(lambda: play(float("nan"))))
    play_until_one_counts()
    if name == "replica_1":
        allocator.leave()
    play_until_one_counts()
    return [*told, allocator.rounds, allocator.last.tasks, set(allocator.last.away)]


def test_a_failure_on_one_replica_is_no_failure_of_the_others_and_a_fault_has_one_sentence(address):
    names = ["replica_0", "replica_1"]
    (not_counted, *first), (failure, *second) = together(what_fails, address, names=names)
    assert not_counted == (False, 1)
    assert failure == "KeyError: 'a task failed'"
    assert first == second
    assert "is not finite: look at its samples and the learning rate" in first[0]
    assert first[1:] == [4, {"replica_0": 6, "replica_1": 0}, {"replica_1", "replica_7"}]


def with_budget(name, address, budgets, options):
    _, model, optimizer = parts_of_training()
    manager = replicas.manager_of(address, model, optimizer, name, **options)
    allocator = TorchAllocator(budgets[name], manager=manager)

    def play():
        with allocator.round(model) as share:
            for _ in range(share.tasks):
                with share.timed():
                    share.backward(loss_of(model, torch.ones(3, 4).double()))
            share.reduce()

    return play, allocator


def both_begin(name, address, budgets):
    options = {"init_sync": False, "min_replica_size": 2}
    play, allocator = with_budget(name, address, budgets, options)

    def play_one():
        while allocator.rounds < 1:
            play()

    return refused(play_one)


def one_comes_later(name, address, budgets, folder):
    begun = folder / "begun"
    ended = folder / "ended"
    # A Manager that is there and asks for no quorum holds up the others.
    if name == "replica_1":
        until(begun.exists, about="the other replica")
    play, allocator = with_budget(name, address, budgets, {})
    if name == "replica_1":
        text = refused(play)
        ended.touch()
        return text
    while not ended.exists():
        play()
        if allocator.rounds == 2:
            begun.touch()
    rounds = allocator.rounds
    play()
    return allocator.rounds - rounds


def test_a_replica_with_other_arguments_is_refused_and_alone_where_others_have_begun(
    address, tmp_path
):
    budgets = {"replica_0": 4, "replica_1": 8}
    sentence = (
        "ValueError: budget must be the same on every rank: it is 4 on replica_0 and 8 on replica_1"
    )
    assert together(both_begin, address, budgets, names=list(budgets)) == [sentence] * 2
    # The last heartbeats of these two would keep others of the same lighthouse waiting.
    with replicas.lighthouse() as other:
        texts = together(one_comes_later, other, budgets, tmp_path, names=list(budgets))
    assert texts == [1, sentence]


def script(name, address, folder):
    options = ("--name", name, "--lighthouse", address, "--steps", "20", "--budget", "12")
    pause = {"replica_0": "0.001", "replica_1": "0.01"}[name]
    os.environ["RANK"] = name
    run_script(SCRIPT, folder, *options, "--pause", pause)
    return (folder / f"said-{name}").read_text()


def test_the_script_trains_two_replicas(address, tmp_path):
    pytest.importorskip("sklearn")
    first, second = together(script, address, tmp_path, names=["replica_0", "replica_1"])
    (line,) = first.splitlines()
    assert line.partition(" s")[0].partition(":")[0] == "round 20"
    assert "replica_0" in line
    assert "round 20" in second


ROUNDS_OF_STEP = 3
STEPS = 3
JOINS_AFTER = ROUNDS_OF_STEP + 1
"""The rounds of the first replica before the second one comes."""


def rows_and_layer():
    """A model, in which one gradient is sparse, and its optimizer."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(9, 4, sparse=True), torch.nn.Linear(4, 1))
    return model.double(), torch.optim.SGD(model.parameters(), lr=0.1)


def loss_of_task(model, number, place):
    """The loss of a task, a sum, and its weight."""
    rows = torch.arange(1 + (number + place) % 3) + number + place
    return model(rows % 9).square().sum(), float(len(rows))


def accumulate(name, address, folder, weighted, counts_itself):
    """The weights after each step of several rounds, and the error of this replica."""
    begun = folder / "begun"
    made = folder / "made"
    if name == "replica_1":
        until(begun.exists, about="the other replica")
    model, optimizer = rows_and_layer()
    manager = replicas.manager_of(address, model, optimizer, name)
    allocator = TorchAllocator(6, "uta", manager=manager)
    if name == "replica_1":
        made.touch()
    steps = {}
    played = 0
    while allocator.rounds < ROUNDS_OF_STEP * STEPS:
        if name == "replica_0" and allocator.rounds == JOINS_AFTER:
            begun.touch()
            # A Manager that is there and asks for no quorum holds up the others.
            until(made.exists, about="the replica that comes")
        try:
            with allocator.round(model) as share:
                for place in range(share.first, share.first + share.tasks):
                    with share.timed():
                        loss, weight = loss_of_task(model, allocator.rounds, place)
                        share.backward(loss, weight=weight if weighted else None)
                share.reduce()
        except RuntimeError as error:
            return steps, str(error)
        if not share.committed:
            continue
        played += 1
        # A replica that comes between two rounds of a step has played fewer rounds.
        count = played if counts_itself else allocator.rounds
        if count % ROUNDS_OF_STEP == 0:
            optimizer.step()
            optimizer.zero_grad()
            steps[allocator.rounds] = weights_of(model), len(allocator.last.tasks)
    return steps, ""


@pytest.mark.parametrize("weighted", [False, True])
def test_a_replica_that_comes_between_two_rounds_of_a_step_has_the_older_gradients(
    address, tmp_path, weighted
):
    names = ["replica_0", "replica_1"]
    answers = together(accumulate, address, tmp_path, weighted, False, names=names)
    model, optimizer = rows_and_layer()
    expected = {}
    for step in range(STEPS):
        numbers = range(step * ROUNDS_OF_STEP, (step + 1) * ROUNDS_OF_STEP)
        losses = [loss_of_task(model, number, place) for number in numbers for place in range(6)]
        total = sum(weight for _, weight in losses) if weighted else 6
        (sum(loss for loss, _ in losses) / total).backward()
        optimizer.step()
        optimizer.zero_grad()
        expected[numbers[-1] + 1] = weights_of(model)
    for (steps, error), first in zip(answers, [ROUNDS_OF_STEP, 2 * ROUNDS_OF_STEP], strict=True):
        assert error == ""
        assert min(steps) == first
        for number, (weights, size) in steps.items():
            assert size == (1 if number == ROUNDS_OF_STEP else 2)
            np.testing.assert_allclose(weights, expected[number], rtol=0, atol=1e-12)


def test_a_replica_that_steps_in_other_rounds_is_noticed_by_all(address, tmp_path):
    names = ["replica_0", "replica_1"]
    (_, first), (_, second) = together(accumulate, address, tmp_path, False, True, names=names)
    assert first == second
    assert first.startswith(
        f"round {2 * ROUNDS_OF_STEP + 1}: the models have gradients of different earlier rounds;"
        " replica_1 differs from replica_0. The step is not taken. Set all gradients to None on"
        " every rank, and begin the optimizer step again; step, and set gradients to None, on every"
        " rank in the same rounds, which allocator.rounds counts"
    )
