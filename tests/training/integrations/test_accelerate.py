"""A loop of one's own under accelerate, which asks the clocks of two policies once per step what time it is."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.training.integrations.snippets import POLICIES, ROUNDS, make_clocks, ticks


@pytest.fixture
def accelerator():
    accelerate = pytest.importorskip("accelerate")
    yield accelerate.Accelerator(cpu=True)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)  # it is one for the whole process


def make_parts():
    torch.manual_seed(0)
    inputs = torch.randn(8 * ROUNDS, 4)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    loader = DataLoader(TensorDataset(inputs, inputs.prod(1, keepdim=True)), batch_size=8)
    return model, torch.optim.Adam(model.parameters(), lr=1e-2), loader


def train(accelerator, clocks, parts):
    """The user's own loop; only the last two lines are new."""
    model, optimizer, loader = accelerator.prepare(*parts)
    curve = []
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        curve.append((loss.item(), *(clock.tick() for clock in clocks)))
    return curve


def test_the_loop_is_timed_by_two_policies(accelerator):
    curve = train(accelerator, make_clocks(), make_parts())
    losses, *runtimes = map(list, zip(*curve, strict=True))
    assert runtimes == [ticks(policy, ROUNDS) for policy in POLICIES]
    assert runtimes[0] != runtimes[1]
    assert losses == [row[0] for row in train(accelerator, [], make_parts())]


def test_a_clock_is_part_of_a_checkpoint(accelerator, tmp_path):
    clock = make_clocks()[1]
    accelerator.register_for_checkpointing(clock)
    train(accelerator, [clock], make_parts())
    accelerator.save_state(tmp_path)
    expected = [clock.tick() for _ in range(20)]
    accelerator.load_state(tmp_path)
    assert clock.rounds == ROUNDS
    assert [clock.tick() for _ in range(20)] == expected
