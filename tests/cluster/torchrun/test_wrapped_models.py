"""Models that communicate by themselves, or hold parameters together: right, or refused by name
before the round.
"""

import copy
import functools
import sys
import types
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (  # noqa: E402
    fp16_compress_hook,
)
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import (  # noqa: E402
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.tensor import Replicate  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from ata_gym.cluster import TorchAllocator  # noqa: E402
from ata_gym.cluster.torchrun.gradients import task_gradients  # noqa: E402
from ata_gym.models.stopwatch import Stopwatch  # noqa: E402

pytestmark = pytest.mark.usefixtures("alone")
SAMPLES = torch.arange(9.0).reshape(3, 3)


def shard(model, **options):
    return fully_shard(model, mesh=init_device_mesh("cpu", (1,)), **options)


def mixed(parameters, sums):
    return shard(
        nn.Linear(3, 2),
        mp_policy=MixedPrecisionPolicy(param_dtype=parameters, reduce_dtype=sums),
    )


def compressed():
    model = DistributedDataParallel(nn.Linear(3, 2))
    model.register_comm_hook(None, fp16_compress_hook)
    return model


def divided():
    model = shard(nn.Linear(3, 2))
    model.set_gradient_divide_factor(2.0)
    return model


def parallel_table(*, sparse):
    """A table whose rows a mesh has, each as its own number."""
    table = nn.Embedding(3, 2, sparse=sparse)
    mesh = init_device_mesh("cpu", (1,))
    parallelize_module(table, mesh, RowwiseParallel(input_layouts=Replicate()))
    return nn.Sequential(Numbers(), table)


class Numbers(nn.Module):
    def forward(self, x):
        return (x[:, 0] / 3).long()


def initialized(model):
    """A lazy model that has computed a batch, whose module must have two samples."""
    model(torch.ones(2, 3))
    return model


def play(allocator, model, *, fails=False, size=1):
    with allocator.round(model) as share:
        for x in SAMPLES:
            with share.timed():
                share.backward(model(x[None].expand(size, -1)).float().square().mean())
        if fails:
            raise KeyboardInterrupt
        share.reduce()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize(
    ("build", "name", "cure", "build_cured"),
    [
        (
            lambda: nn.Sequential(nn.Linear(3, 2), nn.SyncBatchNorm(2)),
            "SyncBatchNorm",
            "use BatchNorm",
            lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)),
        ),
        (
            lambda: parallel_table(sparse=True),
            r"Embedding\(sparse=True\) with a DTensor",
            "leave sparse out",
            lambda: parallel_table(sparse=False),
        ),
        (
            lambda: DistributedDataParallel(nn.Linear(3, 2), static_graph=True),
            r"DistributedDataParallel\(static_graph",
            "leave static_graph out",
            lambda: DistributedDataParallel(nn.Linear(3, 2)),
        ),
        (
            compressed,
            "a communication hook of DistributedDataParallel",
            "register none",
            lambda: DistributedDataParallel(nn.Linear(3, 2)),
        ),
        (
            lambda: FullyShardedDataParallel(nn.Linear(3, 2), device_id=torch.device("cpu")),
            "FullyShardedDataParallel",
            "use fully_shard, or the plain module",
            lambda: shard(nn.Linear(3, 2)),
        ),
        (
            lambda: mixed(torch.bfloat16, torch.float32),
            r"MixedPrecisionPolicy\(reduce_dtype=torch.float32\)",
            "leave reduce_dtype out",
            lambda: mixed(torch.bfloat16, None),
        ),
        (
            lambda: mixed(None, torch.bfloat16),
            r"MixedPrecisionPolicy\(reduce_dtype=torch.bfloat16\)",
            "leave reduce_dtype out",
            lambda: mixed(None, None),
        ),
        (divided, "a divide factor", "set none", lambda: shard(nn.Linear(3, 2))),
        (
            lambda: nn.Sequential(nn.Linear(3, 2), nn.LazyBatchNorm1d(affine=False)),
            "LazyBatchNorm1d before its first forward pass",
            "let the model compute one batch on every rank",
            lambda: initialized(nn.Sequential(nn.Linear(3, 2), nn.LazyBatchNorm1d(affine=False))),
        ),
        (
            lambda: nn.LazyLinear(2),
            "LazyLinear before its first forward pass",
            "let the model compute one batch on every rank",
            lambda: initialized(nn.LazyLinear(2)),
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:FSDP")
def test_what_a_round_would_leave_out_is_refused_by_name_and_the_cure_trains(
    build, name, cure, build_cured
):
    allocator = TorchAllocator(3, "uta")
    with pytest.raises(ValueError, match=f"^{name}.* is not respected inside a round.*: {cure}"):
        play(allocator, build())
    size = 3 if "BatchNorm" in name else 1
    gradients = play(allocator, build_cured(), size=size)
    assert allocator.rounds == 1
    assert all(gradient is not None for gradient in gradients)


class DeepSpeedEngine(nn.Module):
    """It stands for the engine of DeepSpeed 0.19, which leaves hooks of its file in the module."""

    def __init__(self, module, *, leaves_hooks):
        super().__init__()
        self.module = module

        def check_inputs(*_):
            return None

        check_inputs.__module__ = "deepspeed.runtime.engine"
        if leaves_hooks:
            module.register_forward_pre_hook(check_inputs)

    def forward(self, x):
        return self.module(x)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_deepspeed_is_refused_by_its_engine_and_by_what_that_leaves_in_the_module(monkeypatch):
    file = types.ModuleType("deepspeed.runtime.engine")
    file.DeepSpeedEngine = DeepSpeedEngine
    monkeypatch.setitem(sys.modules, "deepspeed.runtime.engine", file)
    allocator = TorchAllocator(3, "uta")
    for model in (
        DeepSpeedEngine(nn.Linear(3, 2), leaves_hooks=False),
        DeepSpeedEngine(nn.Linear(3, 2), leaves_hooks=True).module,
        nn.ModuleList([DeepSpeedEngine(nn.Linear(3, 2), leaves_hooks=True).module]),
    ):
        with pytest.raises(ValueError, match=r"^an engine of DeepSpeed, or its module, is not"):
            play(allocator, model)
    hooked = nn.Linear(3, 2)
    hooked.register_forward_pre_hook(lambda *_: None)
    hooked.register_forward_hook(functools.partial(lambda *_: None))
    play(allocator, hooked)
    # The import warns of what torch itself deprecates.
    from torch.distributed.optim import ZeroRedundancyOptimizer

    # The cures: in place of stage 1 of ZeRO, and of stages 2 and 3.
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    play(allocator, model)
    ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1).step()
    assert not model.weight.equal(before)
    play(allocator, shard(nn.Linear(3, 2)))
    assert allocator.rounds == 3


@pytest.mark.parametrize(
    "policy",
    [(None, None), (None, torch.float32), (torch.bfloat16, torch.bfloat16)],
)
def test_what_changes_nothing_is_not_refused(policy):
    torch.manual_seed(0)
    gradients = play(TorchAllocator(3, "uta"), mixed(*policy))
    assert all(gradient.full_tensor().abs().sum() > 0 for gradient in gradients)


def test_a_failed_round_leaves_nothing_in_sharded_parameters():
    allocator = TorchAllocator(3, "uta")
    plain = nn.Linear(3, 2)
    model = shard(copy.deepcopy(plain))
    with pytest.raises(KeyboardInterrupt):
        play(allocator, model, fails=True)
    reference = copy.deepcopy(plain)
    reference(SAMPLES).square().mean().backward()
    play(allocator, model)
    for parameter, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.full_tensor(), other.grad)
    model.zero_grad()
    model(SAMPLES).square().mean().backward()  # reduces and shards as before
    for parameter, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.full_tensor(), other.grad)
    ddp = DistributedDataParallel(plain)
    play(allocator, ddp)
    assert ddp.require_forward_param_sync


class OnCuda(nn.Parameter):
    device = torch.device("cuda", 1)


def test_times_are_those_of_the_device_of_the_model(monkeypatch):
    model = nn.Linear(3, 2)
    clocks = []
    model.weight = OnCuda(model.weight.detach())
    allocator = TorchAllocator(3, "uta", warm_up=0)  # with gloo, as with "cpu:gloo,cuda:nccl"
    # no such device
    monkeypatch.setattr(
        task_gradients,
        "Buckets",
        mock.MagicMock(return_value=mock.MagicMock(sent=0)),
    )
    monkeypatch.setattr(Stopwatch, "mark", lambda self: clocks.append(self._device) or 0.0)
    for timed, device in (
        (nn.Identity(), "cpu"),
        (nn.ModuleList([nn.Linear(2, 2), model]), "cuda:1"),
    ):
        clocks.clear()
        with pytest.raises(KeyboardInterrupt), allocator.round(timed):
            raise KeyboardInterrupt
        assert clocks == [torch.device(device)]
