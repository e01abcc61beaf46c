"""Gradients have the strides of their parameters, which fused optimisers read in the order of their memory."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from ata_gym.cluster import TorchAllocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402


def channels_last():
    return nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last), torch.randn(12, 3, 5, 5)


def transposed():
    model = nn.Linear(3, 5)
    model.weight = nn.Parameter(model.weight.detach().T.contiguous().T)
    return model, torch.randn(12, 3)


def plain(model):
    return model


CASES = [
    (plain, channels_last, True, torch.optim.AdamW),
    (plain, transposed, True, torch.optim.SGD),
    (plain, channels_last, False, torch.optim.Adagrad),
    (DistributedDataParallel, transposed, True, torch.optim.AdamW),
    (DistributedDataParallel, channels_last, True, torch.optim.Adagrad),
    (DistributedDataParallel, transposed, False, torch.optim.SGD),
]


def differences():
    """The largest differences between ranks and one process, of gradients and of weights, in each case."""
    return [largest_differences(*case) for case in CASES]


def largest_differences(wrap, build, fused, kind):
    torch.manual_seed(0)
    model, samples = build()
    alone, samples = copy.deepcopy(model.double()), samples.double()
    model = wrap(model)
    allocator, worst = TorchAllocator(len(samples), "thompson", warm_up=0), 0.0
    optimizers = [kind(each.parameters(), lr=0.1, fused=fused) for each in (model, alone)]
    for _ in range(3):
        with allocator.round(model) as share:
            for sample in samples[share.first :][: share.tasks]:
                with share.timed():
                    share.backward(model(sample[None]).square().mean())
            share.reduce()
        (sum(alone(sample[None]).square().mean() for sample in samples) / len(samples)).backward()
        pairs = list(zip(model.parameters(), alone.parameters(), strict=True))
        for one, other in pairs:
            assert one.grad.stride() == other.grad.stride() == one.stride()
            worst = max(worst, float((one.grad - other.grad).abs().max()))
        assert alone.weight.stride() != torch.empty(alone.weight.shape).stride()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return worst, max(float((one - other).abs().max()) for one, other in pairs)


@pytest.mark.parametrize("size", [1, 3])
def test_training_is_that_of_one_process_in_every_memory_format(size):
    for found in on_ranks(size, differences):
        assert max(gradients for gradients, _ in found) < 5e-16
        assert max(weights for _, weights in found) < 1e-12
