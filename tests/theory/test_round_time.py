"""expected_round_time against closed forms, independent quadrature and sampling with numpy."""

from collections.abc import Callable
from functools import partial
from math import comb, exp, factorial, floor, log

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import integrate
from scipy.special import gamma as gamma_function, gammainc
from scipy.stats import norm

from ata_gym import expected_round_time, optimal_allocation, pools, proxy_optimal
from ata_gym.pools import (
    Pool,
    concatenate,
    deterministic,
    exponential,
    gamma,
    log_normal,
    pareto,
    trace,
    weibull,
)
from ata_gym.theory.round_time.expected import expected_round_times
from ata_gym.theory.round_time.quadrature import adaptive_rule
from ata_gym.theory.round_time.worker_times import Sums
from ata_gym.theory.simulated.slices import slice_means
from ata_policies.planning.races.search import best_race

Sampler = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]

RECORD = np.array([1.0, 4.0, 2.0, 2.5, 7.0])

# one worker of every family with a finite variance, and its sampler: (generator, shape) -> task
# times, tasks last
FAMILIES: dict[str, tuple[Pool, Sampler]] = {
    "deterministic": (deterministic(2.5), lambda _, size: np.full(size, 2.5)),
    "shifted exponential": (
        pools.shifted_exponential(1.0, 1.5),
        lambda rng, size: 1.0 + rng.exponential(1.5, size),
    ),
    "uniform": (pools.uniform(1.0, 4.0), lambda rng, size: rng.uniform(1.0, 4.0, size)),
    "half-normal": (
        pools.half_normal(2.0, 0.5),
        lambda rng, size: 0.5 + abs(rng.normal(0, (2 * np.pi) ** 0.5, size)),
    ),
    "gamma": (gamma(0.4, 5.0), lambda rng, size: rng.gamma(0.4, 5.0, size)),
    "narrow gamma": (
        gamma(4e4, 5e-5, shift=0.3),
        lambda rng, size: 0.3 + rng.gamma(4e4, 5e-5, size),
    ),
    "log-normal": (log_normal(0.2, 0.9), lambda rng, size: rng.lognormal(0.2, 0.9, size)),
    "narrow log-normal": (log_normal(0.7, 0.01), lambda rng, size: rng.lognormal(0.7, 0.01, size)),
    "weibull": (weibull(0.6, 1.5), lambda rng, size: 1.5 * rng.weibull(0.6, size)),
    "steep weibull": (weibull(8.0, 2.0), lambda rng, size: 2.0 * rng.weibull(8.0, size)),
    "pareto": (pareto(4.0, 1.4), lambda rng, size: 1.4 * (1 + rng.pareto(4.0, size))),
    "trace by task": (
        trace([RECORD]),
        lambda rng, size: RECORD[(rng.integers(5, size=(size[0], 1)) + range(size[1])) % 5],
    ),
    "trace by round": (
        trace([RECORD], "round"),
        lambda rng, size: rng.choice(RECORD, (size[0], 1)).repeat(size[1], 1),
    ),
}
ALL = concatenate([pool for pool, _ in FAMILIES.values()])
WIDE = [
    log_normal(1.0, 2.9),
    gamma(1.8e7, 1 / 4242.0),
    weibull(0.3, 1.0),
    pareto(1.05, 1.0),
    gamma(0.01, 1.0),
]


def irwin_hall(n: int, x: float) -> float:
    return sum((-1) ** k * comb(n, k) * (x - k) ** n for k in range(floor(x) + 1)) / factorial(n)


def test_closed_forms():
    for n in (1, 2, 10, 459):  # one task each: the harmonic number
        pool = exponential(np.ones(n))
        each = np.ones(n, int)
        harmonic = np.sum(1 / np.arange(1, n + 1))
        assert expected_round_time(pool, each) == pytest.approx(harmonic, rel=1e-10)
        # many small tails together
        assert expected_round_times(pool, each[None]) == pytest.approx(
            harmonic,
            rel=1e-6,
        )
    # two each: E max = sum of means - E min, and E min = integral of (exp(-t) (1 + t))^2 = 5/4
    assert expected_round_time(exponential([1.0, 1.0]), [2, 2]) == pytest.approx(2.75, rel=1e-10)
    for a, b in ((2, 1), (3, 4), (5, 5)):

        def late(t, a=a, b=b):
            return 1 - irwin_hall(a, min(t, a)) * irwin_hall(b, min(t, b))

        expected = integrate.quad(late, 0, max(a, b))[0]
        assert expected_round_time(pools.uniform([0.0, 0.0], 1.0), [a, b]) == pytest.approx(
            expected,
            rel=1e-9,
        )
    for a in (1.01, 1.3, 2.0, 6.0):
        # the integral of 1 - (1 - t^-a) (1 - (t / 2)^-a) beyond 2, and 2 before
        exact = 2 + 2 ** (1 - a) / (a - 1) + 2 / (a - 1) - 2**a * 2 ** (1 - 2 * a) / (2 * a - 1)
        assert expected_round_time(pareto(a, [1.0, 2.0]), [1, 1]) == pytest.approx(exact, rel=1e-9)
    # 10,000 tasks: the sum is normal, and E max of two standard normals is 1 / sqrt(pi)
    mean = pools.half_normal(1.0).mean()[0]
    sd = pools.half_normal(1.0).sd()[0]
    value = expected_round_time(pools.half_normal([1.0, 1.0]), [10_000, 10_000])
    assert value == pytest.approx(10_000 * mean + 100 * sd / np.pi**0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("pool", "largest_count"),
    [*((pool, 64) for pool, _ in FAMILIES.values()), *((pool, 9) for pool in WIDE)],
    ids=repr,
)
def test_one_worker_takes_the_mean_of_its_sum(pool, largest_count):
    for tasks in (1, 3, largest_count):
        assert expected_round_time(pool, [tasks]) == pytest.approx(
            tasks * pool.mean()[0],
            rel=1e-10,
        )


@pytest.mark.parametrize("shape", [0.05, 0.3, 2.5, 1e5])
@pytest.mark.parametrize(
    ("ratio", "tasks"),
    [(0.01, 1), (0.5, 7), (1 - 1e-6, 1), (1.0, 7), (1 + 1e-6, 7), (30.0, 1)],
)
def test_a_deterministic_beside_a_weibull_worker(shape, ratio, tasks):
    scale = 3.0
    # E max(d, W) = d + the integral of P(W > t) beyond d
    d = ratio * weibull(shape, scale).mean()[0]
    x = np.exp(np.minimum(shape * np.log(d / scale), 700.0))
    if x > 1e-290:
        early = scale * gammainc(1 / shape, x) * gamma_function(1 + 1 / shape)
    else:
        early = d
    exact = d + weibull(shape, scale).mean()[0] - early
    value = expected_round_time(deterministic(d / tasks) + weibull(shape, scale), [tasks, 1])
    assert value == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("shape", [1e4, 3.3e8, 1.2e9, 1e12])
def test_narrow_sums(shape):
    """Two tasks of 1 + log(E) / k, alone and beside a constant: the mean, and its normal overtime
    of 0.4 sd, about.

    The narrowest count as constants, also of Pareto times.
    """
    pool = weibull(shape, 1.0)
    mean = 2 * pool.mean()[0]
    sd = 2**0.5 * pool.sd()[0]
    assert expected_round_time(pool, [2]) == pytest.approx(mean, rel=1e-10 if shape < 1e9 else 1e-8)
    overtime = expected_round_time(pool + deterministic(mean), [2, 1]) - mean
    assert 0.3 * sd - 1e-8 < overtime < 0.5 * sd + 1e-8
    assert expected_round_time(pareto(shape, 1.0), [3]) == pytest.approx(
        3 * shape / (shape - 1),
        rel=1e-8,
    )


@settings(max_examples=60)
@given(st.floats(0.0, 2.0), st.floats(0.05, 2.0), st.floats(0.05, 3.0))
def test_a_uniform_beside_an_exponential_worker(low, width, mean):
    """The end of uniform times is a kink of the integrand: E max(U, X) = E U + m E exp(-U / m)."""
    exact = low + width / 2 + mean**2 * (exp(-low / mean) - exp(-(low + width) / mean)) / width
    assert expected_round_time(
        pools.uniform(low, low + width) + exponential(mean),
        [1, 1],
    ) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_a_quadrature_sees_a_step_wherever_it_is(tolerance):
    """Also next to an end or the middle of a panel, where the rule of Gauss has no node."""
    for place in np.linspace(1e-6, 1 - 1e-6, 199):
        rule = adaptive_rule(
            lambda t, place=place: (t < place)[None] * 1.0,
            np.array([0.0, 1.0]),
            tolerance,
        )
        assert abs(rule.integrals[0] - place) <= 5 * tolerance
        assert rule.errors[0] <= rule.error


def test_a_quadrature_takes_the_values_inside_a_panel_where_a_function_jumps_at_its_edges():
    edges = 1e3 * np.array([0.1, 0.3, 0.7, 0.9])
    rule = adaptive_rule(
        lambda t: 3.0 - np.searchsorted(edges[1:], t, side="right")[None],
        edges,
        1e-9,
    )
    assert rule.integrals[0] == pytest.approx(3 * 200 + 2 * 400 + 200, rel=1e-12)
    assert rule.weights.size == 3 * 2 * 8


def test_the_stated_error_of_a_quadrature_is_not_less_than_its_error():
    for tolerance in (1e-2, 1e-4, 1e-6):
        # a kink at an edge
        rule = adaptive_rule(
            lambda t: np.sqrt(t)[None],
            np.array([0.0, 1.0]),
            tolerance,
        )
        assert 0 < abs(rule.values[0] @ rule.weights - 2 / 3) <= rule.error < 2 * tolerance


def test_a_narrow_gamma_beside_a_wide_log_normal():
    # mixed families: the gamma is nearly the constant c, so E max is c plus the price of a call on
    # the log-normal
    mu = 3.5
    sigma = 2.6
    c = 2669.0
    d = (mu - log(c)) / sigma
    call = exp(mu + sigma**2 / 2) * norm.cdf(d + sigma) - c * norm.cdf(d)
    pool = log_normal(mu, sigma) + gamma(c**2, 1 / c)
    assert expected_round_time(pool, [1, 1]) == pytest.approx(c + call, rel=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_families_agree_with_sampling_and_with_the_times_of_several(family):
    draws = 20_000
    tasks = (5, 3)
    rng = np.random.default_rng([draws, *tasks])
    pool, sample = FAMILIES[family]
    times = np.maximum(sample(rng, (draws, tasks[0])).sum(axis=1), rng.gamma(tasks[1], 3.0, draws))
    value = expected_round_time(pool + exponential(3.0), tasks)
    assert abs(times.mean() - value) < 4.5 * times.std() / draws**0.5
    several = expected_round_times(pool + exponential(3.0), np.array([[1, 1], tasks, [0, 2]]))
    np.testing.assert_allclose(several[1:], [value, 6.0], rtol=2e-6)


def narrow(rng: np.random.Generator, mean: np.ndarray, kind: str) -> Pool:
    width = 10.0 ** rng.uniform(-6, -4)
    if kind == "uniform":
        return pools.uniform(mean * (1 - width), mean * (1 + width))
    shape = np.full(mean.size, width**-2)
    if kind == "gamma":
        return gamma(shape, mean / shape)
    return log_normal(np.log(mean), width)


@pytest.mark.parametrize(
    ("kind", "n"),
    [("deterministic", 650), ("uniform", 350), ("gamma", 200), ("log-normal", 150)],
)
def test_the_times_of_several_where_many_narrow_sums_have_places_of_their_own(kind, n):
    """One task each: the mean.

    Several: the largest mean, where that is far enough above the others.
    """
    rng = np.random.default_rng(5)
    mean = 2.0 + np.sort(rng.random(n))
    if kind == "deterministic":
        pool = deterministic(mean)
    else:
        pool = narrow(rng, mean, kind)
    np.testing.assert_allclose(
        expected_round_times(pool, np.eye(n, dtype=int)),
        pool.mean(),
        rtol=1e-6,
    )
    several = np.zeros((40, n), int)
    several[np.arange(40)[:, None], rng.integers(0, n // 2, (40, 12))] = 1
    last = rng.integers(n // 2 + 30, n, 40)
    several[np.arange(40), last] = 1
    np.testing.assert_allclose(expected_round_times(pool, several), pool.mean()[last], rtol=1e-6)


def by_sorting(records: list[np.ndarray], tasks: np.ndarray) -> float:
    """E max of sums of consecutive rows, each row equally likely to be the first."""
    rolled = [
        np.sort(
            [
                np.take(record, range(start, start + k), mode="wrap").sum()
                for start in range(record.size)
            ],
        )
        for record, k in zip(records, tasks, strict=True)
        if k
    ]
    t = np.unique(np.concatenate(rolled))
    done = np.prod([np.searchsorted(one, t, side="right") / one.size for one in rolled], axis=0)
    return float(t[0] + np.sum((1 - done[:-1]) * np.diff(t)))


@pytest.mark.parametrize(("rows", "spread"), [(60, 0.3), (150, 1.5), (5000, 3.0)])
def test_the_times_of_several_where_times_are_recorded(rows, spread):
    rng = np.random.default_rng(rows)
    records = [rng.lognormal(0.0, spread, rows - i) for i in range(6)]
    tasks = rng.multinomial(14, np.full(6, 1 / 6), 40 if rows < 1000 else 3)
    pool = trace(records)
    several = expected_round_times(trace(records), tasks)
    for some, value in list(zip(tasks, several, strict=True))[:6]:
        assert value == pytest.approx(by_sorting(records, some), rel=1e-10)
        assert expected_round_time(pool, some) == pytest.approx(value, rel=1e-10)


def test_recorded_beside_other_times():
    """E max(R, X) is the mean over the values of R of r + m exp(-r / m), also where one of many
    values is extreme.
    """
    record = np.append(np.linspace(1.0, 2.0, 6999), 1e5)
    mean = np.array([0.3, 4.0])
    pool = trace([record, 2 * record]) + exponential(mean)
    tasks = np.array([[1, 0, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]])
    exact = [
        np.mean(c * record + m * np.exp(-c * record / m)) for c, m in ((1, 4.0), (1, 0.3), (2, 4.0))
    ]
    np.testing.assert_allclose(expected_round_times(pool, tasks), exact, rtol=1e-10)
    np.testing.assert_allclose([expected_round_time(pool, a) for a in tasks], exact, rtol=1e-10)
    # a thousand workers of whom each is seldom very slow: P(some are) = 1 - (1 - 1/5000)^1000
    rare = trace([np.append(np.ones(4999), 1e4)] * 1000) + deterministic(0.5)
    slow = -np.expm1(1000 * np.log1p(-1 / 5000))
    assert expected_round_times(rare, np.ones((1, 1001), int))[0] == pytest.approx(
        1 + slow * 9999,
        rel=1e-10,
    )


def test_a_long_record_in_groups_keeps_its_mean_and_its_largest_values():
    values = np.random.default_rng(0).lognormal(0.0, 2.0, 30_000)
    distribution = Sums.from_values(values, 0).grouped(2048).standard
    assert 1000 < distribution.knots.size <= 2048
    assert distribution.excess(np.array([distribution.lowest]))[
        0
    ] + distribution.lowest == pytest.approx(
        values.mean(),
        rel=1e-12,
    )
    np.testing.assert_allclose(distribution.knots[-150:], np.sort(values)[-150:], rtol=1e-12)
    assert distribution.survival(np.sort(values)[-150:] * (1 - 1e-12)) * 30_000 == pytest.approx(
        np.arange(150, 0, -1),
    )


def test_times_of_several_on_scales_far_apart():
    """Constants, and exponential times of means from 1e-3 to 1e3 beside them: E max(d, X) = d + m
    exp(-d / m).
    """
    means = np.logspace(-3, 3, 13)
    constants = np.logspace(-4, 4, 9)
    pool = exponential(means) + deterministic(constants)
    pairs = np.array([(i, j) for i in range(13) for j in range(9)])
    tasks = np.zeros((len(pairs), 22), int)
    tasks[np.arange(len(pairs)), pairs[:, 0]] = tasks[np.arange(len(pairs)), 13 + pairs[:, 1]] = 1
    d = constants[pairs[:, 1]]
    m = means[pairs[:, 0]]
    np.testing.assert_allclose(expected_round_times(pool, tasks), d + m * np.exp(-d / m), rtol=1e-6)


EXTREME = {
    "gamma 1e-8": gamma(1e-8, [1.0, 3.0]),
    "gamma 1e-15": gamma(1e-15, [1e6, 1e7]),
    "gamma 1e-250": gamma(1e-250, [1.0, 2.0]),
    "log-normal 10": log_normal([0.0, 0.3], 10.0),
    "log-normal 17": log_normal([0.0, 0.3], 17.0),
    "pareto 1 + 1e-7": pareto(1 + 1e-7, [1.0, 2.0]),
}


@pytest.mark.parametrize("name", EXTREME)
def test_extreme_pools_whose_mean_comes_from_rare_times(name):
    """What is beyond any time is not negligible where a chance times a time is.

    Two are never late in one round.
    """
    pool = EXTREME[name]
    sums_too = name not in ("log-normal 17", "pareto 1 + 1e-7")
    for tasks in ([1, 0], [0, 1], [1, 1], *([[2, 0], [2, 1]] if sums_too else [])):
        total = tasks @ pool.mean()
        # is left out of the sum of the means
        if tasks[0] and tasks[1]:
            together = 1e-5
        else:
            together = 0.0
        assert (
            total * (1 - together - 1e-9) <= expected_round_time(pool, tasks) <= total * (1 + 1e-9)
        )
        assert (
            total * (1 - together - 1e-6)
            <= expected_round_times(pool, np.array([tasks]))[0]
            <= total * (1 + 1e-6)
        )
    if sums_too:
        best = optimal_allocation(pool, 2)
        assert best.cost == pytest.approx(expected_round_time(pool, best.allocation), rel=1e-9)
        assert best.cost - best.gap <= 2 * pool.mean()[0] * (1 + 1e-6)


@settings(max_examples=4)
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


def test_nobody_works_and_infinite_means():
    pool = pareto([1.0, 0.5, 1.5], 1.0)
    tasks = np.array([[0, 1, 1], [0, 0, 2], [0, 0, 0], [1, 0, 0], [0, 0, 2]])
    expected = [np.inf, 6.0, 0.0, np.inf, 6.0]
    np.testing.assert_allclose([expected_round_time(pool, a) for a in tasks], expected, rtol=1e-9)
    np.testing.assert_allclose(expected_round_times(pool, tasks), expected, rtol=1e-5)


ROUNDS = trace([[1.0, 5.0, 2.0], [4.0, 1.0, 3.0]], replay="round")
TASKS = trace([[1.0, 2.0, 10.0], [6.0]], replay="task")


@pytest.mark.parametrize(
    ("pool", "tasks", "times"),
    [
        (ROUNDS, [2, 1], [4.0, 10.0, 4.0]),  # workers share the round
        (
            ROUNDS + exponential(1.0),
            [2, 1, 1],
            [m + exp(-m) for m in (4.0, 10.0, 4.0)],
        ),  # E max(m, Exp(1)) in each
        (trace([[1.0, 5.0, 2.0], [3.0, 1.0]], "round"), [1, 1], [3.0, 5.0, 3.0, 1.0, 5.0, 2.0]),
        (trace([[1.0, 5.0, 2.0], [3.0, 1.0]], "round", "truncate"), [1, 1], [3.0, 5.0]),
        (TASKS, [2, 1], [6.0, 12.0, 11.0]),  # consecutive rows
        (TASKS, [4, 1], [14.0, 15.0, 23.0]),  # once around, and one more
    ],
)
def test_traces(pool, tasks, times):
    assert expected_round_time(pool, tasks) == pytest.approx(np.mean(times), rel=1e-10)


def test_long_records_are_nearly_right():
    rng = np.random.default_rng(2)
    x = np.sort(rng.lognormal(0.0, 1.5, 20_000))
    y = np.sort(rng.exponential(2.0, 10_000))
    value = expected_round_time(trace([rng.permutation(x), y], replay="task"), [1, 1])
    t = np.union1d(x, y)
    at_most = (
        np.searchsorted(x, t, side="right") / x.size * np.searchsorted(y, t, side="right") / y.size
    )
    exact = t[0] + np.sum((1 - at_most[:-1]) * np.diff(t))
    assert value == pytest.approx(exact, rel=1e-5)


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


@pytest.mark.parametrize("unit", [5e-324 * 100, 1e306])
@pytest.mark.parametrize(
    "family",
    [
        *(exponential, deterministic, lambda m: weibull(2.0, m), lambda m: pareto(3.0, m)),
        *(
            lambda m, replay=replay: trace(np.outer(m, [1.0, 1.5]), replay)
            for replay in ("task", "round")
        ),
    ],
)
def test_extreme_units_of_time(unit: float, family: Callable[[list[float]], Pool]) -> None:
    one = family([1.0, 2.0])
    pool = family([unit, 2 * unit])
    rounding = 5e-324 / unit
    np.testing.assert_allclose(pool.sd() / unit, one.sd(), rtol=1e-15 + rounding)
    time = expected_round_time(one, [3, 2])
    assert expected_round_time(pool, [3, 2]) / unit == pytest.approx(time, rel=1e-9 + rounding)
    several = [expected_round_times(p, np.array([[3, 2]]))[0] for p in (pool, one)]
    assert several[0] / unit == pytest.approx(several[1], rel=1e-6 + rounding)
    optimum = optimal_allocation(pool, 5, 0.1)
    usual = optimal_allocation(one, 5, 0.1)
    assert optimum.allocation.tolist() == usual.allocation.tolist()
    assert optimum.cost / unit == pytest.approx(usual.cost, rel=1e-6 + rounding)


def test_units_far_apart() -> None:
    pool = exponential([1e-300, 1.0, 1e306])
    assert expected_round_time(pool, [5, 2, 0]) == pytest.approx(2.0, rel=1e-9)
    assert expected_round_time(pool, [0, 2, 1]) == pytest.approx(1e306, rel=1e-9)
    assert optimal_allocation(pool, 9).allocation.tolist() == [9, 0, 0]
    assert optimal_allocation(exponential([1e306, 1.0]), 2).allocation.tolist() == [0, 2]


@pytest.mark.parametrize("pool", ["x", {"family": "exponential"}])
def test_a_pool_that_is_none_gets_a_sentence(pool: object) -> None:
    best = partial(best_race, price=0.1)
    for function in (expected_round_time, optimal_allocation, proxy_optimal, slice_means, best):
        with pytest.raises(
            ValueError,
            match=r"pool must be a Pool, such as exponential\(\[1, 2\]\) makes, not",
        ):
            function(pool, 3)
