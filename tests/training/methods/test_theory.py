"""What theory promises for the methods, and the choices that they take from it."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym.pools import deterministic, exponential, gamma, log_normal, pareto, trace
from ata_gym.training.methods import METHODS, MethodRun, theory
from ata_gym.training.methods.mindflayer import best_limits, median_limits
from ata_gym.training.problems.quadratic import Quadratic

ACCURACY = 0.3
POOLS = {"random": exponential([1.0, 2.0, 4.0]), "fixed": deterministic([1.0, 1.7, 4.2])}
MIXED = log_normal(0.0, 2.0, shift=1.0) + deterministic([5.0]) + gamma(4.0, 1.0) + pareto(1.1, 0.5)
MIXED += trace([[0.0, 7.0, 7.0, 1.0], [3.0]])


def updates_needed(step_size, accuracy, gap):
    """K = ceil(4 Delta / (gamma eps)): the mean of E||grad f||^2 is at most 2 Delta / (gamma K) plus eps / 2."""
    return math.ceil(4 * gap / (step_size * accuracy))


@pytest.mark.parametrize(("name", "pool"), [*((name, "random") for name in METHODS), ("rennala", "fixed")])
def test_with_its_theoretical_step_size_each_method_reaches_the_accuracy(name, pool):
    problem, pool = Quadratic(10, noise=0.2), POOLS[pool]
    budget = math.ceil(problem.variance / ACCURACY)
    assert budget == 2
    step_size = METHODS[name](pool, budget).step_size(problem.smoothness, problem.variance, ACCURACY)
    updates = updates_needed(step_size, ACCURACY, problem.gap)
    run = MethodRun(name, pool, problem, budget=budget, lr=step_size)
    some = (record for record in itertools.islice(run, updates) if record.update % 5 == 1)
    squared_norms = [run.evaluate()["gradient_norm"] ** 2 for _ in some]
    assert squared_norms[0] > ACCURACY
    assert np.mean(squared_norms) <= ACCURACY
    assert run.evaluate()["suboptimality"] < 0.2 * problem.gap


positive = st.floats(1e-3, 1e3)


@given(smoothness=positive, variance=positive, accuracy=positive, count=st.integers(1, 100))
def test_step_sizes_are_the_published_minima(smoothness, variance, accuracy, count):
    problem = (smoothness, variance, accuracy)
    expected = {
        theory.synchronous_step: min(1 / smoothness, accuracy * count / (2 * smoothness * variance)),
        theory.asynchronous_step: min(1 / (2 * count * smoothness), accuracy / (4 * smoothness * variance)),
        theory.mindflayer_step: 1 / (2 * smoothness) * min(1, accuracy * count / variance),
    }
    for step, value in expected.items():
        assert step(*problem, count) == pytest.approx(value)
        assert step(smoothness, 0.0, accuracy, count) >= step(*problem, count)
    adaptive = METHODS["delay-adaptive-asgd"](deterministic(np.ones(count)), 1).step_size(*problem)
    assert adaptive == pytest.approx(min(1 / (4 * count * smoothness), accuracy / (4 * smoothness * variance)))


def test_a_published_number_of_updates():
    """MindFlayer: max{1, sigma^2 / (eps B)} 8 L Delta / eps."""
    step = theory.mindflayer_step(2.0, 0.6, 0.1, expected=3.0)
    assert updates_needed(step, 0.1, gap=5.0) == round(0.6 / 0.3 * 8 * 2.0 * 5.0 / 0.1)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=6), st.integers(1, 30), st.floats(0.1, 1))
def test_the_best_group_is_the_best_of_all_groups(times, budget, chance):
    c, p = np.array(times), np.array([1.0] + [chance] * (len(times) - 1))
    groups = [list(group) for size in range(1, len(c) + 1) for group in itertools.combinations(range(len(c)), size)]
    best = min((budget + p[group].sum()) / (p[group] / c[group]).sum() for group in groups)
    found = theory.best_group(c, p, budget)
    assert found.time == pytest.approx(best)
    assert (np.diff(c[found.workers]) >= 0).all()


def test_the_naive_optimal_workers_minimise_the_optimal_time():
    m = np.arange(1, 9)
    best = m[np.argmin((np.cumsum(1.0 / m**2) / m) ** -1 * (1 + 40 / m))]
    pool = deterministic(m[::-1] ** 2.0)
    np.testing.assert_array_equal(METHODS["naive-optimal-asgd"](pool, 40).workers, np.arange(8 - best, 8))


def test_waiting_for_the_best_number_of_workers():
    times, budget = np.array([4.0, 1.0, 9.0, 1.5]), 6
    costs = [np.sort(times)[m - 1] * (1 + budget / m) for m in range(1, 5)]
    chosen = [METHODS[name](deterministic(times), budget).m for name in ("m-synchronous", "backup-workers")]
    assert [theory.workers_to_await(times, budget), *chosen] == 3 * [1 + np.argmin(costs)]


@settings(max_examples=15)
@given(times=st.lists(st.floats(0.5, 10), min_size=1, max_size=5))
def test_no_delay_is_longer_than_said_if_task_times_are_fixed(times):
    delays = []

    class Watched(METHODS["asgd"]):
        def scale(self, delay):
            delays.append(delay)
            return 1.0

    for _ in itertools.islice(MethodRun(Watched, deterministic(times), Quadratic(2), budget=1), 40):
        pass
    assert max(delays) <= theory.longest_delay(np.array(times))


def test_median_limits():
    limits = median_limits(MIXED, 1)
    expected = [2.0, 5.0, MIXED.standard(2).median(), 2 ** (1 / 1.1) * 0.5, 1.0, 3.0]
    np.testing.assert_allclose(limits.times, expected)
    np.testing.assert_allclose(limits.chances, [0.5, 1, 0.5, 0.5, 0.5, 1])
    never = median_limits(trace([[0.0, 0.0, 0.0, 8.0]]), 1)
    assert never.times == 8  # a trial must take time
    assert never.chances == 1


record = st.lists(st.sampled_from([0.0, 1.0, 1.2, 5.0, 9.0, 40.0]), min_size=1, max_size=8).filter(any)


@given(records=st.lists(record, min_size=1, max_size=4), budget=st.integers(1, 100))
def test_best_limits_are_the_best_of_all_that_a_record_holds(records, budget):
    pool = trace(records)

    def time(chosen):
        chances = [np.mean(np.array(times) <= limit) for times, limit in zip(records, chosen, strict=True)]
        return theory.best_group(np.array(chosen), np.array(chances), budget).time

    best = min(time(chosen) for chosen in itertools.product(*({*times} - {0.0} for times in records)))
    found = best_limits(pool, budget)
    assert time(found.times) == pytest.approx(best)
    assert theory.best_group(*found, budget).time == pytest.approx(best)


def test_best_limits_cut_a_heavy_tail_off():
    pool = log_normal([0.0, 1.0], [2.0, 1.0], shift=[1.0, 0.2])
    at_best, at_median = (theory.best_group(*find(pool, 20), 20).time for find in (best_limits, median_limits))
    assert at_best < at_median
    nearby = best_limits(pool, 20).times * np.array([[1.1, 1], [0.9, 1], [1, 1.1], [1, 0.9]])
    for limits in nearby:
        standard = (limits - pool.distributions.shift) / pool.distributions.scale
        chances = np.array([pool.standard(i).cdf(standard[i]) for i in range(2)])
        assert theory.best_group(limits, chances, 20).time >= at_best
