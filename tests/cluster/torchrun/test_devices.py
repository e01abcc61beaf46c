"""A GPU for each rank: the same training with NCCL, and with gloo on the CPU, where the same lines run anywhere."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from ata_gym.cluster import TaskSampler, TorchAllocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import data  # noqa: E402

BUDGET, ROUNDS = 6, 8


def trained(wrapped):
    """Where a model was trained on this rank, its losses and its weights."""
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).to(device)
    model = DistributedDataParallel(model) if wrapped else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    allocator, losses = TorchAllocator(BUDGET, "thompson", warm_up=0, check_every=1), []
    pairs = data()
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs))
    for _ in range(ROUNDS):
        with allocator.round(model) as share:
            for x, y in share.take(loader):
                share.backward(nn.functional.cross_entropy(model(x.to(device)), y.to(device)))
            share.reduce(model)
        optimizer.step()
        optimizer.zero_grad()
        assert min(time for times in allocator.last.seconds.values() for time in times) > 0.0
        losses.append(allocator.last.loss)
    return device.index, losses, [weights.detach().cpu().numpy() for weights in model.parameters()]


@pytest.mark.parametrize(
    ("backend", "devices"), [("gloo", [None, None]), pytest.param("nccl", [0, 1], marks=pytest.mark.gpu(2))]
)
def test_two_ranks_train_as_one_does(backend, devices):
    ((_, losses, weights),) = on_ranks(1, trained, False, backend=backend)
    ranks = on_ranks(2, trained, True, backend=backend)
    assert [device for device, *_ in ranks] == devices
    for _, ours, own in ranks:
        np.testing.assert_allclose(ours, losses, rtol=1e-5)
        for one, other in zip(own, weights, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
    assert losses[-1] < losses[0]
