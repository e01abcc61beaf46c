"""Lightning's callback, a loop under accelerate that asks a clock what time it is, and models of users as tasks."""

import copy
import doctest
import inspect
import sys
from importlib import import_module
from itertools import islice

import gymnasium as gym
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import ata_policies
from ata_gym.training import Tasks, TrainingWrapper
from tests.training.small_problem import mean_loss

pytestmark = [
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers which may be a bottleneck"),
    pytest.mark.filterwarnings("ignore:The number of training batches .* is smaller than the logging interval"),
]
POLICIES = ("uta", "default")
BATCHES, STEPS, STORED, LR = 6, 20, 12, 5e-3


def make_env():
    return gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")


def ticks(policy, rounds):
    """The runtime after each round, of a clock that nothing trains beside."""
    clock = ata_policies.Clock(make_env(), policy)
    return [clock.tick() for _ in range(rounds)]


@pytest.fixture
def lightning():
    return pytest.importorskip("lightning.pytorch")


@pytest.fixture
def module():
    """The user's module."""
    torch.manual_seed(0)
    return pytest.importorskip("lightning.pytorch.demos.boring_classes").BoringModel()


def make_loader():
    return DataLoader(torch.randn(4 * BATCHES, 32, generator=torch.Generator().manual_seed(1)), batch_size=4)


def make_trainer(lightning, callbacks, **options):
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "logger"), False)
    options = {"max_epochs": 2, "limit_val_batches": 0, **quiet, **options}
    return lightning.Trainer(accelerator="cpu", callbacks=callbacks, **options)


def make_callbacks():
    """All that is new beside the user's own code."""
    from ata_gym.training.lightning import ClockCallback

    return [ClockCallback(make_env(), name) for name in POLICIES]


def test_two_policies_in_one_fit(lightning, module, tmp_path):
    logger = lightning.loggers.CSVLogger(tmp_path)
    callbacks = make_callbacks()
    first = {name: value.clone() for name, value in module.state_dict().items()}
    make_trainer(lightning, callbacks, logger=logger, log_every_n_steps=1).fit(module, make_loader())
    logger.save()
    timed = {name: value.clone() for name, value in module.state_dict().items()}
    module.load_state_dict(first)
    make_trainer(lightning, []).fit(module, make_loader())  # training is left as it is
    assert all(torch.equal(value, timed[name]) for name, value in module.state_dict().items())
    rows = (tmp_path / "lightning_logs/version_0/metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index
    for policy, callback in zip(POLICIES, callbacks, strict=True):
        expected = ticks(policy, 2 * BATCHES)
        assert callback.clock.rounds == 2 * BATCHES
        assert callback.clock.runtime == expected[-1]
        logged = [float(row.split(",")[column(f"runtime/{policy}")]) for row in rows[1:]]
        assert logged == pytest.approx(expected, rel=1e-6)  # Lightning logs in float32
        last = float(rows[-1].split(",")[column(f"total_worker_time/{policy}")])
        assert last == pytest.approx(callback.clock.total_worker_time, rel=1e-6)


def test_batches_that_are_only_accumulated_play_no_round(lightning, module):
    (callback, _) = make_callbacks()
    make_trainer(lightning, [callback], accumulate_grad_batches=3).fit(module, make_loader())
    assert callback.clock.rounds == 2 * BATCHES // 3
    make_trainer(lightning, [callback], max_epochs=1).fit(module, make_loader())  # by another trainer: it goes on
    assert callback.clock.rounds == 2 * BATCHES // 3 + BATCHES


def test_each_optimiser_has_steps_of_its_own_and_a_resumed_run_goes_on_bit_for_bit(lightning, module, tmp_path):
    """Two optimisers in turn, and one of them twice in each third batch."""

    class Pair(type(module)):
        automatic_optimization = False

        def configure_optimizers(self):
            return [torch.optim.SGD([weights], lr=0.01) for weights in self.parameters()]

        def training_step(self, batch, batch_idx):
            first, second = self.optimizers()
            for optimizer in (first, second, second) if batch_idx % 3 == 0 else (first, second):
                optimizer.zero_grad()
                self.manual_backward(self.step(batch))
                optimizer.step()

    begun, resumed, saved = make_callbacks(), make_callbacks(), tmp_path / "run.ckpt"
    trainer = make_trainer(lightning, begun, max_epochs=1)
    trainer.fit(Pair(), make_loader())
    steps = 2 * BATCHES + BATCHES // 3
    assert trainer.global_step == steps
    trainer.save_checkpoint(saved)
    kept = torch.load(saved, weights_only=True)["callbacks"]
    assert {f"ClockCallback[{policy}]" for policy in POLICIES} <= kept.keys()  # Lightning refuses a name twice
    make_trainer(lightning, resumed, max_epochs=2).fit(Pair(), make_loader(), ckpt_path=saved)
    for policy, one, again in zip(POLICIES, begun, resumed, strict=True):
        expected = ticks(policy, 2 * steps + 9)
        assert (one.clock.rounds, one.clock.runtime) == (steps, expected[steps - 1])
        assert (again.clock.rounds, again.clock.runtime) == (2 * steps, expected[2 * steps - 1])
        assert [again.clock.tick() for _ in range(9)] == expected[-9:]


def test_without_lightning_the_import_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", None)
    for name in ("lightning.pytorch", "ata_gym.training.lightning"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match=r'ClockCallback needs lightning.*: pip install "ata-gym\[integrations\]"'):
        import_module("ata_gym.training.lightning")


@pytest.mark.usefixtures("lightning")
def test_the_example_runs_and_what_is_logged_has_the_name_of_the_policy():
    home = import_module("ata_gym.training.lightning")
    done = doctest.testmod(home)
    assert done.attempted
    assert not done.failed
    policy = ata_policies.make("ata", make_env())
    assert home.ClockCallback(make_env(), policy).name == type(policy).__name__
    assert home.ClockCallback(make_env()).name == inspect.signature(home.ClockCallback).parameters["policy"].default


@pytest.fixture
def accelerator():
    accelerate = pytest.importorskip("accelerate")
    yield accelerate.Accelerator(cpu=True)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)  # it is one for the whole process


def test_a_clock_tells_the_time_of_each_step_and_is_part_of_a_checkpoint(accelerator, tmp_path):
    model, clock = nn.Linear(4, 1), ata_policies.Clock(make_env(), POLICIES[1])
    accelerator.register_for_checkpointing(clock)
    parts = model, torch.optim.Adam(model.parameters()), DataLoader(torch.randn(8 * STEPS, 4), batch_size=8)
    model, optimizer, loader = accelerator.prepare(*parts)
    runtimes = []
    for inputs in loader:
        accelerator.backward(model(inputs).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        runtimes.append(clock.tick())
    accelerator.save_state(tmp_path)
    runtimes += [clock.tick() for _ in range(20)]
    assert runtimes == ticks(POLICIES[1], STEPS + 20)
    accelerator.load_state(tmp_path)
    assert clock.rounds == STEPS
    assert [clock.tick() for _ in range(20)] == runtimes[STEPS:]


def convolutional():
    """Small images of stripes, which run across or down."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
    )
    labels = torch.arange(8 * STORED) % 2
    stripes = torch.sin(torch.arange(8.0) * 2).expand(8, 8)
    images = torch.where(labels[:, None, None] == 0, stripes, stripes.T)[:, None]
    images = images + 0.5 * torch.randn(8 * STORED, 1, 8, 8)
    return model, mean_loss, list(zip(images.split(8), labels.split(8), strict=True))


def transformer():
    """A tiny GPT-2 with random weights, and texts in which the next letter is the next in the alphabet."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=16, n_positions=12, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
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
            given = loss_fn(model, batches[t % STORED])
            losses.append(given if isinstance(given, torch.Tensor) else given["loss"])
            (losses[-1] / 5).backward()
        optimizer.step()
        curve.append(torch.stack(losses).mean().item())
    return curve, model


def test_a_model_trains_in_the_env_of_a_policy_as_in_a_loop_of_ones_own(parts):
    env = TrainingWrapper(make_env(), Tasks(*parts), optimizer="adam", lr=LR)
    infos = [step.info for step in islice(ata_policies.play(ata_policies.make("default", env), env), STEPS)]
    assert [info["runtime"] for info in infos] == ticks("default", STEPS)
    expected, model = loop_of_ones_own(*parts)
    assert [info["loss"] for info in infos] == pytest.approx(expected, rel=1e-4)
    ours, theirs = env.model.state_dict(), model.state_dict()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():  # running statistics of batch norm, too
        torch.testing.assert_close(value, theirs[name], rtol=1e-3, atol=1e-4)
