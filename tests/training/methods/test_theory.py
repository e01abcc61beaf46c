"""What theory promises for the methods, and the choices that they take from it."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym.pools import deterministic, exponential, gamma, log_normal, pareto, trace
from ata_gym.training.methods import METHODS, MethodRun
from ata_gym.training.methods.asynchronous import longest_delay
from ata_gym.training.methods.method import best_group
from ata_gym.training.methods.synchronous import median_limits, workers_to_await
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
    problem, pool = Quadratic(6, noise=0.27), POOLS[pool]
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


@settings(max_examples=25)
@given(smoothness=positive, variance=positive, accuracy=positive, count=st.integers(1, 100))
def test_step_sizes_are_the_published_minima(smoothness, variance, accuracy, count):
    problem, one = (smoothness, variance, accuracy), deterministic([1.0])
    expected = {
        "rennala": min(1 / smoothness, accuracy * count / (2 * smoothness * variance)),
        "ringmaster": min(1 / (2 * count * smoothness), accuracy / (4 * smoothness * variance)),
        "mindflayer": 1 / (2 * smoothness) * min(1, accuracy * count / variance),
    }
    for name, value in expected.items():
        method = METHODS[name](one, count)
        assert method.step_size(*problem) == pytest.approx(value)
        assert method.step_size(smoothness, 0.0, accuracy) >= method.step_size(*problem)
    adaptive = METHODS["delay-adaptive-asgd"](deterministic(np.ones(count)), 1).step_size(*problem)
    assert adaptive == pytest.approx(min(1 / (4 * count * smoothness), accuracy / (4 * smoothness * variance)))


@settings(max_examples=25)
@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=6), st.integers(1, 30), st.floats(0.1, 1))
def test_the_best_group_is_the_best_of_all_groups(times, budget, chance):
    c, p = np.array(times), np.array([1.0] + [chance] * (len(times) - 1))
    groups = [list(group) for size in range(1, len(c) + 1) for group in itertools.combinations(range(len(c)), size)]
    best = min((budget + p[group].sum()) / (p[group] / c[group]).sum() for group in groups)
    workers, time = best_group(c, p, budget)
    assert time == pytest.approx(best)
    assert (np.diff(c[workers]) >= 0).all()


def test_the_best_numbers_of_workers():
    m = np.arange(1, 9)
    best = m[np.argmin((np.cumsum(1.0 / m**2) / m) ** -1 * (1 + 40 / m))]
    pool = deterministic(m[::-1] ** 2.0)
    np.testing.assert_array_equal(METHODS["naive-optimal-asgd"](pool, 40).workers, np.arange(8 - best, 8))
    times, budget = np.array([4.0, 1.0, 9.0, 1.5]), 6
    costs = [np.sort(times)[m - 1] * (1 + budget / m) for m in range(1, 5)]
    chosen = [METHODS[name](deterministic(times), budget).m for name in ("m-synchronous", "backup-workers")]
    assert [workers_to_await(times, budget), *chosen] == 3 * [1 + np.argmin(costs)]


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
    assert max(delays) <= longest_delay(np.array(times))


def test_median_limits():
    times, chances = median_limits(MIXED)
    expected = [2.0, 5.0, MIXED.standard(2).median(), 2 ** (1 / 1.1) * 0.5, 1.0, 3.0]
    np.testing.assert_allclose(times, expected)
    np.testing.assert_allclose(chances, [0.5, 1, 0.5, 0.5, 0.5, 1])
    assert median_limits(trace([[0.0, 0.0, 0.0, 8.0]])) == (8, 1)  # a trial must take time
