"""A trainer that captures and replays its gradients on a CPU, as it does on CUDA, beside one that computes them."""

import copy

import pytest
import torch
from torch import nn

from ata_gym.training import Classification, Trainer, make_problem
from ata_gym.training.devices import graphs
from ata_gym.training.devices.graphs import WARM_UP
from ata_gym.training.models import copy_weights
from ata_gym.training.trainer import Gradient
from tests.training.devices.emulated_graphs import Counted, EmulatedGraphs
from tests.training.small_problem import SAMPLES, weights


@pytest.fixture
def graphed_trainer(monkeypatch):
    """Makes trainers on a CPU that capture and replay as they would on CUDA."""

    def make(*args, **kwargs):
        emulated = Counted(EmulatedGraphs())
        monkeypatch.setattr(graphs, "CudaGraphs", lambda _device: emulated)
        trainer = Trainer(*args, **kwargs)
        object.__setattr__(trainer.settings, "graphs", True)  # which needs CUDA
        trainer.reset()
        return trainer, emulated

    return make


def small(dropout=0.0):
    def build():
        return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))

    return Classification(build, SAMPLES, SAMPLES, learning_rates={"sgd": 0.5, "adam": 0.01})


@pytest.mark.parametrize(
    ("problem", "settings"),
    [
        (small(), {}),
        (small(), {"optimizer": "adam", "schedule": "cosine:9"}),
        (small(), {"precision": "float16", "micro_batch": 2}),
        (small(), {"precision": "bfloat16", "optimizer": "momentum"}),
        (small(dropout=0.5), {}),
        (make_problem("digits"), {"optimizer": "adamw"}),
        (make_problem("quadratic"), {}),
    ],
)
def test_a_trainer_with_graphs_follows_one_without_to_the_bit(graphed_trainer, problem, settings):
    plain = Trainer(problem, 6, **settings)
    ours, emulated = graphed_trainer(problem, 6, **settings)
    assert [ours.step() for _ in range(9)] == [plain.step() for _ in range(9)]
    assert torch.equal(weights(ours), weights(plain))
    assert emulated.replayed == 9 - WARM_UP
    ours.reset()
    plain.reset()
    assert [ours.step() for _ in range(5)] == [plain.step() for _ in range(5)]


def test_a_trainers_gradients_elsewhere_and_from_elsewhere_leave_its_graph_right(graphed_trainer):
    plain = Trainer(small(), 6)
    ours, _ = graphed_trainer(small(), 6)
    old = copy_weights(plain.model)
    for k in range(9):
        for trainer in (plain, ours):
            if k % 2:
                part = trainer.gradient(tasks=2)
                trainer.apply(Gradient(part.loss, [part.clone() for part in part.parts]))
            elif k == 6:
                trainer.apply(trainer.gradient(old))
            else:
                trainer.step()
        assert torch.equal(weights(ours), weights(plain))


def test_a_trainer_with_graphs_keeps_the_promises_of_a_step(graphed_trainer):
    trainer, emulated = graphed_trainer(small(dropout=0.5), 6, lr=1e-9)
    losses = [trainer.step() for _ in range(6)]
    assert len(set(losses)) == 6  # dropout and samples are drawn anew in each round
    trainer.reset()
    assert [trainer.step() for _ in range(6)] == losses
    with torch.no_grad():
        trainer.model[0].weight.fill_(float("nan"))
    bias = trainer.model[3].bias.clone()
    with pytest.raises(FloatingPointError, match="in round 7"):
        trainer.step()
    assert torch.equal(trainer.model[3].bias, bias)
    assert emulated.replayed == 2 * (6 - WARM_UP) + 1


def test_a_trainer_with_graphs_goes_on_from_a_checkpoint(graphed_trainer):
    settings = {"optimizer": "adam", "precision": "float16", "schedule": "cosine:12"}
    trainer, _ = graphed_trainer(small(dropout=0.5), 6, **settings)
    for _ in range(5):
        trainer.step()
    saved = copy.deepcopy(trainer.checkpoint())
    rest = [trainer.step() for _ in range(5)]
    trainer.restore(saved)
    assert [trainer.step() for _ in range(5)] == rest
