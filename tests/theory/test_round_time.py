"""expected_round_time against closed forms, independent quadrature and sampling with numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import comb, exp, factorial, floor, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy.special import gamma as gamma_function
from scipy.special import gammainc
from scipy.stats import norm

from ata_gym import expected_round_time, optimal_allocation, proxy_optimal, scenario
from ata_gym.pools import (
    Pool,
    concatenate,
    deterministic,
    exponential,
    gamma,
    half_normal,
    log_normal,
    pareto,
    shifted_exponential,
    trace,
    uniform,
    weibull,
)
from ata_gym.theory.round_time.quadrature import adaptive_rule
from ata_gym.theory.simulated.slices import known_sample
from ata_policies.planning.race_search import best_race

Sampler = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]

RECORD = np.array([1.0, 4.0, 2.0, 2.5, 7.0])

# one worker of every family with a finite variance, and its sampler: (generator, shape) -> task times, tasks last
FAMILIES: dict[str, tuple[Pool, Sampler]] = {
    "deterministic": (deterministic(2.5), lambda _, size: np.full(size, 2.5)),
    "exponential": (exponential(2.0), lambda rng, size: rng.exponential(2.0, size)),
    "shifted exponential": (shifted_exponential(1.0, 1.5), lambda rng, size: 1.0 + rng.exponential(1.5, size)),
    "uniform": (uniform(1.0, 4.0), lambda rng, size: rng.uniform(1.0, 4.0, size)),
    "half-normal": (half_normal(2.0, shift=0.5), lambda rng, size: 0.5 + abs(rng.normal(0, np.sqrt(2 * np.pi), size))),
    "gamma": (gamma(0.4, 5.0), lambda rng, size: rng.gamma(0.4, 5.0, size)),
    "narrow gamma": (gamma(4e4, 5e-5, shift=0.3), lambda rng, size: 0.3 + rng.gamma(4e4, 5e-5, size)),
    "log-normal": (log_normal(0.2, 0.9), lambda rng, size: rng.lognormal(0.2, 0.9, size)),
    "narrow log-normal": (log_normal(0.7, 0.01), lambda rng, size: rng.lognormal(0.7, 0.01, size)),
    "weibull": (weibull(0.6, 1.5), lambda rng, size: 1.5 * rng.weibull(0.6, size)),
    "steep weibull": (weibull(8.0, 2.0), lambda rng, size: 2.0 * rng.weibull(8.0, size)),
    "pareto": (pareto(4.0, 1.4), lambda rng, size: 1.4 * (1 + rng.pareto(4.0, size))),
    "trace by task": (
        trace([RECORD], replay="task"),
        lambda rng, size: RECORD[(rng.integers(5, size=(size[0], 1)) + np.arange(size[1])) % 5],
    ),
    "trace by round": (
        trace([RECORD], replay="round"),
        lambda rng, size: np.repeat(rng.choice(RECORD, (size[0], 1)), size[1], axis=1),
    ),
}
ALL = concatenate([pool for pool, _ in FAMILIES.values()])


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [((9, 4, 3, 2, 1, 1, 1, 1, 1), 780.0), ((10, 5, 3, 2, 1, 1, 1), 727.6), ((11, 5, 3, 2, 1, 1), 729.3)],
)
def test_published_setting(tasks, expected):
    pool = scenario("icml2025-cifar100").pool
    value, error = expected_round_time(pool, np.pad(tasks, (0, 51 - len(tasks))), with_error=True)
    assert round(value, 1) == expected
    assert error < 1e-8 * value


def test_exponential_times():
    for n in (1, 2, 10, 459):  # one task each: the harmonic number
        value = expected_round_time(exponential(np.ones(n)), np.ones(n, int))
        assert value == pytest.approx(np.sum(1 / np.arange(1, n + 1)), rel=1e-10)
    # two each: E max = sum of means - E min, and E min = integral of (exp(-t) (1 + t))^2 = 5/4
    assert expected_round_time(exponential([1.0, 1.0]), [2, 2]) == pytest.approx(2.75, rel=1e-10)


def irwin_hall(n: int, x: float) -> float:
    return sum((-1) ** k * comb(n, k) * (x - k) ** n for k in range(floor(x) + 1)) / factorial(n)


@pytest.mark.parametrize(("a", "b"), [(2, 1), (3, 4), (5, 5)])
def test_uniform_sums_follow_irwin_hall(a, b):
    late = integrate.quad(lambda t: 1 - irwin_hall(a, min(t, a)) * irwin_hall(b, min(t, b)), 0, max(a, b), limit=200)[0]
    value, error = expected_round_time(uniform([0.0, 0.0], 1.0), [a, b], with_error=True)
    assert value == pytest.approx(late, rel=1e-9)
    assert error < 1e-6 * value


@pytest.mark.parametrize("alpha", [1.01, 1.3, 2.0, 6.0])
def test_two_paretos(alpha):
    # the integral of 1 - (1 - t^-alpha) (1 - (t / 2)^-alpha) beyond 2, and 2 before
    a = alpha
    exact = 2 + 2 ** (1 - a) / (a - 1) + 2 / (a - 1) - 2**a * 2 ** (1 - 2 * a) / (2 * a - 1)
    assert expected_round_time(pareto(a, [1.0, 2.0]), [1, 1]) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_worker_takes_the_mean_of_its_sum(family):
    pool, _ = FAMILIES[family]
    for tasks in (1, 3, 64):
        assert expected_round_time(pool, [tasks]) == pytest.approx(tasks * pool.mean()[0], rel=1e-10)


WIDE = [log_normal(1.0, 2.9), gamma(1.8e7, 1 / 4242.0), weibull(0.3, 1.0), pareto(1.05, 1.0), gamma(0.01, 1.0)]


@pytest.mark.parametrize("pool", WIDE, ids=repr)
@pytest.mark.parametrize("tasks", [1, 12])
def test_extreme_distributions_keep_the_mean(pool, tasks):
    value, error = expected_round_time(pool, [tasks], with_error=True)
    assert value == pytest.approx(tasks * pool.mean()[0], rel=1e-10)
    assert error < 1e-6 * value


@pytest.mark.parametrize("shape", [0.05, 0.3, 1.0, 2.5, 40.0, 1e5])
@pytest.mark.parametrize(("ratio", "tasks"), [(0.01, 1), (0.5, 7), (1 - 1e-6, 1), (1.0, 7), (1 + 1e-6, 7), (30.0, 1)])
def test_a_deterministic_beside_a_weibull_worker(shape, ratio, tasks):
    scale = 3.0
    d = ratio * weibull(shape, scale).mean()[0]  # E max(d, W) = d + the integral of P(W > t) beyond d
    x = np.exp(np.minimum(shape * np.log(d / scale), 700.0))
    early = scale * gammainc(1 / shape, x) * gamma_function(1 + 1 / shape) if x > 1e-290 else d
    exact = d + weibull(shape, scale).mean()[0] - early
    value, error = expected_round_time(deterministic(d / tasks) + weibull(shape, scale), [tasks, 1], with_error=True)
    assert value == pytest.approx(exact, rel=1e-10)
    assert error < 1e-9 * value


@pytest.mark.parametrize("shape", [1e4, 1e7, 3.3e8, 1.2e9, 1e10, 1e12])
def test_narrow_weibull_sums(shape):
    """Two tasks of 1 + log(E) / k, alone and beside a constant: the mean, and its normal overtime of 0.4 sd, about."""
    pool = weibull(shape, 1.0)
    mean, sd = 2 * pool.mean()[0], 2**0.5 * pool.sd()[0]
    assert expected_round_time(pool, [2]) == pytest.approx(mean, rel=1e-10 if shape < 1e9 else 1e-8)
    overtime = expected_round_time(pool + deterministic(mean), [2, 1]) - mean
    assert 0.3 * sd - 1e-8 < overtime < 0.5 * sd + 1e-8


@pytest.mark.parametrize("alpha", [1e3, 1e6, 9e8, 1e10, 1e12])
def test_narrow_pareto_sums(alpha):
    """The narrowest count as constants."""
    assert expected_round_time(pareto(alpha, 1.0), [3]) == pytest.approx(3 * alpha / (alpha - 1), rel=1e-8)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6])
def test_the_stated_error_of_a_quadrature_is_not_less_than_its_error(tolerance):
    rule = adaptive_rule(lambda t: np.sqrt(t)[None], np.array([0.0, 1.0]), tolerance)  # a kink at an edge
    assert 0 < abs(rule.values[0] @ rule.weights - 2 / 3) <= rule.error < 2 * tolerance


def maximum_with_two_log_normals(sigma: float, d: float) -> float:
    """E max(Z1 + Z2, d) for Z = exp(sigma N), by nested quadrature in the logarithm."""
    x, w = np.polynomial.legendre.leggauss(80)

    def on(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
        edges = np.linspace(low, high, 41)
        half = np.diff(edges)[:, None] / 2
        return (edges[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()

    at_most = 0.0
    for y, weight in zip(*on(-8.5 * sigma, log(d)), strict=True):  # t = exp(y)
        z, z_weight = on(-8.5 * sigma, y)
        first = norm.pdf(z / sigma) / sigma
        gap = np.maximum(exp(y) - np.exp(z), 1e-300)
        at_most += weight * exp(y) * float(z_weight @ (first * norm.cdf(np.log(gap) / sigma)))
    return 2 * exp(sigma**2 / 2) + at_most  # E max(S, d) = E S + E (d - S)+


def test_sums_of_wide_log_normals():
    sigma, d = 2.9, 50.0
    pool = log_normal(0.0, sigma) + deterministic(d)
    assert expected_round_time(pool, [2, 1]) == pytest.approx(maximum_with_two_log_normals(sigma, d), rel=1e-6)


def test_a_narrow_gamma_beside_a_wide_log_normal():
    # mixed families: the gamma is nearly the constant c, so E max is c plus the price of a call on the log-normal
    mu, sigma, c = 3.5, 2.6, 2669.0
    d = (mu - log(c)) / sigma
    call = exp(mu + sigma**2 / 2) * norm.cdf(d + sigma) - c * norm.cdf(d)
    pool = log_normal(mu, sigma) + gamma(c**2, 1 / c)
    assert expected_round_time(pool, [1, 1]) == pytest.approx(c + call, rel=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tasks", [(1, 1), (5, 3)])
def test_families_agree_with_sampling(family, tasks):
    draws = 50_000
    rng = np.random.default_rng([draws, *tasks])
    pool, sample = FAMILIES[family]
    times = np.maximum(sample(rng, (draws, tasks[0])).sum(axis=1), rng.gamma(tasks[1], 3.0, draws))
    value, error = expected_round_time(pool + exponential(3.0), tasks, with_error=True)
    assert abs(times.mean() - value) < 4.5 * times.std() / draws**0.5
    assert error < 1e-6 * value


def test_all_families_at_once_agree_with_sampling():
    draws = 100_000
    rng = np.random.default_rng(1)
    tasks = 1 + np.arange(ALL.n) % 4
    samples = [sample(rng, (draws, a)).sum(1) for (_, sample), a in zip(FAMILIES.values(), tasks, strict=True)]
    times = np.max(samples, axis=0)
    assert abs(times.mean() - expected_round_time(ALL, tasks)) < 4.5 * times.std() / draws**0.5


@settings(max_examples=6)
@given(st.lists(st.integers(0, 4), min_size=ALL.n, max_size=ALL.n), st.permutations(range(ALL.n)))
def test_bounds_and_order(tasks, order):
    tasks = np.array(tasks)
    value = expected_round_time(ALL, tasks)
    assert (tasks * ALL.mean()).max() * (1 - 1e-9) <= value <= tasks @ ALL.mean() * (1 + 1e-9)
    parts = [FAMILIES[name][0] for name in FAMILIES]
    shuffled = concatenate([parts[i] for i in order])
    assert expected_round_time(shuffled, tasks[list(order)]) == pytest.approx(value, rel=1e-9)
    more = tasks + np.eye(ALL.n, dtype=int)[order[0]]
    assert expected_round_time(ALL, more) >= value * (1 - 1e-9)


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_the_unit_of_time_does_not_matter(unit):
    def pool(u: float) -> Pool:
        return log_normal(log(u), 1.0) + uniform(u, 2 * u) + shifted_exponential(u, u) + trace([RECORD * u], "task")

    tasks = [2, 3, 1, 2]
    one = expected_round_time(pool(1.0), tasks)
    assert expected_round_time(pool(unit), tasks) == pytest.approx(unit * one, rel=1e-9)


def test_nobody_works_and_infinite_means():
    assert expected_round_time(exponential([1.0, 2.0]), [0, 0], with_error=True) == (0.0, 0.0)
    pool = pareto([1.0, 0.5, 1.5], 1.0)
    assert expected_round_time(pool, [0, 1, 1]) == np.inf
    assert expected_round_time(pool, [1, 0, 0], with_error=True) == (np.inf, 0.0)
    assert expected_round_time(pool, [0, 0, 2]) == pytest.approx(6.0, rel=1e-9)


def test_many_tasks():
    # 10,000 tasks: the sum is normal, and E max of two standard normals is 1 / sqrt(pi)
    mean, sd = half_normal(1.0).mean()[0], half_normal(1.0).sd()[0]
    value = expected_round_time(half_normal([1.0, 1.0]), [10_000, 10_000])
    assert value == pytest.approx(10_000 * mean + 100 * sd / np.pi**0.5, rel=1e-5)


def test_workers_share_the_round_of_their_traces():
    records = np.array([[1.0, 5.0, 2.0], [4.0, 1.0, 3.0]])
    pool = trace(list(records), replay="round")
    assert expected_round_time(pool, [2, 1]) == pytest.approx(np.mean([4.0, 10.0, 4.0]))
    # beside an exponential worker: E max(m, Exp(1)) = m + exp(-m) in each round
    value = expected_round_time(pool + exponential(1.0), [2, 1, 1])
    assert value == pytest.approx(np.mean([m + exp(-m) for m in (4.0, 10.0, 4.0)]), rel=1e-10)


@pytest.mark.parametrize(("end", "times"), [("wrap", [3.0, 5.0, 3.0, 1.0, 5.0, 2.0]), ("truncate", [3.0, 5.0])])
def test_traces_by_round_of_unequal_length(end, times):
    pool = trace([[1.0, 5.0, 2.0], [3.0, 1.0]], replay="round", end=end)
    assert expected_round_time(pool, [1, 1]) == pytest.approx(np.mean(times))


def test_traces_by_task_take_consecutive_rows():
    pool = trace([[1.0, 2.0, 10.0], [6.0]], replay="task")
    assert expected_round_time(pool, [2, 1]) == pytest.approx(np.mean([6.0, 12.0, 11.0]))
    assert expected_round_time(pool, [4, 1]) == pytest.approx(np.mean([14.0, 15.0, 23.0]))  # once around, and one more


def test_long_records_are_right_within_the_stated_error():
    rng = np.random.default_rng(2)
    x, y = np.sort(rng.lognormal(0.0, 1.5, 20_000)), np.sort(rng.exponential(2.0, 10_000))
    value, error = expected_round_time(trace([rng.permutation(x), y], replay="task"), [1, 1], with_error=True)
    t = np.union1d(x, y)
    at_most = np.searchsorted(x, t, side="right") / x.size * np.searchsorted(y, t, side="right") / y.size
    exact = t[0] + np.sum((1 - at_most[:-1]) * np.diff(t))
    assert abs(value - exact) <= error < 1e-4 * value


@pytest.mark.parametrize(
    ("message", "allocations"),
    [
        ("integer", [[1.0, 1.0], [True, False], ["a", "b"], [[1], [1, 2]]]),
        ("shape", [[1], [[1, 1]]]),
        ("from 0", [[2, -1], [2, 2**60]]),
    ],
)
def test_bad_allocations(message, allocations):
    for bad in allocations:
        with pytest.raises(ValueError, match=message):
            expected_round_time(exponential([1.0, 2.0]), bad)


EXTREME = [5e-324 * 100, 1e-300, 1e300, 1e306]


@pytest.mark.parametrize("unit", EXTREME)
@pytest.mark.parametrize("family", [exponential, deterministic, lambda m: weibull(2.0, m), lambda m: pareto(3.0, m)])
def test_extreme_units_of_time(unit: float, family: Callable[[list[float]], Pool]) -> None:
    one, pool = family([1.0, 2.0]), family([unit, 2 * unit])
    tolerance = 1e-9 + 5e-324 / unit
    assert expected_round_time(pool, [3, 2]) / unit == pytest.approx(expected_round_time(one, [3, 2]), rel=tolerance)
    found, usual = optimal_allocation(pool, 5, 0.1), optimal_allocation(one, 5, 0.1)
    assert found.allocation.tolist() == usual.allocation.tolist()
    assert found.cost / unit == pytest.approx(usual.cost, rel=1e-6 + 5e-324 / unit)


@pytest.mark.parametrize("replay", ["task", "round"])
@pytest.mark.parametrize("unit", EXTREME)
def test_extreme_units_of_recorded_times(unit: float, replay: str) -> None:
    records = np.array([[1.0, 2.0], [3.0, 1.0]])
    one, pool = trace(list(records), replay), trace(list(records * unit), replay)
    np.testing.assert_allclose(pool.sd() / unit, one.sd(), rtol=1e-15 + 0.1 * 5e-324 / unit)
    assert expected_round_time(pool, [2, 1]) / unit == pytest.approx(expected_round_time(one, [2, 1]), rel=1e-9)
    assert optimal_allocation(pool, 5).allocation.tolist() == optimal_allocation(one, 5).allocation.tolist()


def test_units_far_apart() -> None:
    pool = exponential([1e-300, 1.0, 1e306])
    assert expected_round_time(pool, [5, 2, 0]) == pytest.approx(2.0, rel=1e-9)
    assert expected_round_time(pool, [0, 2, 1]) == pytest.approx(1e306, rel=1e-9)
    assert optimal_allocation(pool, 9).allocation.tolist() == [9, 0, 0]
    assert optimal_allocation(exponential([1e306, 1.0]), 2).allocation.tolist() == [0, 2]


@pytest.mark.parametrize("pool", ["x", [1, 2], None, {"family": "exponential"}])
def test_a_pool_that_is_none_gets_a_sentence(pool: object) -> None:
    for function in (
        expected_round_time,
        optimal_allocation,
        proxy_optimal,
        known_sample,
        partial(best_race, price=0.1),
    ):
        with pytest.raises(ValueError, match=r"pool must be a Pool, such as exponential\(\[1, 2\]\) makes, not"):
            function(pool, 3)
