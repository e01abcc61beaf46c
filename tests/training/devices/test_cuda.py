"""Training on CUDA."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from ata_gym.training import DeviceClock, Trainer, TrainingWrapper, make_problem
from tests.gpu_table import warnings_of_inductor
from tests.training.small_problem import small, weights

pytestmark = pytest.mark.gpu

BUDGET = 6


def network(dropout=0.0):
    def build():
        return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 3))

    return small(build, learning_rates={"sgd": 0.5, "adam": 0.01})


def run(rounds, **settings):
    trainer = Trainer(network(), BUDGET, **settings)
    return [trainer.step() for _ in range(rounds)], weights(trainer).cpu()


def test_training_on_cuda_follows_training_on_the_cpu():
    problem = make_problem("digits")
    on_cuda = Trainer(problem, BUDGET, device="cuda")
    on_cpu = Trainer(problem, BUDGET)
    assert torch.equal(weights(on_cuda).cpu(), weights(on_cpu))
    assert next(on_cuda.model.parameters()).is_cuda
    pairs = [(on_cuda.step(), on_cpu.step()) for _ in range(20)]
    np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-2)
    assert on_cuda.problem.draw(np.zeros(2, np.uint64)).inputs.is_cuda
    assert on_cuda.evaluate()["accuracy"] == pytest.approx(on_cpu.evaluate()["accuracy"], abs=0.05)


def test_dropout_on_cuda_is_keyed():
    state = torch.cuda.get_rng_state()
    first, again = (Trainer(network(dropout=0.5), BUDGET, device="cuda") for _ in range(2))
    assert [first.step() for _ in range(3)] == [again.step() for _ in range(3)]
    assert torch.equal(torch.cuda.get_rng_state(), state)


@pytest.mark.parametrize(
    ("device", "options"),
    [
        ("cuda", {"graphs": True}),
        pytest.param("cuda:1", {"graphs": True}, marks=pytest.mark.gpu(2)),
        ("cuda", {"graphs": True, "optimizer": "adam", "schedule": "cosine:9"}),
        ("cuda", {"graphs": True, "precision": "float16", "micro_batch": 2}),
        ("cuda", {"compile": True}),
        ("cuda", {"compile": True, "graphs": True}),
    ],
)
@warnings_of_inductor
def test_graphs_and_compilation_follow_eager_training(device, options):
    plain = {name: value for name, value in options.items() if name not in {"graphs", "compile"}}
    (losses, end), (fast, fast_end) = (
        run(9, device=device, **plain),
        run(9, device=device, **options),
    )
    np.testing.assert_allclose(fast, losses, rtol=1e-3)
    torch.testing.assert_close(fast_end, end, rtol=1e-3, atol=1e-4)


def test_a_graph_keeps_the_promises_of_a_step():
    trainer = Trainer(network(dropout=0.5), BUDGET, device="cuda", graphs=True, lr=1e-9)
    losses = [trainer.step() for _ in range(9)]
    assert len(set(losses)) == 9  # dropout and samples are drawn anew in each round
    trainer.reset()
    assert [trainer.step() for _ in range(9)] == losses
    with torch.no_grad():
        trainer.model[0].weight.fill_(float("nan"))
    bias = trainer.model[3].bias.clone()
    with pytest.raises(FloatingPointError, match="in round 10"):
        trainer.step()
    assert torch.equal(trainer.model[3].bias, bias)


@pytest.mark.parametrize(
    ("home", "workers"),
    [
        *((home, "cpu:2,cuda,cuda:0:3") for home in ("cpu", "cuda")),
        *(
            pytest.param(home, "cuda:0,cuda:1:2,cpu", marks=pytest.mark.gpu(2))
            for home in ("cpu", "cuda:0", "cuda:1")
        ),
    ],
)
@pytest.mark.parametrize("name", ["digits", "quadratic"])
def test_the_weights_are_the_same_where_gpus_help(name, home, workers):
    reference = Trainer(name, BUDGET)
    clock = DeviceClock(Trainer(name, BUDGET, device=home), workers)
    env = TrainingWrapper(
        gym.make("ata_gym/TaskAllocation-v0", pool=clock.pool, budget=BUDGET, backend=clock),
    )
    env.reset(seed=0)
    for _ in range(4):
        feedback = env.step(np.array([2, 3, 1]))[0]
        assert (feedback["duration"] > 0).all()
        reference.step()
    torch.testing.assert_close(weights(env.trainer).cpu(), weights(reference), rtol=1e-2, atol=1e-4)
