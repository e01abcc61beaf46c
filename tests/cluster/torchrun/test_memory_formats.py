"""Gradients have the strides of their parameters, which fused optimisers read in the order of their memory."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ata_gym.cluster import TorchAllocator  # noqa: E402


def channels_last():
    return nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last), torch.randn(4, 3, 5, 5)


def transposed():
    model = nn.Linear(3, 5)
    model.weight = nn.Parameter(model.weight.detach().T.contiguous().T)
    return model, torch.randn(4, 3)


def losses(model, samples):
    return [model(sample[None]).square().mean() for sample in samples.double()]


@pytest.mark.parametrize("build", [channels_last, transposed])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
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
