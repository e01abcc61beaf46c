"""Where several ranks hold a replica of the model, the replica is the worker: its ranks have one
share, and the gradient is the gradient of one process.
"""

import math
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe  # noqa: E402
from torch.distributed.pipelining.schedules import (  # noqa: E402
    Schedule1F1B,
    ScheduleInterleaved1F1B,
)
from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from ata_gym.cluster import TaskSampler, TorchAllocator  # noqa: E402
from ata_gym.cluster.torchrun.gradients import buckets  # noqa: E402
from ata_gym.cluster.torchrun.ranks.parts import Fault, RankPart  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import refused  # noqa: E402

BUDGET = 8
SAMPLES = 2
ROUNDS = 3
TRAINED = 2
"""The rounds in which each form is trained: the second is from what the first has made."""
RATE = 0.1


def data():
    generator = torch.Generator().manual_seed(3)
    shape = (BUDGET * SAMPLES * ROUNDS, 4, 6)
    return TensorDataset(
        torch.randn(shape, generator=generator, dtype=torch.float64),
        torch.randn(shape, generator=generator, dtype=torch.float64),
    )


def net(dropout=0.0):
    """Four layers; two ranks halve the width of the hidden one, and cannot halve it again."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.LayerNorm(6),
        nn.Linear(6, 10),
        nn.Sequential(nn.Tanh(), nn.Dropout(dropout)),
        nn.Linear(10, 6),
    ).double()


def loss_of(outputs, targets):
    return (outputs - targets).square().mean()


def named_shares(shares, index, **options):
    """An allocator that gives replica i the i-th number of tasks in each round."""
    limits = {f"w{place}": (tasks, tasks) for place, tasks in enumerate(shares)}
    options = {"warm_up": 0, "check_every": 1, "name": f"w{index}", **options}
    return TorchAllocator(sum(shares), "uta", limits=limits, **options)


def loader_of(allocator, **options):
    options = {"samples": SAMPLES, "shuffle": False, **options}
    pairs = data()
    return DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs, **options))


def tensor_parallel(mesh, model):
    parallelize_module(model, mesh, {"1": ColwiseParallel(), "3": RowwiseParallel()})


def sequence_parallel(mesh, model):
    plan = {
        "0": SequenceParallel(),
        "1": ColwiseParallel(input_layouts=Shard(1)),
        "3": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }
    parallelize_module(model, mesh, plan)


def mesh_of(*names):
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=names)


def build(form):
    """The mesh of the allocator, the model, and how its output is computed."""
    model = net()
    if form == "plain":
        return mesh_of("dp", "tp"), model, model
    if form == "tensor":
        mesh = mesh_of("dp", "tp")
        tensor_parallel(mesh["tp"], model)
        return mesh["dp"], model, model
    if form == "sequence":
        mesh = mesh_of("dp", "tp")
        sequence_parallel(mesh["tp"], model)
        return mesh["dp"], model, lambda x: model(distribute_tensor(x, mesh["tp"], [Shard(1)]))
    if form == "sharded tensor":
        mesh = mesh_of("dp", "tp")
        tensor_parallel(mesh["tp"], model)
        fully_shard(model[1], mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
        return mesh, model, model
    mesh = mesh_of("dp_replicate", "dp_shard")
    if form == "hybrid, each rank a worker":
        fully_shard(model, mesh=mesh)
        return mesh, model, model
    if form == "hybrid":
        fully_shard(model, mesh=mesh)
        return mesh["dp_replicate"], model, model
    assert form == "sharded in the replica"
    fully_shard(model[1], mesh=mesh["dp_shard"])
    fully_shard(model, mesh=mesh["dp_shard"])
    return mesh["dp_replicate"], model, model


def whole(tensor):
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    return tensor.detach().clone().numpy()


def expected_training(budget=BUDGET, **options):
    """The parameters and gradients of each round, of one process without an allocator."""
    model = net(**options)
    inputs, targets = data().tensors
    history = []
    for number in range(TRAINED):
        model.zero_grad()
        tasks = slice(number * budget * SAMPLES, (number + 1) * budget * SAMPLES)
        loss = loss_of(model(inputs[tasks]), targets[tasks])
        loss.backward()
        record = [loss.item(), *(whole(p.grad) for p in model.parameters())]
        torch.optim.SGD(model.parameters(), RATE).step()
        history.append([*record, *map(whole, model.parameters())])
    return history


def train(form, shares):
    mesh, model, output = build(form)
    if form == "hybrid, each rank a worker":
        index = dist.get_rank()
    else:
        index = dist.get_rank() // 2
    allocator = named_shares(shares, index, mesh=mesh)
    loader = loader_of(allocator)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    history = []
    taken = []
    for _ in range(TRAINED):
        with allocator.round(model) as share:
            for inputs, targets in share.take(loader):
                outputs = output(inputs)
                if form == "sequence":
                    outputs = outputs.full_tensor()
                taken.append(inputs[0, 0, 0].item())
                share.backward(loss_of(outputs, targets))
            share.reduce()
        record = [allocator.last.loss, *(whole(p.grad) for p in model.parameters())]
        optimizer.step()
        optimizer.zero_grad()
        history.append([*record, *map(whole, model.parameters())])
    return history, allocator.last.tasks, taken


def assert_same(history, expected):
    for record, expected_record in zip(history, expected, strict=True):
        for value, expected_value in zip(record, expected_record, strict=True):
            np.testing.assert_allclose(value, expected_value, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def answers():
    """What each rank gives for each work, by the name of the work.

    They are in one process group: DTensors remember process groups that have ended.
    """
    ranks = on_ranks(4, everything)
    return {name: [rank[name] for rank in ranks] for name in ranks[0]}


FORMS = ("plain", "tensor", "sequence", "sharded tensor", "hybrid", "sharded in the replica")


def all_forms():
    # With small buckets, gradients are sent while the last backward pass goes on.
    with mock.patch.object(buckets, "_SIZE", 64):
        return _all_forms()


def _all_forms():
    return {
        **{(form, shares): train(form, shares) for form in FORMS for shares in ((5, 3), (8, 0))},
        ("hybrid, each rank a worker", (4, 0, 1, 3)): train(
            "hybrid, each rank a worker", (4, 0, 1, 3)
        ),
    }


def test_each_form_of_a_replica_trains_as_one_process_with_unequal_shares(answers):
    ranks = answers["all_forms"]
    expected = expected_training()
    for form, shares in ranks[0]:
        for rank in ranks:
            history, tasks, _ = rank[form, shares]
            assert_same(history, expected)
            assert tuple(tasks.values()) == shares
        taken = [rank[form, shares][2] for rank in ranks]
        if len(shares) == 2:
            assert taken[0] == taken[1]
            assert taken[2] == taken[3]
        assert not set(taken[0]) & set(taken[2])


def pipeline(schedule_of, stages, shares):
    """Train the layers of a net in a pipeline; the parameters that this rank has, by name."""
    mesh = mesh_of("dp", "pp")
    layers = net()
    rank = mesh["pp"].get_local_rank()
    cuts = np.array_split(np.arange(len(layers)), stages)
    parts = nn.ModuleDict()
    pipeline_stages = []
    for place in range(rank, stages, 2):
        part = nn.ModuleDict({str(layer): layers[layer] for layer in cuts[place]})
        part.forward = lambda x, part=part: _through(part, x)
        parts[f"stage{place}"] = part
        group = mesh["pp"].get_group()
        pipeline_stages.append(PipelineStage(part, place, stages, torch.device("cpu"), group=group))
    if stages == 2:
        (pipeline_stages,) = pipeline_stages
    schedule = schedule_of(pipeline_stages)
    allocator = named_shares(shares, dist.get_rank() // 2, mesh=mesh["dp"])
    loader = loader_of(allocator)
    optimizer = torch.optim.SGD(parts.parameters(), RATE)
    history = []
    for _ in range(TRAINED):
        with allocator.round(parts) as share:
            for inputs, targets in share.take(loader):
                if rank == 0:
                    share.pipeline(schedule, inputs, target=targets)
                else:
                    share.pipeline(schedule, target=targets)
            share.reduce()
        gradients = {name[7:]: whole(p.grad) for name, p in parts.named_parameters()}
        optimizer.step()
        optimizer.zero_grad()
        weights = {name[7:]: whole(p) for name, p in parts.named_parameters()}
        history.append((allocator.last.loss, gradients, weights))
    return history


def _through(part, x):
    for layer in part.values():
        x = layer(x)
    return x


def all_pipelines():
    schedules = {
        "GPipe": (lambda stage: ScheduleGPipe(stage, 2, loss_of), 2),
        "1F1B of sums": (
            lambda stage: Schedule1F1B(stage, 2, lambda y, t: loss_of(y, t) / 2, scale_grads=False),
            2,
        ),
        "interleaved": (lambda stages: ScheduleInterleaved1F1B(stages, 2, loss_of), 4),
    }
    return {
        (name, shares): pipeline(*schedules[name], shares)
        for name in schedules
        for shares in ((5, 3), (8, 0))
    }


@pytest.mark.filterwarnings("ignore")
def test_pipelines_train_as_one_process_with_unequal_shares(answers):
    ranks = answers["all_pipelines"]
    names = [name for name, _ in net().named_parameters()]
    for key in ranks[0]:
        seen = set()
        for rank in ranks:
            for (loss, gradients, weights), record in zip(
                rank[key], expected_training(), strict=True
            ):
                np.testing.assert_allclose(loss, record[0], rtol=0, atol=1e-12)
                expected_gradients = dict(zip(names, record[1:], strict=False))
                expected_weights = dict(zip(names, record[1 + len(names) :], strict=True))
                seen |= set(gradients)
                for name in gradients:
                    np.testing.assert_allclose(
                        gradients[name], expected_gradients[name], rtol=0, atol=1e-12
                    )
                    np.testing.assert_allclose(
                        weights[name], expected_weights[name], rtol=0, atol=1e-12
                    )
        assert seen == set(names)


def play(allocator, model, *, spoil=lambda loss: loss, loader=None, **how):
    """A round, with ``spoil`` of each loss."""
    if loader is None:
        loader = loader_of(allocator)
    with allocator.round(model) as share:
        for inputs, targets in share.take(loader):
            share.backward(spoil(loss_of(model(inputs), targets)), **how)
        share.reduce()


def on_rank(rank, change, other=lambda loss: loss):
    if dist.get_rank() == rank:
        return change
    return other


class Infinite(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, loss):
        return loss.clone()

    @staticmethod
    def backward(_ctx, gradient):
        return gradient * math.inf


def fail(_loss):
    raise StopIteration("a rank stops")


def again(work, parallel=tensor_parallel, **options):
    """A fault in a round of a model, which changes nothing, and the round once more."""
    mesh = mesh_of("dp", "tp")
    model = net()
    if parallel:
        parallel(mesh["tp"], model)
    allocator = named_shares((5, 3), dist.get_rank() // 2, mesh=mesh["dp"], **options)
    play(allocator, model)
    before = [whole(p.grad) for p in model.parameters()]
    message = refused(lambda: work(allocator, model))
    assert allocator.rounds == 1
    for old, parameter in zip(before, model.parameters(), strict=True):
        np.testing.assert_array_equal(old, whole(parameter.grad))
    play(allocator, model)
    assert allocator.rounds == 2
    return message


def spoiled(rank, change):
    return lambda allocator, model: play(allocator, model, spoil=on_rank(rank, change))


class TwoStages:
    """A pipeline of two stages, on each of two replicas."""

    def __init__(self, loss=None, *, averages=True, **options):
        mesh = mesh_of("dp", "pp")
        self.number = mesh["pp"].get_local_rank()
        layers = net()
        self.part = layers[:2] if self.number == 0 else layers[2:]
        group = mesh["pp"].get_group()
        stage = PipelineStage(self.part, self.number, 2, torch.device("cpu"), group=group)
        self.schedule = ScheduleGPipe(stage, 2, loss or loss_of, scale_grads=averages)
        options = {"mesh": mesh["dp"], **options}
        self.allocator = named_shares((5, 3), dist.get_rank() // 2, **options)
        self.loader = loader_of(self.allocator)

    def play(self, weight_of=lambda _targets: None):
        with self.allocator.round(self.part) as share:
            for inputs, targets in share.take(self.loader):
                own_inputs = [inputs] if self.number == 0 else []
                weight = weight_of(targets)
                share.pipeline(self.schedule, *own_inputs, target=targets, weight=weight)
            share.reduce()

    def gradients(self):
        return {name: whole(p.grad) for name, p in self.part.named_parameters()}


def stage_with_infinite_gradient():
    """The first stage of the second replica has an infinite gradient."""
    stages = TwoStages()
    if dist.get_rank() == 2:
        stages.part[1].weight.register_hook(lambda gradient: gradient * math.inf)
    stages.play()


def counted(targets):
    """Which numbers of targets count; in some tasks none does."""
    return (targets > 0.0) & (targets[:, :1, :1] > 0.0)


def sum_of_counted(outputs, targets):
    return (counted(targets) * (outputs - targets).square()).sum()


def mean_of_counted(outputs, targets):
    return sum_of_counted(outputs, targets) / counted(targets).sum()


def weighted_pipelines():
    """The gradient and loss after each of three rounds, of which two are of one step."""
    answers = {}
    for stage_tells in (True, False):
        stages = TwoStages(sum_of_counted, averages=False)
        optimizer = torch.optim.SGD(stages.part.parameters(), RATE)

        def weight_of(targets, tells=stage_tells or stages.number == 1):
            return counted(targets).sum() if tells else None

        history = []
        for number in range(ROUNDS):
            stages.play(weight_of)
            last = stages.allocator.last
            history.append((stages.gradients(), last.loss, last.weight))
            if number == 1:
                optimizer.step()
                optimizer.zero_grad()
        answers[stage_tells] = history
    return answers


def weighted_tensors():
    """The gradient after each of two rounds of a step, in replicas of a tensor-parallel model."""
    mesh = mesh_of("dp", "tp")
    model = net()
    tensor_parallel(mesh["tp"], model)
    allocator = named_shares((5, 3), dist.get_rank() // 2, mesh=mesh["dp"])
    loader = loader_of(allocator)
    history = []
    for _ in range(2):
        with allocator.round(model) as share:
            for inputs, targets in share.take(loader):
                loss = sum_of_counted(model(inputs), targets)
                share.backward(loss, weight=counted(targets).sum())
            share.reduce()
        history.append([whole(parameter.grad) for parameter in model.parameters()])
    return history


def of_one_process():
    """The gradients by name, loss and weight of rounds in which two are of one step."""
    model = net()
    inputs, targets = data().tensors
    history = []
    for number in range(ROUNDS):
        first = number - 1 if number == 1 else number
        tasks = slice(first * BUDGET * SAMPLES, (number + 1) * BUDGET * SAMPLES)
        last_tasks = slice(number * BUDGET * SAMPLES, (number + 1) * BUDGET * SAMPLES)
        model.zero_grad()
        mean_of_counted(model(inputs[tasks]), targets[tasks]).backward()
        loss = mean_of_counted(model(inputs[last_tasks]), targets[last_tasks]).item()
        gradients = {name: whole(p.grad) for name, p in model.named_parameters()}
        history.append((gradients, loss, counted(targets[last_tasks]).sum().item()))
        if number == 1:
            torch.optim.SGD(model.parameters(), RATE).step()
    return history


@pytest.mark.filterwarnings("ignore")
def test_weights_in_replicas_have_the_mean_of_one_process_over_the_rounds_of_a_step(answers):
    expected = of_one_process()
    targets = data().tensors[1].reshape(-1, SAMPLES, 4, 6)
    assert not all(counted(task).any() for task in targets)
    seen = set()
    for rank in answers["weighted_pipelines"]:
        for history in rank.values():
            for (gradients, loss, weight), right in zip(history, expected, strict=True):
                seen |= set(gradients)
                for name, gradient in gradients.items():
                    np.testing.assert_allclose(gradient, right[0][name], rtol=0, atol=1e-12)
                np.testing.assert_allclose(loss, right[1], rtol=0, atol=1e-12)
                assert weight == right[2]
    assert seen == set(expected[0][0])
    for rank in answers["weighted_tensors"]:
        for gradients, right in zip(rank, expected[:2], strict=True):
            for gradient, right_gradient in zip(gradients, right[0].values(), strict=True):
                np.testing.assert_allclose(gradient, right_gradient, rtol=0, atol=1e-12)


def pipeline_of_nothing():
    """The last of three tasks of the second replica has a mean over nothing."""
    stages = TwoStages(mean_of_counted, averages=False)
    rows = iter((1.0, 1.0, dist.get_rank() < 2, 1.0, 1.0))

    def weight_of(targets):
        targets.fill_(next(rows))
        return counted(targets).sum()

    stages.play(weight_of)


def pipeline_with_other_weights():
    stages = TwoStages(sum_of_counted, averages=False)
    stages.play(lambda _targets: 1.0 + (dist.get_rank() == 2))


def pipeline_with_some_weights():
    """The stage that has the loss has no weight, and the other one has."""
    stages = TwoStages(sum_of_counted, averages=False)
    stages.play(lambda _targets: 0.0 if stages.number == 0 else None)


def pipeline_of_means():
    TwoStages().play(lambda _targets: 1.0)


def sparse_rows():
    """A table of rows, of which each rank of a replica has a part, with sparse gradients."""
    mesh = mesh_of("dp", "tp")
    model = nn.Sequential(nn.Embedding(8, 4, sparse=True), nn.Linear(4, 4)).double()
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(output_layouts=Replicate())})
    allocator = named_shares((5, 3), dist.get_rank() // 2, mesh=mesh["dp"])
    numbers = torch.arange(8)

    def play_rows():
        with allocator.round(model) as share:
            with share.timed(share.tasks):
                share.backward(model(numbers).square().mean())
            share.reduce()

    message = refused(play_rows)
    assert allocator.rounds == 0
    # The advice is to leave sparse out.
    model[0].sparse = False
    play_rows()
    assert allocator.rounds == 1
    return message


def without_older_rounds(allocator, model):
    """One rank has set its gradients to None between two rounds of a step."""
    old = [parameter.grad.clone() for parameter in model.parameters()]
    if dist.get_rank() == 3:
        model.zero_grad()
    try:
        play(allocator, model)
    finally:
        for parameter, gradient in zip(model.parameters(), old, strict=True):
            parameter.grad = gradient


def other_weights(allocator, model):
    """One rank has another part of a parameter, whose layer all ranks of its replica share."""
    part = model[1].bias.to_local().detach()
    saved = part.clone()
    if dist.get_rank() == 3:
        part.fill_(7.0)
    try:
        play(allocator, model)
    finally:
        part.copy_(saved)


def unlike_seeds(keyed):
    mesh = mesh_of("dp", "tp")
    model = net(dropout=0.5)
    allocator = named_shares((5, 3), dist.get_rank() // 2, mesh=mesh["dp"], keyed_noise=keyed)
    torch.manual_seed(dist.get_rank())
    play(allocator, model)


def other_order(allocator, model):
    loader = loader_of(allocator, shuffle=True, seed=dist.get_rank() // 3)
    play(allocator, model, loader=loader)


def without_memory(allocator, model):
    loader = loader_of(allocator, tasks_per_pass=2)

    def loss(batch):
        if dist.get_rank() > 1:
            raise torch.OutOfMemoryError
        return loss_of(model(batch[0]), batch[1])

    with allocator.round(model) as share:
        share.compute(loader, loss)
        share.reduce()


def tensor_parallel_in_a_plain_group():
    model = net()
    tensor_parallel(mesh_of("dp", "tp")["tp"], model)
    allocator = TorchAllocator(4, "uta")
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    try:
        play(allocator, model)
    finally:
        assert all((whole(parameter.grad) == 1.0).all() for parameter in model.parameters())


def tensor_parallel_over_replicas():
    model = net()
    mesh = mesh_of("dp", "tp")
    tensor_parallel(mesh["dp"], model)
    play(TorchAllocator(4, "uta", mesh=mesh["dp"]), model)


def trainer_of(name):
    from ata_gym import cluster as trainers

    allocator = TorchAllocator(4, mesh=mesh_of("dp", "tp"))
    if name == "TaskStrategy":
        return trainers.TaskStrategy(allocator)
    return trainers.TaskTrainer(net(), allocator=allocator)


FAILED = "RuntimeError: round 2: w1 failed inside the round"
CASES = [
    (
        lambda: again(spoiled(3, lambda loss: loss * math.nan)),
        "FloatingPointError: round 2: the loss of w1 is not finite",
    ),
    (
        lambda: again(spoiled(1, Infinite.apply), parallel=None),
        "FloatingPointError: round 2: the gradient of the parameter 0.weight on w0 is not finite",
    ),
    (
        stage_with_infinite_gradient,
        "FloatingPointError: round 1: the gradient of the parameter 1.weight on w1 is not finite",
    ),
    (
        pipeline_of_nothing,
        "FloatingPointError: round 1: a loss of w1 has weight 0 and is not finite, as a mean over",
    ),
    (
        pipeline_with_other_weights,
        "ValueError: round 1: the ranks of the replica w1 gave different weights",
    ),
    (
        pipeline_with_some_weights,
        "ValueError: round 1: the ranks of the replica w0 gave different weights",
    ),
    (
        pipeline_of_means,
        "ValueError: with a weight the loss is a sum, and the schedule has the mean over",
    ),
    (
        sparse_rows,
        "ValueError: Embedding(sparse=True) with a DTensor is not respected inside a round",
    ),
    (
        lambda: again(without_older_rounds),
        "RuntimeError: round 2: the models have gradients of different earlier rounds; the ranks of"
        " the replica w1 differ",
    ),
    (
        lambda: again(other_weights),
        "RuntimeError: round 2: the models have different weights; w1 differs from w0",
    ),
    (
        lambda: again(spoiled(2, lambda loss: 2 * loss)),
        "RuntimeError: round 2: the ranks of the replica w1 have different losses for the same",
    ),
    (
        lambda: unlike_seeds(False),
        "RuntimeError: round 1: the ranks of the replica w0 have different losses for the same",
    ),
    (lambda: unlike_seeds(True), ""),
    (
        lambda: again(other_order, parallel=None),
        "RuntimeError: round 2: the ranks follow different orders of samples; the ranks of the"
        " replica w1 differ",
    ),
    (
        lambda: again(
            lambda allocator, model: play(allocator, model, weight=1.0 + (dist.get_rank() == 3))
        ),
        "ValueError: round 2: the ranks of the replica w1 gave different weights",
    ),
    (
        lambda: named_shares((5, 3), 0, mesh=mesh_of("dp", "tp")["dp"], seed=dist.get_rank() // 3),
        "ValueError: seed must be the same on every rank",
    ),
    (
        tensor_parallel_in_a_plain_group,
        "ValueError: the parameter 1.weight is a DTensor of which several ranks have parts",
    ),
    (
        tensor_parallel_over_replicas,
        "ValueError: the parameter 1.weight is a DTensor of which several ranks have parts",
    ),
    (
        lambda: TorchAllocator(4, group=mesh_of("dp", "tp")["dp"].get_group()),
        "ValueError: group is the dimension dp of a DeviceMesh that has others",
    ),
    (
        lambda: TorchAllocator(4, group=dist.group.WORLD, mesh=mesh_of("dp", "tp")),
        "ValueError: group and mesh exclude each other",
    ),
    (
        lambda: TorchAllocator(4, mesh="dp"),
        "ValueError: mesh must be a DeviceMesh of torch",
    ),
    (
        lambda: TorchAllocator(4, mesh=mesh_of("replicate", "shard")),
        "ValueError: none of the dimensions of mesh (replicate, shard) has a name that begins with",
    ),
    (
        lambda: TorchAllocator(4, mesh=init_device_mesh("cpu", (2, 2))),
        "ValueError: none of the dimensions of mesh (without names) has a name that begins with",
    ),
    (
        lambda: TorchAllocator(
            4, mesh=DeviceMesh("cpu", [[0, 3], [2, 1]], mesh_dim_names=("dp", "tp"))
        ),
        "ValueError: the ranks of mesh must ascend along its data-parallel dimension",
    ),
    (
        lambda: TorchAllocator(4, mesh=DeviceMesh("cpu", [0, 1], mesh_dim_names=("dp",))),
        "ValueError: mesh must have each of the 4 ranks of the default process group once",
    ),
    (
        lambda: trainer_of("TaskStrategy"),
        "ValueError: TaskStrategy gives each rank the whole model, and TorchAllocator(mesh=...)",
    ),
    (
        lambda: trainer_of("TaskTrainer"),
        "ValueError: TaskTrainer gives each rank the whole model, and TorchAllocator(mesh=...)",
    ),
    (
        lambda: TorchAllocator(
            4, group=DeviceMesh("cpu", [0, 1, 2, 3], mesh_dim_names=("dp",)).get_group()
        ),
        "",
    ),
]
"""What ranks do, and what every one of them says to it."""


def said(work):
    """What a work says as an error, or returns as the text of one."""
    answers = []
    message = refused(lambda: answers.append(work()))
    return message or (answers[0] if isinstance(answers[0], str) else "")


def all_faults():
    return [said(work) for work, _ in CASES]


def test_every_rank_of_every_replica_says_the_same_and_can_begin_the_round_again(answers):
    ranks = answers["all_faults"]
    for rank in ranks[1:]:
        assert rank == ranks[0]
    for message, (_, sentence) in zip(ranks[0], CASES, strict=True):
        assert message.startswith(sentence), message
        assert bool(message) == bool(sentence)


def failures():
    return (
        again(spoiled(2, fail), parallel=None),
        again(without_memory, parallel=None),
    )


def test_a_rank_that_fails_raises_its_own_error_and_all_others_name_its_replica(answers):
    ranks = answers["failures"]
    for place, (stopped, memory) in enumerate(ranks):
        if place == 2:
            assert stopped == "StopIteration: a rank stops"
        else:
            assert stopped.startswith(FAILED)
        if place > 1:
            assert memory.startswith("OutOfMemoryError")
        else:
            assert memory.startswith(FAILED)


def with_dropout(shares=(5, 3)):
    """The gradients of a round with dropout, in which the ranks of a replica draw alike."""
    model = net(dropout=0.5)
    if dist.get_world_size() == 1:
        options = {}
        index = 0
    else:
        mesh = mesh_of("dp", "tp")
        plan = {
            "1": ColwiseParallel(output_layouts=Replicate()),
            "3": ColwiseParallel(output_layouts=Replicate()),
        }
        parallelize_module(model, mesh["tp"], plan)
        options = {"mesh": mesh["dp"]}
        index = dist.get_rank() // 2
    torch.manual_seed(dist.get_rank())
    allocator = named_shares(shares, index, keyed_noise=True, **options)
    play(allocator, model)
    return [whole(parameter.grad) for parameter in model.parameters()]


def test_keyed_noise_is_the_same_in_a_replica_and_that_of_one_process(answers):
    (expected,) = on_ranks(1, with_dropout, (8,))
    for gradients in answers["with_dropout"]:
        for gradient, other in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(gradient, other, rtol=0, atol=1e-12)


def scaled():
    """Weights after three steps with a scaler; the gradient of one part overflows in the second."""
    mesh = mesh_of("dp", "tp")
    model = net()
    # A scaler of torch takes no plain parameters beside distributed ones.
    model[0].requires_grad_(False)
    tensor_parallel(mesh["tp"], model)
    allocator = named_shares((5, 3), dist.get_rank() // 2, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(model[1:].parameters(), RATE)
    scaler = torch.amp.GradScaler("cpu")
    scales = []
    for overflows in (False, True, False):
        spoil = on_rank(3, Infinite.apply if overflows else torch.clone)
        play(allocator, model, spoil=spoil, scaler=scaler)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
    return scales, [whole(parameter) for parameter in model.parameters()]


def test_all_ranks_leave_out_the_step_of_a_scaled_gradient_that_overflows(answers):
    ranks = answers["scaled"]
    model = net()
    inputs, targets = data().tensors
    optimizer = torch.optim.SGD(model[1:].parameters(), RATE)
    for number in (0, 2):
        tasks = slice(number * BUDGET * SAMPLES, (number + 1) * BUDGET * SAMPLES)
        optimizer.zero_grad()
        loss_of(model(inputs[tasks]), targets[tasks]).backward()
        optimizer.step()
    for scales, weights in ranks:
        assert scales == [65536.0, 32768.0, 32768.0]
        for weight, expected in zip(weights, model.parameters(), strict=True):
            np.testing.assert_allclose(weight, whole(expected), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("alone")
def test_gradients_that_a_schedule_sets_itself_count_and_a_schedule_needs_a_loss():
    """As the schedules without bubbles do, which no hook of a parameter notices."""
    model = net()
    reference = net()
    inputs, targets = data().tensors

    def step(*inputs, target, losses):
        parameters = list(model.parameters())
        loss = schedule._loss_fn(model(*inputs), target)
        losses.append(loss)
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(loss, parameters), strict=True
        ):
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    schedule = SimpleNamespace(_loss_fn=loss_of, _n_microbatches=1, scale_grads=True, step=step)
    allocator = TorchAllocator(BUDGET, "uta", warm_up=0)
    for _ in range(2):
        with allocator.round(model) as share:
            for inputs, targets in share.take(loader_of(allocator)):
                share.pipeline(schedule, inputs, target=targets)
            share.reduce()
    assert (schedule._loss_fn, schedule.scale_grads) == (loss_of, True)
    inputs, targets = data().tensors
    for number in range(2):
        tasks = slice(number * BUDGET * SAMPLES, (number + 1) * BUDGET * SAMPLES)
        loss_of(reference(inputs[tasks]), targets[tasks]).backward()
    for parameter, other in zip(model.parameters(), reference.parameters(), strict=True):
        np.testing.assert_allclose(whole(parameter.grad), whole(other.grad), rtol=0, atol=1e-12)
    schedule._loss_fn = None
    with (
        pytest.raises(ValueError, match="the schedule has no loss function: make it with loss_fn="),
        allocator.round(model) as share,
        share.timed(),
    ):
        share.pipeline(schedule)
    cured = SimpleNamespace(_loss_fn=loss_of, _n_microbatches=1, scale_grads=True, step=step)
    schedule = cured
    with allocator.round(model) as share:
        for inputs, targets in share.take(loader_of(allocator)):
            share.pipeline(schedule, inputs, target=targets)
        share.reduce()
    assert allocator.rounds == 3
    with (
        pytest.raises(RuntimeError, match="call pipeline inside the loop"),
        allocator.round(model) as share,
    ):
        share.pipeline(schedule)


def slowest_rank():
    """What ranks send about a round in which rank 2 is slow, one rank of a replica after the other
    leaves, and the last stages have losses.
    """
    rank = dist.get_rank()
    allocator = named_shares((2, 1), rank // 2, mesh=mesh_of("dp", "pp")["dp"])
    part = RankPart(*[0.0] * len(RankPart._fields))._replace(
        elapsed=(3.0, 4.0, 9.0, 5.0)[rank],
        latency=(1.0, 0.5, 2.0, 0.0)[rank],
        loss=(0.0, 0.25, 0.0, 0.75)[rank],
        leaves=float(rank == 3),
        weight=(0.0, 6.0, 0.0, 2.0)[rank],
        layout=float(1 + rank % 2),
        weights=1.0 + rank,
        fault=float(Fault.LOSS + len(Fault) * 2) if rank == 1 else 0.0,
    )
    seconds = [[1.0, 1.0], [1.5, 2.0], [7.0], [5.0]][rank]
    return allocator._replica.combined(1, seconds, part, has_loss=rank % 2 == 1, same_losses=True)


def test_a_replica_has_the_times_of_its_slowest_rank_and_the_faults_of_all(answers):
    ranks = answers["slowest_rank"]
    assert ranks[0] == ranks[1]
    assert ranks[2] == ranks[3]
    (first_seconds, first), (second_seconds, second) = ranks[0], ranks[2]
    assert (first_seconds, first.elapsed, first.latency) == ([1.5, 2.0], 4.0, 0.5)
    assert (second_seconds, second.elapsed, second.latency) == ([7.0], 9.0, 2.0)
    assert (first.loss, second.loss) == (0.25, 0.75)
    assert (first.weight, second.weight) == (6.0, 2.0)
    assert (first.leaves, second.leaves) == (0.0, 1.0)
    assert (first.fault, second.fault) == (Fault.LOSS + len(Fault) * 2, 0.0)
    assert first.layout == second.layout
    assert first.weights != second.weights


def membership():
    """Rounds in which the second replica leaves by one of its ranks, and a restart."""
    mesh = mesh_of("dp", "tp")
    model = nn.BatchNorm1d(4).double()
    options = {"mesh": mesh, "name": f"w{dist.get_rank()}", "warm_up": 0}
    allocator = TorchAllocator(4, "uta", **options)
    tasks = []
    for number in range(5):
        before = model.running_mean.clone()
        play(allocator, model)
        tasks.append(dict(allocator.last.tasks))
        if number == 0 and dist.get_rank() == 3:
            allocator.leave()
        if number == 2:
            allocator.join()
    # The statistics of the last round: a task moves them from those before by a tenth.
    places = slice(4 * 4 * SAMPLES, 5 * 4 * SAMPLES)
    means = data().tensors[0][places].reshape(4, SAMPLES, 4, 6).mean((1, 3))
    first, second = before.clone(), before.clone()
    for mean in means[:2]:
        first = 0.9 * first + 0.1 * mean
    for mean in means[2:]:
        second = 0.9 * second + 0.1 * mean
    torch.testing.assert_close(model.running_mean, (first + second) / 2)
    record = str(allocator.last.tasks), allocator.last.seconds, allocator.last.loss
    state = allocator.state_dict()
    restarted = TorchAllocator(4, "uta", **options)
    restarted.load_state_dict(state)
    play(restarted, model)
    return tasks, allocator.name, record, restarted.rounds


def test_a_replica_leaves_and_joins_as_a_whole_and_keeps_its_name_over_a_restart(answers):
    ranks = answers["membership"]
    assert [name for _, name, *_ in ranks] == ["w0", "w0", "w2", "w2"]
    for tasks, _, record, rounds in ranks:
        assert tasks[0] == tasks[1] == tasks[4] == {"w0": 2, "w2": 2}
        assert tasks[2] == tasks[3] == {"w0": 4, "w2": 0}
        assert record == ranks[0][2]
        assert rounds == 6


def as_the_errors_say():
    """Rounds with what errors of ``CASES`` advise; a function's name says which advice."""
    index = dist.get_rank() // 2
    mesh = mesh_of("dp", "tp")
    model = net()
    tensor_parallel(mesh["tp"], model)
    unnamed = mesh_of("replicate", "shard")
    same_weights = named_shares((5, 3), index, mesh=mesh["dp"])
    play(same_weights, net(), weight=2.0)
    alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    trained = {
        "give share.backward the weight of the whole batch": same_weights,
        'TorchAllocator(mesh=mesh["dp"])': named_shares((5, 3), index, mesh=mesh["dp"]),
        "torch.distributed.new_group for a training of these ranks alone": TorchAllocator(
            BUDGET, "uta", group=alone
        ),
        'such as mesh["replicate"]': named_shares((5, 3), index, mesh=unnamed["replicate"]),
        "make the mesh with init_device_mesh": named_shares(
            (5, 3), index, mesh=mesh_of("dp", "tp")
        ),
        "group and mesh exclude each other: give one of them": TorchAllocator(
            BUDGET, "uta", group=dist.group.WORLD, name=f"rank {dist.get_rank()}"
        ),
        "make the mesh of all ranks": named_shares(
            (2, 2, 2, 2), dist.get_rank(), mesh=DeviceMesh("cpu", range(4), mesh_dim_names=("dp",))
        ),
    }
    play(trained['TorchAllocator(mesh=mesh["dp"])'], model)
    for allocator in list(trained.values())[2:]:
        play(allocator, net())
    return {advice: allocator.rounds for advice, allocator in trained.items()}


def test_who_follows_the_errors_goes_on(answers):
    messages = " ".join(answers["all_faults"][0])
    for rounds in answers["as_the_errors_say"]:
        assert set(rounds.values()) == {1}
        assert all(advice.lower() in messages.lower() for advice in rounds)


def everything():
    works = [
        as_the_errors_say,
        all_forms,
        all_pipelines,
        weighted_pipelines,
        weighted_tensors,
        all_faults,
        failures,
        with_dropout,
        scaled,
        slowest_rank,
        membership,
    ]
    return {work.__name__: work() for work in works}
