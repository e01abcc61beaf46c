"""Runs of methods: their records, their ends, what goes wrong, and what theory promises of them."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from ata_gym.models.model import copy_weights
from ata_gym.pools import (
    PoolDistribution,
    deterministic,
    exponential,
    gamma,
    log_normal,
    pareto,
    trace,
)
from ata_gym.training import Trainer
from ata_gym.training.methods import METHODS, MethodRun, ParameterServer, UpdateRecord
from ata_gym.training.methods.asynchronous import Asgd, NaiveOptimalAsgd, longest_delay
from ata_gym.training.methods.method import WorkerClock, best_group
from ata_gym.training.methods.synchronous import (
    MSynchronous,
    median_limits,
    workers_to_await,
)
from ata_gym.training.problems.quadratic import Quadratic
from tests.training.small_problem import run_method, small, weights

POOL = exponential([1.0, 2.0, 30.0])
NETWORK = small(lambda: nn.Sequential(nn.Dropout(0.2), nn.Linear(2, 3)))


def run(name, updates=60, **kwargs):
    return run_method(
        name,
        POOL,
        **({"problem": Quadratic(3), "updates": updates, "budget": 3} | kwargs),
    )


def columns(result):
    return [getattr(result, name) for name in UpdateRecord._fields]


@pytest.mark.parametrize("name", METHODS)
def test_one_seed_is_one_run_to_the_bit_and_records_only_grow(name):
    state = torch.get_rng_state()
    first, again, other = (run(name, 15, problem=NETWORK, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    for column, repeated in zip(columns(first), columns(again), strict=True):
        np.testing.assert_array_equal(column, repeated)
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
        before = weights(running)
        record = next(running)
        lost += math.isnan(record.loss)
        assert torch.equal(before, weights(running)) == math.isnan(record.loss)
    assert 0 < lost < 30


@pytest.mark.parametrize(
    ("name", "replay", "updates"),
    [("rennala", "task", 1), ("asgd", "round", 3)],
)
def test_recorded_times_that_end_stop_the_run(name, replay, updates):
    pool = trace([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]], replay=replay, end="truncate")
    result = run_method(name, pool, Quadratic(2), updates=100, budget=3)
    assert len(result.loss) == updates
    assert (
        len(run_method(name, trace([[1.0], [2.0]]), Quadratic(2), updates=20, budget=3).loss) == 20
    )


def test_a_loss_that_is_not_finite_at_earlier_weights_leaves_the_current_ones():
    trainer = Trainer(Quadratic(3), 2, lr=0.1)
    trainer.step()
    before = weights(trainer)
    elsewhere = tuple(1e200 * part for part in copy_weights(trainer.model))
    with pytest.raises(FloatingPointError, match="loss is inf in round 2"):
        trainer.gradient(elsewhere, 2)
    assert torch.equal(weights(trainer), before)
    assert trainer.round == 1


def test_those_who_start_together_share_one_copy_of_the_weights():
    trainer = Trainer(Quadratic(3), 1)
    server = ParameterServer(WorkerClock(deterministic([1.0, 1.0, 5.0]), 0), trainer)
    server.start([0])
    server.start([1, 2])
    first = server.next()
    second = server.next()
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
        (
            {"name": "backup-workers", "backup": 3},
            "backup must be less than the number of workers, 3, not 3",
        ),
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
    on_cpu, on_cuda = (
        run(name, problem=Quadratic(20), lr=0.1, device=device) for device in ("cpu", "cuda")
    )
    assert next(on_cuda.model.parameters()).is_cuda
    for column, repeated in zip(columns(on_cpu)[:-1], columns(on_cuda)[:-1], strict=True):
        np.testing.assert_array_equal(column, repeated)
    np.testing.assert_allclose(on_cuda.loss, on_cpu.loss, rtol=1e-9)


NO_THEORY = {"rennala-mvr", "ringmaster-lmo", "local-sgd", "loscar-sgd"}
"""Methods for which no step size of theory is known here."""
ACCURACY = 0.3
POOLS = {"random": exponential([1.0, 2.0, 4.0]), "fixed": deterministic([1.0, 1.7, 4.2])}
MIXED = log_normal(0.0, 2.0, shift=1.0) + deterministic([5.0]) + gamma(4.0, 1.0) + pareto(1.1, 0.5)
MIXED += trace([[0.0, 7.0, 7.0, 1.0], [3.0]])


def updates_needed(step_size, accuracy, gap):
    """K = ceil(4 Delta / (gamma eps)): the mean of E||grad f||^2 is at most 2 Delta / (gamma K)
    plus eps / 2.
    """
    return math.ceil(4 * gap / (step_size * accuracy))


@pytest.mark.parametrize(
    ("name", "pool"),
    [*((name, "random") for name in METHODS if name not in NO_THEORY), ("rennala", "fixed")],
)
def test_with_its_theoretical_step_size_each_method_reaches_the_accuracy(name, pool):
    problem = Quadratic(6, noise=0.27)
    pool = POOLS[pool]
    budget = math.ceil(problem.variance / ACCURACY)
    assert budget == 2
    step_size = METHODS[name](pool, budget).step_size(
        problem.smoothness,
        problem.variance,
        ACCURACY,
    )
    updates = updates_needed(step_size, ACCURACY, problem.gap)
    run = MethodRun(name, pool, problem, budget=budget, lr=step_size)
    some = (record for record in itertools.islice(run, updates) if record.update % 5 == 1)
    squared_norms = [run.evaluate()["gradient_norm"] ** 2 for _ in some]
    assert squared_norms[0] > ACCURACY
    assert np.mean(squared_norms) <= ACCURACY
    assert run.evaluate()["suboptimality"] < 0.2 * problem.gap


positive = st.floats(1e-3, 1e3)


@settings(max_examples=25)
@given(smoothness=positive, variance=positive, accuracy=positive, count=st.integers(1, 100))
def test_step_sizes_are_the_published_minima(smoothness, variance, accuracy, count):
    problem = (smoothness, variance, accuracy)
    pool = deterministic([1.0])
    expected = {
        "rennala": min(1 / smoothness, accuracy * count / (2 * smoothness * variance)),
        "ringmaster": min(1 / (2 * count * smoothness), accuracy / (4 * smoothness * variance)),
        "mindflayer": 1 / (2 * smoothness) * min(1, accuracy * count / variance),
    }
    for name, value in expected.items():
        method = METHODS[name](pool, count)
        assert method.step_size(*problem) == pytest.approx(value)
        assert method.step_size(smoothness, 0.0, accuracy) >= method.step_size(*problem)
    adaptive = METHODS["delay-adaptive-asgd"](deterministic(np.ones(count)), 1).step_size(*problem)
    assert adaptive == pytest.approx(
        min(1 / (4 * count * smoothness), accuracy / (4 * smoothness * variance)),
    )


@settings(max_examples=25)
@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=6), st.integers(1, 30), st.floats(0.1, 1))
def test_the_best_group_is_the_best_of_all_groups(times, budget, chance):
    c = np.array(times)
    p = np.array([1.0] + [chance] * (len(times) - 1))
    groups = [
        list(group)
        for size in range(1, len(c) + 1)
        for group in itertools.combinations(range(len(c)), size)
    ]
    best = min((budget + p[group].sum()) / (p[group] / c[group]).sum() for group in groups)
    workers, time = best_group(c, p, budget)
    assert time == pytest.approx(best)
    assert (np.diff(c[workers]) >= 0).all()


def test_the_best_numbers_of_workers():
    m = np.arange(1, 9)
    best = m[np.argmin((np.cumsum(1.0 / m**2) / m) ** -1 * (1 + 40 / m))]
    pool = deterministic(m[::-1] ** 2.0)
    np.testing.assert_array_equal(
        METHODS["naive-optimal-asgd"](pool, 40).workers,
        np.arange(8 - best, 8),
    )
    times = np.array([4.0, 1.0, 9.0, 1.5])
    budget = 6
    costs = [np.sort(times)[m - 1] * (1 + budget / m) for m in range(1, 5)]
    chosen = [
        METHODS[name](deterministic(times), budget).m
        for name in ("m-synchronous", "backup-workers")
    ]
    assert [workers_to_await(times, budget), *chosen] == 3 * [1 + np.argmin(costs)]


@settings(max_examples=15)
@given(times=st.lists(st.floats(0.5, 10), min_size=1, max_size=5))
def test_no_delay_exceeds_its_bound_if_task_times_are_fixed(times):
    delays = []

    class Noted(METHODS["asgd"]):
        def scale(self, delay):
            delays.append(delay)
            return 1.0

    for _ in itertools.islice(MethodRun(Noted, deterministic(times), Quadratic(2), budget=1), 40):
        pass
    assert max(delays) <= longest_delay(np.array(times))


def test_median_limits():
    times, chances = median_limits(MIXED)
    expected = [2.0, 5.0, MIXED.standard(2).median(), 2 ** (1 / 1.1) * 0.5, 1.0, 3.0]
    np.testing.assert_allclose(times, expected)
    np.testing.assert_allclose(chances, [0.5, 1, 0.5, 0.5, 0.5, 1])
    assert median_limits(trace([[0.0, 0.0, 0.0, 8.0]])) == (8, 1)  # a trial must take time


def test_a_worker_pays_the_latency_where_it_gets_new_weights():
    pool = deterministic([1.0, 1.0]).with_latency([2.0, 0.0])
    clock = WorkerClock(pool, seed=0)
    clock.start([0, 1], update=0)
    assert [clock.next(), clock.runtime] == [(1, True), 1.0]
    clock.start([1], update=0)
    clock.start([1], update=0)  # its task is cancelled: no new weights
    assert [clock.next(), clock.runtime] == [(1, True), 2.0]
    assert [clock.next(), clock.runtime] == [(0, True), 3.0]
    # worker 0 starts once at update 1 and pays again; its second task at these weights is free
    clock.start([0], update=1)
    clock.next()
    clock.start([0], update=1)
    assert [clock.next(), clock.runtime, clock.total_worker_time] == [(0, True), 7.0, 9.0]


def test_methods_that_know_the_workers_count_the_latency():
    slow_link = deterministic([1.0, 2.0, 2.0]).with_latency([50.0, 0.0, 0.0])
    assert NaiveOptimalAsgd(slow_link, 4).workers.tolist() == [1, 2]
    assert MSynchronous(slow_link, 4).m == 2
    assert Asgd(slow_link, 4).delay_bound == 1 + 2 * 26
    with pytest.raises(ValueError, match="without latency"):
        run_method("mindflayer", slow_link, Quadratic(2), updates=1, budget=4)
