"""A loop of one's own under accelerate, which asks the clock of a policy once per step what time it is."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import ata_policies
from tests.training.integrations.snippets import POLICIES, make_env, ticks

ROUNDS = 20


@pytest.fixture
def accelerator():
    accelerate = pytest.importorskip("accelerate")
    yield accelerate.Accelerator(cpu=True)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)  # it is one for the whole process


def test_a_clock_tells_the_time_of_each_step_and_is_part_of_a_checkpoint(accelerator, tmp_path):
    model, clock = nn.Linear(4, 1), ata_policies.Clock(make_env(), POLICIES[1])
    accelerator.register_for_checkpointing(clock)
    parts = model, torch.optim.Adam(model.parameters()), DataLoader(torch.randn(8 * ROUNDS, 4), batch_size=8)
    model, optimizer, loader = accelerator.prepare(*parts)
    runtimes = []
    for inputs in loader:
        accelerator.backward(model(inputs).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        runtimes.append(clock.tick())
    accelerator.save_state(tmp_path)
    runtimes += [clock.tick() for _ in range(20)]
    assert runtimes == ticks(POLICIES[1], ROUNDS + 20)
    accelerator.load_state(tmp_path)
    assert clock.rounds == ROUNDS
    assert [clock.tick() for _ in range(20)] == runtimes[ROUNDS:]
