"""Replicas of torchft, which die and come back: each step that counts has B tasks, and is the step
of one process.
"""

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
from tests.cluster.torchrun.journal import loss_of, parts_of_training  # noqa: E402
from tests.cluster.torchrun.processes import CONTEXT  # noqa: E402
from tests.cluster.torchrun.test_example import run_script  # noqa: E402
from tests.cluster.torchrun.training import refused  # noqa: E402
from tests.waiting import PATIENCE, until  # noqa: E402

SCRIPT = Path(__file__).parents[3] / "notebooks" / "cluster" / "train_torchft.py"


def test_without_torchft_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchft", None)
    with pytest.raises(MissingExtraError, match=r'needs torchft: pip install "ata-gym\[torchft\]"'):
        TorchAllocator(4, manager=object(), name="a")


@pytest.fixture(scope="module")
def address():
    # It is imported in other processes only: its threads and warnings are not ours.
    from importlib.util import find_spec

    if find_spec("torchft") is None:
        pytest.skip('torchft is not installed: pip install "ata-gym[torchft]"')
    with replicas.lighthouse() as address:
        yield address


def together(work, *arguments, names):
    """What ``work(name, *arguments)`` gives in a process for each name."""
    running = []
    for name in names:
        pipe, other_pipe = CONTEXT.Pipe()
        process = CONTEXT.Process(
            target=_send, args=(other_pipe, work, name, *arguments), daemon=True
        )
        process.start()
        other_pipe.close()
        running.append((process, pipe))
    try:
        answers = []
        for _, pipe in running:
            assert pipe.poll(PATIENCE)
            answers.append(pipe.recv())
        return answers
    finally:
        for process, _ in running:
            process.kill()
            process.join()


def _send(pipe, work, name, *arguments):
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "RUST_LOG": "error"}
    torch.set_num_threads(1)
    pipe.send(work(name, *arguments))
    # The threads of torchft would go on.
    os._exit(0)


@pytest.mark.usefixtures("address")
def test_steps_are_those_of_one_process_while_replicas_are_killed_and_come_back(tmp_path):
    kinds = [Kind.KILL, Kind.TERM]
    told = replicas.attempt(np.random.default_rng(1), tmp_path, kinds, rounds=10)
    assert told["rounds"] > 10


def what_is_refused(name, address):
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
        manager = replicas.manager_of(address, model, optimizer, name, **options)
        text = refused(lambda: work(manager))
        # Its heartbeat would keep the next one waiting.
        manager.shutdown(wait=False)
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
    ]


def test_what_a_round_cannot_respect_is_refused_by_name(address):
    (texts,) = together(what_is_refused, address, names=["replica_0"])
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
    texts = together(one_comes_later, address, budgets, tmp_path, names=list(budgets))
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
