"""After a round all ranks have the same buffers: means over ranks, weighted by tasks, or the value
of one rank.
"""

import copy
import io
import math
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

from ata_gym.cluster import TorchAllocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import build, refused  # noqa: E402

SHARES = (0, 2, 1)


def forced(shares=SHARES, **options):
    """An allocator whose ranks have these shares in each round."""
    names = "abc"[: len(shares)]
    limits = {name: (share, share) for name, share in zip(names, shares, strict=True)}
    name = names[dist.get_rank()]
    return TorchAllocator(sum(shares), "uta", name=name, limits=limits, warm_up=0, **options)


def inputs(number, rounds=0):
    """The samples of a task, which are others for each rank."""
    generator = torch.Generator().manual_seed(100 * rounds + 10 * dist.get_rank() + number)
    return torch.randn(4, 6, generator=generator)


def play(model, allocator, loss_of=None, *, before_reduce=lambda: None, fails=False):
    """A round; the tasks differ by rank."""
    with allocator.round(model) as share:
        for number in range(share.tasks):
            with share.timed():
                x = inputs(number, allocator.rounds)
                loss = model(x).square().mean() if loss_of is None else loss_of(x)
                share.backward(loss * math.nan if fails else loss)
        before_reduce()
        share.reduce()


def tensors(model):
    return {
        name: None if buffer is None else buffer.detach().clone()
        for path, module in model.named_modules()
        for key, buffer in module._buffers.items()
        for name in [f"{path}.{key}".removeprefix(".")]
    }


def gathered(value):
    """The values of all ranks; tensors of any dtype."""
    file = io.BytesIO()
    torch.save(value, file)
    files = [None] * dist.get_world_size()
    dist.all_gather_object(files, file.getvalue())
    return [torch.load(io.BytesIO(content)) for content in files]


class Keeper(nn.Module):
    """A layer with a buffer that each forward pass changes in some way."""

    def __init__(self, initial, change, *, persistent=True):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        nn.init.constant_(self.layer.weight, 0.1)
        self.register_buffer("kept", initial, persistent=persistent)
        self.change = change

    def forward(self, x):
        with torch.no_grad():
            self.change(self, x)
        return self.layer(x)


def adds(layer, x):
    layer.kept += x.mean(0).to(layer.kept.dtype)


def adds_in_data(layer, x):
    layer.kept.data.mul_(0.9).add_(x.mean(0))


def replaces_data(layer, x):
    layer.kept.data = layer.kept + x.mean(0)


def reassigns(layer, x):
    layer.kept = layer.kept * 0.9 + x.mean(0)


def makes(layer, x):
    layer.kept = x.mean(0)


def registers(layer, x):
    if "late" not in layer._buffers:
        layer.register_buffer("late", torch.zeros(6))
    layer.late += x.mean(0)


def counts(layer, x):
    layer.kept += int(1000 * x[0, 0].abs()) + 1


def draws(layer, x):
    layer.kept.copy_(torch.randint(-(2**62), 2**62, (5,), generator=seeded_by(x)))


def draws_bytes(layer, x):
    layer.kept.copy_(seeded_by(x).get_state())


def seeded_by(x):
    return torch.Generator().manual_seed(int(1e6 * x[0, 0].abs()))


def flips(layer, x):
    layer.kept.copy_(x[0] > 0)


def normalizes(layer, x):
    layer.kept.copy_(nn.functional.normalize(x, dim=1))


def fills(layer, x):
    layer.kept = torch.cat([nn.functional.normalize(x[:2], dim=1), torch.zeros(2, 6)])


def grows(layer, x):
    length = 3 + (x.sum() > 0).int().item() + 2 * dist.get_rank()
    layer.kept = torch.arange(float(length))


def resizes(layer, x):
    layer.kept.data = torch.ones(2, len(x))


def sets_largest(layer, _):
    layer.kept.fill_(torch.finfo(torch.float32).min)


def sets_to_7(layer, _):
    layer.kept.fill_(7.0)


MEANS = {
    "in place": (torch.zeros(6), adds),
    "through .data": (torch.zeros(6), adds_in_data),
    ".data replaced": (torch.zeros(6), replaces_data),
    "reassigned": (torch.zeros(6), reassigns),
    "half": (torch.zeros(6, dtype=torch.float16), adds),
    "bfloat16": (torch.zeros(6, dtype=torch.bfloat16), adds),
    "double": (torch.zeros(6, dtype=torch.float64), adds),
    "complex": (torch.zeros(6, dtype=torch.complex64), lambda layer, x: layer.kept.add_(x[0] * 1j)),
    "double complex": (
        torch.zeros(6, dtype=torch.complex128),
        lambda layer, x: layer.kept.add_(x[0] * (1 + 2j)),
    ),
    ".data of another shape": (torch.zeros(2), resizes),
    "expanded": (
        torch.zeros(6).expand(4, 6),
        lambda layer, x: setattr(layer, "kept", x.mean(0).expand(4, 6)),
    ),
    "large": (torch.zeros(2**17), lambda layer, x: layer.kept.data.add_(x.mean())),
    "made": (None, makes),
    "registered": (torch.zeros(2), registers),
    "transposed": (torch.zeros(6, 4).T, lambda layer, x: layer.kept.add_(x)),
    "scalar": (torch.tensor(1.0), lambda layer, x: layer.kept.mul_(0.9).add_(x.mean())),
    "the largest number": (torch.zeros(3), sets_largest),
}
"""Initial values and changes of buffers that become means over ranks."""

VALUES = {
    "counter": (torch.tensor(0), counts),
    "int32": (torch.zeros(3, dtype=torch.int32), counts),
    "int16": (torch.zeros(3, dtype=torch.int16), counts),
    "uint16": (torch.zeros(3, dtype=torch.uint16), lambda layer, _: layer.kept.fill_(60000)),
    "int64 of all bits": (torch.zeros(5, dtype=torch.int64), draws),
    "state of a generator": (torch.Generator().get_state(), draws_bytes),
    "mask": (torch.zeros(6, dtype=torch.bool), flips),
    "unit vectors": (torch.randn(4, 6), normalizes),
    "unit vectors and zeros": (torch.zeros(4, 6), fills),
}
"""Those that become the value of the first rank with tasks."""


def rounds_of(initial, change, rounds=4, **options):
    """For each round the buffers of each rank before the reduction, and after it."""
    model = nn.Sequential(Keeper(copy.deepcopy(initial), change, **options), nn.Linear(6, 2))
    allocator = forced()
    for _ in range(rounds):
        local = []
        play(model, allocator, before_reduce=lambda: local.append(tensors(model)))  # noqa: B023
        yield gathered(local[0]), gathered(tensors(model)), model


def assert_alike(after):
    for other in after[1:]:
        assert other.keys() == after[0].keys()
        for name, tensor in after[0].items():
            assert tensor.dtype == other[name].dtype
            torch.testing.assert_close(other[name], tensor, rtol=0, atol=0)


def means():
    for kind, (initial, change) in MEANS.items():
        for local, after, _ in rounds_of(initial, change):
            assert_alike(after)
            for name in after[0]:
                values = [tensors.get(name) for tensors in local]
                expected = (2 * values[1].to(torch.complex128) + values[2]) / 3
                tolerance = 2 * torch.finfo(values[1].dtype).eps
                torch.testing.assert_close(
                    after[0][name].to(torch.complex128),
                    expected,
                    rtol=tolerance,
                    atol=tolerance,
                    msg=lambda text, kind=kind: f"{kind}: {text}",
                )


def test_floating_buffers_become_means_weighted_by_tasks():
    on_ranks(3, means)


def values_of_one():
    for kind, (initial, change) in VALUES.items():
        differ = False
        for local, after, _ in rounds_of(initial, change):
            assert_alike(after)
            for name in after[0]:
                assert torch.equal(after[0][name], local[1][name]), kind
                differ |= not torch.equal(local[1][name], local[2][name])
        assert differ or kind == "uint16"


def test_other_buffers_become_those_of_the_first_rank_with_tasks():
    on_ranks(3, values_of_one)


def exact():
    for _, after, _ in rounds_of(torch.tensor(0.0), sets_to_7):
        assert [tensors["0.kept"].item() for tensors in after] == [7.0] * 3


def test_equal_integers_in_a_floating_buffer_keep_their_value():
    on_ranks(3, exact)


def changes_on_one_rank(layer, _):
    if dist.get_rank() == 2:
        layer.kept.fill_(value=True)


def only_on_one():
    for _, after, _ in rounds_of(torch.tensor(False), changes_on_one_rank):
        assert all(tensors["0.kept"].item() for tensors in after)


def test_a_value_that_one_rank_alone_changed_is_kept():
    on_ranks(3, only_on_one)


def caches():
    for local, after, model in rounds_of(torch.zeros(1), grows, persistent=False):
        assert [tensors["0.kept"].tolist() for tensors in after] == [
            tensors["0.kept"].tolist() for tensors in local
        ]
        assert not model[0].state_dict().keys() & {"kept"}
    changed = refused(lambda: list(rounds_of(torch.zeros(1), grows)))
    sparse = refused(
        lambda: list(
            rounds_of(torch.eye(3).to_sparse(), lambda layer, _: layer.kept.mul_(2.0)),
        )
    )
    # The cures: one shape, a dense tensor, and a change outside the round.
    for initial in (torch.zeros(9), torch.eye(3)):
        for _, after, _ in rounds_of(initial, lambda layer, _: layer.kept.add_(1.0)):
            assert_alike(after)
    model = nn.Sequential(Keeper(torch.eye(3).to_sparse(), lambda *_: None), nn.Linear(6, 2))
    allocator = forced()
    for _ in range(2):
        play(model, allocator)
        model[0].kept.mul_(2.0)
    assert allocator.rounds == 2
    return changed, sparse


def test_caches_of_a_rank_are_its_own_and_what_has_no_mean_is_refused_by_name():
    answers = on_ranks(3, caches)
    assert answers[0] == answers[1] == answers[2]
    changed, sparse = answers[0]
    assert changed.startswith("ValueError: round 1: the tasks changed the buffer 0.kept, which has")
    assert "persistent=False" in changed
    assert sparse.startswith("ValueError: round 1: the tasks changed the buffer 0.kept, which is")
    assert "dense" in sparse


def failing():
    """Rounds that fail leave the buffers as before, in each way to change them."""
    for initial, change in (*MEANS.values(), *VALUES.values(), (torch.zeros(1), grows)):
        model = nn.Sequential(
            Keeper(copy.deepcopy(initial), change, persistent=change is not grows),
            nn.BatchNorm1d(6),
        )
        allocator = forced()
        for _ in range(2):
            before = tensors(model)
            message = refused(lambda: play(model, allocator, fails=dist.get_rank() == 1))  # noqa: B023
            assert message.startswith("FloatingPointError")
            assert before.keys() == tensors(model).keys()
            for name, tensor in tensors(model).items():
                assert (tensor is None) == (before[name] is None)
                assert tensor is None or torch.equal(tensor, before[name])
            play(model, allocator)
    # sparse ones, too
    model = Keeper(torch.eye(3).to_sparse(), lambda layer, _: layer.kept.mul_(2.0))
    refused(lambda: play(model, forced()))
    assert torch.equal(model.kept.to_dense(), torch.eye(3))


def test_a_round_that_fails_leaves_the_buffers_of_before():
    on_ranks(3, failing)


class OldSpectral(nn.Sequential):
    def __init__(self):
        super().__init__(nn.utils.spectral_norm(nn.Linear(6, 8)), nn.Linear(8, 3))


def spectral(make, wrap):
    torch.manual_seed(0)
    model = wrap(make())
    allocator = forced()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(20):
        play(model, allocator)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    outputs = gathered(model(torch.ones(2, 6)))
    assert all(torch.equal(output, outputs[0]) for output in outputs)
    layer = next(module for module in model.modules() if isinstance(module, nn.Linear))
    return torch.linalg.matrix_norm(layer.weight.detach(), 2).item()


def all_spectral():
    for make in (
        lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 8)), nn.Linear(8, 3)),
        OldSpectral,
    ):
        for wrap in (lambda model: model, nn.parallel.DistributedDataParallel):
            assert abs(spectral(make, wrap) - 1.0) < 0.02


def test_spectral_norm_is_the_same_on_all_ranks_and_near_1():
    on_ranks(3, all_spectral)


class Shared(nn.Module):
    """Two modules with one buffer, which one of them may replace."""

    def __init__(self, change):
        super().__init__()
        self.first = Keeper(torch.zeros(6), change)
        self.second = Keeper(torch.zeros(6), lambda *_: None)
        self.second.kept = self.first.kept

    def forward(self, x):
        return self.first(x) + self.second(x)


def shared():
    for change in (adds, reassigns):
        model = Shared(change)
        allocator = forced()
        for _ in range(3):
            play(model, allocator)
            assert_alike(gathered(tensors(model)))
        assert (model.first.kept is model.second.kept) == (change is adds)
        assert torch.equal(model.first.kept, model.second.kept) == (change is adds)


def test_buffers_of_two_modules():
    on_ranks(3, shared)


def sharded():
    model = build("fsdp")
    model.first.register_buffer("mean", torch.zeros(12))

    def remember(layer, inputs):
        with torch.no_grad():
            layer.mean += inputs[0].mean(0)

    model.first.register_forward_pre_hook(remember)
    allocator = forced()
    for number in range(3):
        local = []
        play(
            model,
            allocator,
            lambda x: model(torch.cat([x, x], 1)).square().mean(),
            before_reduce=lambda: local.append(tensors(model)["first.mean"]),  # noqa: B023
        )
        values = gathered(local[0])
        for after in gathered(model.first.mean):
            torch.testing.assert_close(after, (2 * values[1] + values[2]) / 3)
        assert number == 0 or values[0].any()


def test_buffers_of_a_sharded_model():
    on_ranks(3, sharded)


def adversarial():
    """A generator and a discriminator with allocators of their own; each round runs both."""
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
    discriminator = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(6, 6)), nn.BatchNorm1d(6), nn.Linear(6, 1)
    )
    first = forced(check_every=1)
    second = forced((1, 2, 0), check_every=1)
    for number in range(4):
        play(discriminator, first, lambda x: discriminator(generator(x).detach()).square().mean())
        discriminator.zero_grad()
        if number:
            assert_alike(gathered(tensors(generator)))
        play(generator, second, lambda x: discriminator(generator(x)).square().mean())
        assert_alike(gathered(tensors(generator)))
        assert_alike(gathered(tensors(discriminator)))
        generator.zero_grad()
        discriminator.zero_grad()


def test_two_models_with_allocators_of_their_own_that_run_in_each_others_rounds():
    on_ranks(3, adversarial)


def in_any_way(layer, _):
    """Changes one element of a large buffer without a trace."""
    layer.kept.data[-1] += 1 + dist.get_rank()


def noticed_late():
    after = []
    for _, values, _ in rounds_of(torch.zeros(2**17), in_any_way, rounds=4):
        after.append([tensors["0.kept"][-1].item() for tensors in values])
    return after


def test_an_element_of_a_large_buffer_that_changes_without_a_trace_is_noticed_in_time():
    *_, after = on_ranks(3, noticed_late)[0]
    assert len(set(after)) == 1
    assert after[0] > 0


def play_on_mesh(change, shares=(1, 3)):
    """Rounds of two replicas of two ranks; the change is made on one rank of each replica."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    place, part = mesh.get_coordinate()
    torch.manual_seed(0)
    model = nn.Sequential(
        Keeper(torch.zeros(6), change if part else adds, persistent=True), nn.BatchNorm1d(6)
    )
    allocator = TorchAllocator(
        sum(shares),
        "uta",
        mesh=mesh["dp"],
        name=f"w{place}",
        limits={f"w{number}": (tasks, tasks) for number, tasks in enumerate(shares)},
        warm_up=0,
    )
    for _ in range(3):
        with allocator.round(model) as share:
            for number in range(share.tasks):
                with share.timed():
                    generator = torch.Generator().manual_seed(10 * place + number)
                    x = torch.randn(4, 6, generator=generator)
                    share.backward(model(x).square().mean())
            local = tensors(model)
            share.reduce()
        yield place, part, gathered((place, part, local)), tensors(model)


def buffers_of_replicas():
    for place, part, everything, after in play_on_mesh(adds_in_data):
        both = {other: local for other, own, local in everything if own == part}
        for name in ("0.kept", "1.running_mean", "1.running_var"):
            torch.testing.assert_close(after[name], (both[0][name] + 3 * both[1][name]) / 4)
        assert after["1.num_batches_tracked"] == both[0]["1.num_batches_tracked"]
        assert place in both
    return refused(lambda: list(play_on_mesh(grows)))


def test_ranks_of_replicas_sum_their_buffers_each_and_fail_together():
    texts = on_ranks(4, buffers_of_replicas)
    assert texts[0].startswith(
        "ValueError: round 1: the tasks changed the buffer 0.kept, which has"
    )
    assert texts == [texts[0]] * 4


DIFFERENCES = {
    "1.running_var": lambda model: model[1].running_var.fill_(2.0),
    "1.num_batches_tracked": lambda model: model[1].num_batches_tracked.add_(1),
    "more": lambda model: model.register_buffer("more", torch.ones(2)),
    "0.kept": lambda model: model[0].kept.add_(1.0),
}


def differing(name, rounds):
    """What a rank says if a buffer differs as a round begins."""
    model = nn.Sequential(
        Keeper(torch.ones(6), lambda *_: None, persistent=False), nn.BatchNorm1d(6)
    )
    allocator = forced(check_every=2)
    for _ in range(rounds):
        play(model, allocator)
    if dist.get_rank() == 1:
        DIFFERENCES[name](model)
    before = tensors(model)
    message = refused(lambda: play(model, allocator))
    assert all(torch.equal(before[name], now) for name, now in tensors(model).items())
    return message


@pytest.mark.parametrize("name", DIFFERENCES)
@pytest.mark.parametrize("rounds", [0, 2])
def test_different_buffers_are_named_on_every_rank(name, rounds):
    for message in on_ranks(3, differing, name, rounds):
        assert message.startswith(
            f"RuntimeError: round {1 + rounds}: the models have different buffers, such as {name};"
            " b differs from a. The step is not taken.",
        )


def used_on_one_rank():
    model = Keeper(None, makes, persistent=False)
    if dist.get_rank() == 1:
        model(torch.ones(4, 6))
    play(model, forced())
    assert_alike(gathered(tensors(model)))


def test_a_cache_that_one_rank_has_used_is_no_difference():
    on_ranks(3, used_on_one_rank)


def sent(model, rounds, prepare=lambda _: None):
    """The collectives of each round, with the number of elements."""
    allocator = forced(check_every=4)
    every = []
    all_reduce = dist.all_reduce
    for number in range(rounds):
        prepare(number)
        calls = []

        def count(tensor, *arguments, calls=calls, **options):
            calls.append(tensor.numel())
            return all_reduce(tensor, *arguments, **options)

        with mock.patch.object(dist, "all_reduce", count):
            play(model, allocator)
        every.append(calls)
    return every


def turn(model, number):
    """Let each round change one buffer, in turn."""
    for place, keeper in enumerate(model):
        keeper.change = adds if number % 2 == place else lambda *_: None


def collectives():
    plain = sent(nn.Linear(6, 6), 3)
    constant = Keeper(torch.full((300, 300), -math.inf), lambda *_: None)
    norm = sent(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)), 3)

    def makes_once(layer, _):
        if layer.kept is None:
            layer.kept = torch.ones(300)

    cache = sent(Keeper(None, makes_once), 40)
    both = nn.Sequential(Keeper(torch.zeros(6), adds), Keeper(torch.zeros(6), adds))
    in_turn = sent(both, 6, lambda number: turn(both, number))
    assert_alike(gathered(tensors(both)))
    return plain, sent(constant, 3), norm, cache, in_turn


def test_what_is_sent():
    plain, constant, norm, cache, in_turn = on_ranks(3, collectives)[1]
    # In the first round the ranks compare their layouts, and tell each other of their buffers: how
    # long the text is, the text, and those that have changed.
    assert [len(calls) for calls in (plain[0], constant[0], norm[0], cache[0])] == [4, 4, 5, 5]
    length = plain[0][1]
    assert plain[1:] == constant[1:] == [[length]] * 2
    # 12 parameters and two marks more; two flags for each of three buffers, 6 + 6 elements, and
    # four pieces of a counter
    assert norm[1:] == [[length + 12 + 2 + 2 * 3 + 6 + 6 + 4]] * 2
    # It is sent until the next round with a check.
    assert cache[1:4] == [[length + 2 + 300]] * 3
    assert [len(calls) for calls in cache[4:]] == [3, 1, 1, 1] * 9
    assert cache[-1] == [length]
    # What a round has not changed is sent on, until the next round with a check.
    assert [len(calls) for calls in in_turn] == [5, 4, 1, 1, 4, 4]
