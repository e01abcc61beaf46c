"""A loop under accelerate that asks a clock what time it is, and models of users as tasks."""

import copy
from itertools import islice

import gymnasium as gym
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import ata_policies
from ata_gym.training import Tasks, TrainingWrapper
from tests.training.small_problem import mean_loss

POLICIES = ("uta", "default")
STEPS = 20
STORED = 12
LR = 5e-3


def make_env():
    return gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")


def ticks(policy, rounds):
    clock = ata_policies.Clock(make_env(), policy)
    return [clock.tick() for _ in range(rounds)]


@pytest.fixture
def accelerator():
    accelerate = pytest.importorskip("accelerate")
    yield accelerate.Accelerator(cpu=True)
    # it is one for the whole process
    accelerate.state.AcceleratorState._reset_state(
        reset_partial_state=True,
    )


def test_a_clock_tells_the_time_of_each_step_and_is_part_of_a_checkpoint(accelerator, tmp_path):
    model = nn.Linear(4, 1)
    clock = ata_policies.Clock(make_env(), POLICIES[1])
    accelerator.register_for_checkpointing(clock)
    parts = (
        model,
        torch.optim.Adam(model.parameters()),
        DataLoader(torch.randn(8 * STEPS, 4), batch_size=8),
    )
    (model, optimizer, loader), runtimes = accelerator.prepare(*parts), []
    for inputs in loader:
        accelerator.backward(model(inputs).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        runtimes.append(clock.tick())
    accelerator.save_state(tmp_path)
    runtimes += [clock.tick() for _ in range(20)]
    assert runtimes == ticks(POLICIES[1], STEPS + 20)
    accelerator.load_state(tmp_path)
    assert (clock.rounds, [clock.tick() for _ in range(20)]) == (STEPS, runtimes[STEPS:])


def convolutional():
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 2),
    )
    labels = torch.arange(8 * STORED) % 2
    stripes = torch.sin(torch.arange(8.0) * 2).expand(8, 8)
    images = torch.where(labels[:, None, None] == 0, stripes, stripes.T)[:, None]
    images = images + 0.5 * torch.randn(8 * STORED, 1, 8, 8)
    return model, mean_loss, list(zip(images.split(8), labels.split(8), strict=True))


def transformer():
    """A tiny GPT-2 with random weights, and texts in which the next letter is the next in the
    alphabet.
    """
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=16,
        n_positions=12,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    texts = (torch.arange(12) + torch.randint(16, (4 * STORED, 1))) % 16
    batches = [{"input_ids": text, "labels": text} for text in texts.split(4)]
    return transformers.GPT2LMHeadModel(config), lambda model, batch: model(**batch), batches


@pytest.fixture(params=[convolutional, transformer], ids=lambda make: make.__name__)
def parts(request):
    torch.manual_seed(0)
    return request.param()


def loop_of_ones_own(model, loss_fn, batches):
    """The same by hand: five batches, one after the other, and a step; the loss of each round."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    curve = []
    for k in range(STEPS):
        optimizer.zero_grad()
        losses = []
        for t in range(5 * k, 5 * k + 5):
            loss = loss_fn(model, batches[t % STORED])
            losses.append(loss if isinstance(loss, torch.Tensor) else loss["loss"])
            (losses[-1] / 5).backward()
        optimizer.step()
        curve.append(torch.stack(losses).mean().item())
    return curve, model


def test_a_model_trains_in_the_env_of_a_policy_as_in_a_loop_of_ones_own(parts):
    env = TrainingWrapper(make_env(), Tasks(*parts), optimizer="adam", lr=LR)
    infos = [
        step.info
        for step in islice(ata_policies.play(ata_policies.make("default", env), env), STEPS)
    ]
    assert [info["runtime"] for info in infos] == ticks("default", STEPS)
    expected, model = loop_of_ones_own(*parts)
    assert [info["loss"] for info in infos] == pytest.approx(expected, rel=1e-4)
    weights = env.model.state_dict()
    loop_weights = model.state_dict()
    assert weights.keys() == loop_weights.keys()
    for name, value in weights.items():  # running statistics of batch norm, too
        torch.testing.assert_close(value, loop_weights[name], rtol=1e-3, atol=1e-4)
