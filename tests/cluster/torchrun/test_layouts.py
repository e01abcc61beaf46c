"""What a model trains may change between two rounds: on all ranks it goes on, on one alone every
rank says the same, and the round is begun again once all are alike.
"""

import copy
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

from ata_gym.cluster import TorchAllocator  # noqa: E402
from ata_gym.cluster.torchrun.forms import Form, GradientLayout  # noqa: E402
from ata_gym.cluster.torchrun.gradients import buckets  # noqa: E402
from tests.cluster.torchrun import replicas  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.replicas import together  # noqa: E402
from tests.cluster.torchrun.test_replicas import build, named_shares, net  # noqa: E402
from tests.cluster.torchrun.training import fixed_shares, refused  # noqa: E402
from tests.waiting import until  # noqa: E402

SHARES = (2, 1, 3)
BUDGET = sum(SHARES)
SMALL = 200
"""Bytes of a bucket, so that a model has several, of which some are sent early."""
ADVICE = "Build, convert and freeze the model alike on every rank, before the same round"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rows = nn.Embedding(BUDGET, 3)
        self.first = nn.Linear(3, 3)
        self.last = nn.Linear(3, 3)
        self.head = nn.Identity()
        self.last.requires_grad_(False)
        self.double()

    def forward(self, numbers):
        dtype = self.last.weight.dtype
        return self.head(self.last(self.first(self.rows(numbers)).to(dtype)))


class Loop:
    def __init__(self, make):
        self.allocator = make()
        self.model = Net()

    def play(self):
        """The gradients of a round, which counts."""
        before = self.allocator.rounds
        self.model.zero_grad()
        while self.allocator.rounds == before:
            with self.allocator.round(self.model) as share:
                for number in range(share.first, share.first + share.tasks):
                    with share.timed():
                        share.backward(self.loss(torch.tensor([number])))
                share.reduce()
        return gradients_of(self.model)

    def loss(self, numbers):
        return self.model(numbers).square().mean()

    def alone(self):
        """The gradients of one process."""
        twin = copy.deepcopy(self.model)
        twin.zero_grad()
        twin(torch.arange(BUDGET)).square().mean().backward()
        return gradients_of(twin)


def gradients_of(model):
    return {
        name: parameter.grad.to_dense().double().clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def frozen(loop):
    loop.model.first.requires_grad_(False)


def trained(loop):
    loop.model.last.requires_grad_(True)


def another_of_the_same_shape(loop):
    """The forms are the same as before, and the sum would mix what does not belong together."""
    loop.model.first.requires_grad_(False)
    loop.model.last.requires_grad_(True)


def added(loop):
    torch.manual_seed(1)
    loop.model.head = nn.Linear(3, 2).double()


def of_another_shape(loop):
    torch.manual_seed(1)
    loop.model.first = nn.Linear(3, 3, bias=False).double()


def of_another_dtype(loop):
    loop.model.float()


def in_another_order_of_memory(loop):
    weight = loop.model.first.weight.detach().T.contiguous().T
    loop.model.first.weight = nn.Parameter(weight)


def sparse(loop):
    loop.model.rows.sparse = True


def another_model(loop):
    loop.model = copy.deepcopy(loop.model)
    trained(loop)


CHANGES = [
    frozen,
    trained,
    another_of_the_same_shape,
    added,
    of_another_shape,
    of_another_dtype,
    in_another_order_of_memory,
    sparse,
    another_model,
]


def tolerance_of(change):
    return 1e-5 if change is of_another_dtype else 1e-12


def assert_close(gradients, expected, rtol):
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=rtol, atol=rtol)


def change_alone_and_together(make, *, is_odd, changes=CHANGES):
    """What this rank says when one rank, the odd one, changes alone, for each change."""
    texts = []
    for change in changes:
        loop = Loop(make)
        for _ in range(2):
            assert_close(loop.play(), loop.alone(), 1e-12)
        before = copy.deepcopy(loop.model)
        if is_odd:
            change(loop)
        texts += [refused(loop.play), refused(loop.play)]
        # Either the odd one goes back, or all others change, too.
        if change in (frozen, added):
            loop.model = before
        elif not is_odd:
            change(loop)
        for _ in range(2):
            assert_close(loop.play(), loop.alone(), tolerance_of(change))
        # All change together, which costs nobody a round.
        frozen(loop)
        rounds = loop.allocator.rounds
        assert_close(loop.play(), loop.alone(), tolerance_of(change))
        assert loop.allocator.rounds == rounds + 1
    return texts


def on_a_group():
    with mock.patch.object(buckets, "_SIZE", SMALL):
        return change_alone_and_together(lambda: fixed_shares(SHARES), is_odd=dist.get_rank() == 1)


def on_a_mesh():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    name = f"w{mesh.get_coordinate()[0]}"

    def make():
        return TorchAllocator(BUDGET, "uta", mesh=mesh["dp"], name=name)

    with mock.patch.object(buckets, "_SIZE", SMALL):
        return change_alone_and_together(
            make, is_odd=dist.get_rank() == 3, changes=[frozen, trained, another_of_the_same_shape]
        )


def in_a_quorum(name, address):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    manager = replicas.manager_of(address, model, optimizer, name, min_replica_size=2)
    # Each Manager has one allocator, which goes on to the next change.
    allocator = TorchAllocator(BUDGET, "uta", manager=manager)
    texts = change_alone_and_together(
        lambda: allocator, is_odd=name == "replica_1", changes=[frozen, of_another_dtype]
    )
    manager.shutdown(wait=False)
    return texts


def assert_said_by_all(answers, worker, changes):
    assert all(answer == answers[0] for answer in answers)
    assert len(answers[0]) == 2 * changes
    for text in answers[0]:
        assert text.startswith("RuntimeError: round ")
        said = (
            f": the ranks train parameters of different shapes, memory formats or dtypes; {worker}"
        )
        assert said + " differs from" in text
        assert ADVICE in text


def test_a_rank_that_changes_alone_is_named_by_all_and_all_go_on_once_they_are_alike():
    assert_said_by_all(on_ranks(len(SHARES), on_a_group), "b", len(CHANGES))


def test_a_rank_of_a_replica_that_changes_alone_is_named_by_all():
    assert_said_by_all(on_ranks(4, on_a_mesh), "w1", 3)


def in_a_parallel_sequence():
    """What this rank says when one rank of a replica changes alone, and sums parts with another."""
    mesh, model, forward = build("sequence")
    allocator = named_shares((2, 1), dist.get_rank() // 2, mesh=mesh)
    x = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def play():
        with allocator.round(model) as share:
            for number in range(share.first, share.first + share.tasks):
                with share.timed():
                    share.backward(forward(x[number : number + 1]).full_tensor().square().mean())
            share.reduce()

    play()
    model[0].weight.requires_grad_(dist.get_rank() != 3)
    text = refused(play)
    for trained in (False, True):
        model.zero_grad()
        model[0].weight.requires_grad_(trained)
        play()
    gradient = model[0].weight.grad.full_tensor()
    return text, allocator.rounds, gradient.tolist()


def test_a_rank_that_sums_parts_with_others_of_its_replica_waits_for_none_when_it_changes_alone():
    expected = net()
    x = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected(x).square().mean().backward()
    for text, rounds, gradient in on_ranks(4, in_a_parallel_sequence):
        assert "memory formats or dtypes; the ranks of the replica w1 differ. The step" in text
        assert rounds == 3
        torch.testing.assert_close(torch.tensor(gradient).double(), expected[0].weight.grad)


def test_a_replica_of_a_quorum_that_changes_alone_is_named_by_all(address):
    answers = together(in_a_quorum, address, names=["replica_0", "replica_1"])
    assert_said_by_all(answers, "replica_1", 2)


def test_devices_count_as_far_as_tensors_are_together_on_one():
    def layout(*devices):
        forms = [Form((2,), (1,), torch.float32, torch.device(device)) for device in devices]
        return GradientLayout((0, 1), tuple(forms), ()).checksum()

    assert layout("cuda:0", "cuda:0") == layout("cuda:1", "cuda:1") == layout("cpu", "cpu")
    assert layout("cuda:0", "cuda:1") == layout("cuda:2", "cuda:0") != layout("cpu", "cpu")


def joins(name, address, folder, loads_all):
    """The error of a replica, where the second one comes after the first one has frozen a layer."""
    begun = folder / "begun"
    made = folder / "made"
    if name == "replica_1":
        until(begun.exists, about="the other replica")
    model = Net()

    def state():
        trained = [parameter.requires_grad for parameter in model.parameters()]
        return {"model": model.state_dict(), "trained": trained}

    def load(state):
        model.load_state_dict(state["model"])
        if loads_all:
            for parameter, trained in zip(model.parameters(), state["trained"], strict=True):
                parameter.requires_grad_(trained)

    manager = replicas.manager_of(
        address, model, None, name, state_dict=state, load_state_dict=load
    )
    loop = Loop(lambda: TorchAllocator(BUDGET, "uta", manager=manager))
    loop.model = model
    if name == "replica_0":
        loop.play()
        frozen(loop)
        loop.play()
        begun.touch()
        # A Manager that is there and asks for no quorum holds up the others.
        until(made.exists, about="the replica that comes")
    made.touch()
    while loop.allocator.last is None or len(loop.allocator.last.tasks) < 2:
        error = refused(loop.play)
        if error:
            return error
    return loop.allocator.rounds, list(gradients_of(model))


@pytest.mark.parametrize("loads_all", [True, False])
def test_a_replica_that_comes_later_trains_what_the_others_do_or_is_named(
    address, tmp_path, loads_all
):
    first, second = together(joins, address, tmp_path, loads_all, names=["replica_0", "replica_1"])
    assert first == second
    if loads_all:
        assert first[1] == ["rows.weight"]
    else:
        assert "memory formats or dtypes; replica_1 differs from replica_0" in first
