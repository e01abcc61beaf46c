"""Gradients have the strides of their parameters, which fused optimisers read in the order of their memory."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ata_gym.cluster import TorchAllocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402


def channels_last():
    return nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last), torch.randn(4, 3, 5, 5)


def transposed():
    model = nn.Linear(3, 5)
    model.weight = nn.Parameter(model.weight.detach().T.contiguous().T)
    return model, torch.randn(4, 3)


def losses(model, samples):
    return [model(sample[None]).square().mean() for sample in samples.double()]


@pytest.mark.parametrize(
    ("build", "fused", "kind"),
    [
        (channels_last, True, torch.optim.AdamW),
        (transposed, True, torch.optim.SGD),
        (transposed, False, torch.optim.AdamW),
        (channels_last, True, torch.optim.Adagrad),
        (channels_last, False, torch.optim.SGD),
    ],
)
@pytest.mark.usefixtures("alone")
def test_training_is_that_of_one_process_in_every_memory_format(build, fused, kind):
    torch.manual_seed(0)
    model, samples = build()
    ours, theirs = model.double(), copy.deepcopy(model)
    assert ours.weight.stride() == theirs.weight.stride() != torch.empty(ours.weight.shape).stride()
    allocator = TorchAllocator(len(samples), "uta")
    optimizers = [kind(each.parameters(), lr=0.1, fused=fused) for each in (ours, theirs)]
    for _ in range(3):
        with allocator.round(ours) as share:
            for loss in losses(ours, samples):
                with share.timed():
                    share.backward(loss)
            share.reduce(ours)
        (sum(losses(theirs, samples)) / len(samples)).backward()
        assert ours.weight.grad.stride() == theirs.weight.grad.stride()
        torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=0.0, atol=5e-16)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(list(ours.parameters()), list(theirs.parameters()), rtol=0.0, atol=1e-12)


def differences():
    """The largest difference between the gradient of a round and that of one process, and the weights afterwards."""
    found = []
    for wrap in (lambda model: model, nn.parallel.DistributedDataParallel):
        for build in (channels_last, transposed):
            torch.manual_seed(0)
            model, samples = build()
            alone = copy.deepcopy(model.double())
            model, samples = wrap(model), samples.repeat(3, *[1] * (samples.ndim - 1))
            allocator, worst = TorchAllocator(len(samples), "thompson", warm_up=0), 0.0
            optimizers = [torch.optim.AdamW(each.parameters(), lr=0.1, fused=True) for each in (model, alone)]
            for _ in range(3):
                with allocator.round(model) as share:
                    for sample in samples[share.first :][: share.tasks]:
                        with share.timed():
                            share.backward(losses(model, sample[None])[0])
                    share.reduce(model)
                (sum(losses(alone, samples)) / len(samples)).backward()
                pairs = zip(model.parameters(), alone.parameters(), strict=True)
                worst = max(worst, *(float((one.grad - other.grad).abs().max()) for one, other in pairs))
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
            found.append(worst)
    return found


def test_the_gradient_of_three_ranks_is_that_of_one_process():
    for found in on_ranks(3, differences):
        assert max(found) < 5e-16
