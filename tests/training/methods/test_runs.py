"""Runs of methods: their records, their ends, and what goes wrong."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from ata_gym.pools import PoolDistribution, deterministic, exponential, trace
from ata_gym.training import Trainer
from ata_gym.training.methods import METHODS, MethodRun, ParameterServer, UpdateRecord
from ata_gym.training.methods.method import WorkerClock
from ata_gym.training.models.model import copy_weights
from ata_gym.training.problems.quadratic import Quadratic
from tests.training.small_problem import run_method, small, weights

POOL = exponential([1.0, 2.0, 30.0])
NETWORK = small(lambda: nn.Sequential(nn.Dropout(0.2), nn.Linear(2, 3)))


def run(name, updates=60, **kwargs):
    return run_method(name, POOL, **({"problem": Quadratic(3), "updates": updates, "budget": 3} | kwargs))


def columns(result):
    return [getattr(result, name) for name in UpdateRecord._fields]


@pytest.mark.parametrize("name", METHODS)
def test_one_seed_is_one_run_to_the_bit_and_records_only_grow(name):
    state = torch.get_rng_state()
    first, again, other = (run(name, 15, problem=NETWORK, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    for mine, yours in zip(columns(first), columns(again), strict=True):
        np.testing.assert_array_equal(mine, yours)
    assert torch.equal(weights(first), weights(again))
    assert not np.array_equal(first.runtime, other.runtime)
    assert not np.array_equal(first.loss, other.loss)
    np.testing.assert_array_equal(first.update, np.arange(1, 16))
    for column in (first.runtime, first.total_worker_time, first.computed, first.used):
        assert (np.diff(column) >= 0).all()
    assert (first.used <= first.computed).all()
    assert (first.total_worker_time <= 3 * first.runtime * (1 + 1e-12)).all()
    assert (first.loss.dtype, first.used.dtype) == (np.float64, np.int64)


def test_a_run_is_an_iterator_with_a_model():
    running = MethodRun("ringmaster", POOL.to_data(), "quadratic", budget=3, lr=0.2)
    records = list(itertools.islice(running, 40))
    assert records[0].loss == pytest.approx(Quadratic().gap)
    assert running.evaluate()["suboptimality"] < records[0].loss
    whole = run("ringmaster", 40, problem="quadratic", lr=0.2)
    assert [tuple(record) for record in records] == list(zip(*columns(whole), strict=True))
    assert torch.equal(weights(running), weights(whole))


def test_an_iteration_without_a_success_moves_nothing():
    running = MethodRun("mindflayer", exponential([5.0]), Quadratic(3), budget=1, lr=0.1)
    lost = 0
    for _ in range(30):
        before, record = weights(running), next(running)
        lost += math.isnan(record.loss)
        assert torch.equal(before, weights(running)) == math.isnan(record.loss)
    assert 0 < lost < 30


@pytest.mark.parametrize(("name", "replay", "updates"), [("rennala", "task", 1), ("asgd", "round", 3)])
def test_recorded_times_that_end_stop_the_run(name, replay, updates):
    pool = trace([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]], replay=replay, end="truncate")
    result = run_method(name, pool, Quadratic(2), updates=100, budget=3)
    assert len(result.loss) == updates
    assert len(run_method(name, trace([[1.0], [2.0]]), Quadratic(2), updates=20, budget=3).loss) == 20


def test_a_loss_that_is_not_finite_at_earlier_weights_leaves_the_current_ones():
    trainer = Trainer(Quadratic(3), 2, lr=0.1)
    trainer.step()
    before, elsewhere = weights(trainer), tuple(1e200 * part for part in copy_weights(trainer.model))
    with pytest.raises(FloatingPointError, match="loss is inf in round 2"):
        trainer.gradient(elsewhere, 2)
    assert torch.equal(weights(trainer), before)
    assert trainer.round == 1


def test_those_who_start_together_share_one_copy_of_the_weights():
    trainer = Trainer(Quadratic(3), 1)
    server = ParameterServer(WorkerClock(deterministic([1.0, 1.0, 5.0]), 0), trainer)
    server.start([0])
    server.start([1, 2])
    first, second = server.next(), server.next()
    assert first.weights is second.weights
    server.update([first])
    server.start([0])
    assert not torch.equal(server.next().weights[0], first.weights[0])


class Lazy(METHODS["asgd"]):
    def arrive(self, server, task):
        """Start nothing."""


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"name": "renala"}, "no method 'renala'; did you mean rennala"),
        ({"budget": 0}, "budget must be a whole number"),
        ({"m": 3}, "method 'rennala' does not take these hyperparameters"),
        ({"name": "m-synchronous", "m": 4}, "m must be at most the number of workers, 3, not 4"),
        ({"name": "m-synchronous", "m": 0}, "m must be a whole number"),
        ({"name": "backup-workers", "backup": 3}, "backup must be less than the number of workers, 3, not 3"),
        ({"name": "backup-workers", "backup": -1}, "backup must be a whole number"),
        ({"name": "ringmaster", "max_delay": 0}, "max_delay must be a whole number"),
        ({"graphs": True}, "graphs=True does not go with a method"),
    ],
)
def test_bad_arguments(kwargs, sentence):
    with pytest.raises(ValueError, match=sentence):
        run(kwargs.pop("name", "rennala"), **kwargs)


def test_what_cannot_run():
    with pytest.raises(ValueError, match="a method plays one pool, which no PoolDistribution is"):
        MethodRun("rennala", PoolDistribution(3), Quadratic(3), budget=3)
    with pytest.raises(RuntimeError, match="all workers are idle: the method started no task"):
        next(MethodRun(Lazy, POOL, Quadratic(2), budget=1))


@pytest.mark.gpu
@pytest.mark.parametrize("name", METHODS)
def test_on_cuda_the_clock_is_the_same_and_the_loss_follows(name):
    on_cpu, on_cuda = (run(name, problem=Quadratic(20), lr=0.1, device=device) for device in ("cpu", "cuda"))
    assert next(on_cuda.model.parameters()).is_cuda
    for mine, yours in zip(columns(on_cpu)[:-1], columns(on_cuda)[:-1], strict=True):
        np.testing.assert_array_equal(mine, yours)
    np.testing.assert_allclose(on_cuda.loss, on_cpu.loss, rtol=1e-9)
