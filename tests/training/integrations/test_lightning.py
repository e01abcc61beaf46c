"""The callback of Lightning: two policies in one fit, gradient accumulation, checkpoints."""

import doctest
import inspect

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.training.integrations.snippets import POLICIES, is_short, make_env, ticks

pytestmark = [
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers which may be a bottleneck"),
    pytest.mark.filterwarnings("ignore:The number of training batches .* is smaller than the logging interval"),
]
BATCHES = 6


@pytest.fixture
def lightning():
    return pytest.importorskip("lightning.pytorch")


@pytest.fixture
def module(lightning):
    """The user's module."""

    class Regression(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = nn.Linear(3, 1)

        def training_step(self, batch, batch_idx):
            loss = nn.functional.mse_loss(self.network(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.1)

    torch.manual_seed(0)
    return Regression()


def make_loader():
    inputs = torch.randn(4 * BATCHES, 3, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=4)


def make_trainer(lightning, callbacks, **options):
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "logger"), False)
    return lightning.Trainer(accelerator="cpu", callbacks=callbacks, **{"max_epochs": 2, **quiet, **options})


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
    assert is_short(make_callbacks)


def test_batches_that_are_only_accumulated_play_no_round(lightning, module):
    (callback, _) = make_callbacks()
    make_trainer(lightning, [callback], accumulate_grad_batches=3).fit(module, make_loader())
    assert callback.clock.rounds == 2 * BATCHES // 3
    make_trainer(lightning, [callback], max_epochs=1).fit(module, make_loader())  # by another trainer: it goes on
    assert callback.clock.rounds == 2 * BATCHES // 3 + BATCHES


def test_each_optimiser_has_steps_of_its_own(lightning, module, tmp_path):
    """Two optimisers in turn, and one of them twice in each third batch."""

    class Pair(type(module)):
        automatic_optimization = False

        def configure_optimizers(self):
            return [torch.optim.SGD([weights], lr=0.01) for weights in self.parameters()]

        def training_step(self, batch, batch_idx):
            first, second = self.optimizers()
            for optimizer in (first, second, second) if batch_idx % 3 == 0 else (first, second):
                optimizer.zero_grad()
                self.manual_backward(nn.functional.mse_loss(self.network(batch[0]), batch[1]))
                optimizer.step()

    steps, (one, again) = 2 * BATCHES + BATCHES // 3, (make_callbacks()[0] for _ in range(2))
    trainer = make_trainer(lightning, [one], max_epochs=1)
    trainer.fit(Pair(), make_loader())
    assert one.clock.rounds == trainer.global_step == steps
    assert one.clock.runtime == ticks(POLICIES[0], steps)[-1]
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    make_trainer(lightning, [again], max_epochs=2).fit(Pair(), make_loader(), ckpt_path=tmp_path / "run.ckpt")
    assert again.clock.rounds == 2 * steps
    assert again.clock.runtime == ticks(POLICIES[0], 2 * steps)[-1]


def test_a_resumed_run_goes_on_bit_for_bit(lightning, module, tmp_path):
    whole, begun, resumed = (make_callbacks() for _ in range(3))
    make_trainer(lightning, whole, max_epochs=3).fit(module, make_loader())
    trainer = make_trainer(lightning, begun, max_epochs=1)
    trainer.fit(module, make_loader())
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    checkpoint = torch.load(tmp_path / "run.ckpt", weights_only=True)
    assert {"ClockCallback[uta]", "ClockCallback[default]"} <= checkpoint["callbacks"].keys()
    make_trainer(lightning, resumed, max_epochs=3).fit(module, make_loader(), ckpt_path=tmp_path / "run.ckpt")
    for ours, theirs in zip(resumed, whole, strict=True):
        assert ours.clock.rounds == theirs.clock.rounds == 3 * BATCHES
        assert ours.clock.runtime == theirs.clock.runtime
        assert [ours.clock.tick() for _ in range(20)] == [theirs.clock.tick() for _ in range(20)]


def test_two_callbacks_of_one_name_are_refused_by_lightning(lightning):
    from ata_gym.training.lightning import ClockCallback

    alike = [ClockCallback(make_env(), "uta", seed=seed) for seed in (0, 1)]
    with pytest.raises(RuntimeError, match="more than one stateful callback"):
        make_trainer(lightning, alike)
    alike[1] = ClockCallback(make_env(), "uta", seed=1, name="uta again")
    make_trainer(lightning, alike)


def test_without_lightning_the_import_names_the_extra(monkeypatch):
    import sys

    from ata_gym.utils.extras import MissingExtraError

    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.delitem(sys.modules, "lightning.pytorch", raising=False)
    monkeypatch.delitem(sys.modules, "ata_gym.training.lightning", raising=False)
    with pytest.raises(
        MissingExtraError, match=r'ClockCallback needs lightning.*: pip install "ata-gym\[integrations\]"'
    ):
        import ata_gym.training.lightning  # noqa: F401


@pytest.mark.usefixtures("lightning")
def test_the_example_runs_and_what_is_logged_has_the_name_of_the_policy():
    import ata_gym.training.lightning
    import ata_policies
    from ata_gym.training.lightning import ClockCallback

    done = doctest.testmod(ata_gym.training.lightning)
    assert done.attempted
    assert not done.failed

    policy = ata_policies.make("ata", make_env())
    assert ClockCallback(make_env(), policy).name == type(policy).__name__
    assert ClockCallback(make_env()).name == inspect.signature(ClockCallback).parameters["policy"].default
