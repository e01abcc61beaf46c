"""allocate: the paper's rule against brute force, and what it must hold everywhere."""

import itertools
import warnings
from heapq import heapify, heapreplace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from ata_gym import allocate, proxy_loss, proxy_optimal
from ata_gym.pools import exponential, pareto
from ata_gym.simulation.keys import stream_keys
from ata_gym.theory.allocation.beta_rule import allocate_by_cost

# and many ties
POSITIVE = st.one_of(
    st.floats(0.01, 100.0),
    st.integers(1, 4).map(float),
    st.floats(1e-300, 1e300),
)


def one_at_a_time(scores: np.ndarray, budget: int) -> np.ndarray:
    """Hand each task to the worker with the least (a_i + 1) s_i, the lowest index first."""
    allocation = np.zeros(len(scores), np.int64)
    longer = [(score, i) for i, score in enumerate(scores.tolist())]
    heapify(longer)
    for _ in range(budget):
        i = longer[0][1]
        allocation[i] += 1
        heapreplace(longer, ((int(allocation[i]) + 1) * float(scores[i]), i))
    return allocation


def recursive(scores: np.ndarray, budget: int) -> np.ndarray:
    """RAS as the paper states it: ties to the fewest coordinates at the maximum, then to the lowest
    index.
    """
    one_more = np.eye(len(scores), dtype=np.int64)
    allocation = 0 * one_more[0]
    for _ in range(budget):
        loads = scores * (allocation + one_more)
        longest = loads.max(axis=1)
        allocation += one_more[np.lexsort(((loads == longest[:, None]).sum(axis=1), longest))[0]]
    return allocation


def beta_rule(scores: np.ndarray, *rest: Any) -> np.ndarray:
    return allocate_by_cost(scores, scores[..., ::-1], *rest)


@settings(max_examples=50)
@given(
    st.lists(POSITIVE, min_size=1, max_size=9),
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.data(),
)
def test_equals_one_task_at_a_time_and_the_papers_recursion_ties_included(
    any_scores,
    tied_scores,
    data,
) -> None:
    for scores, largest_budget, rule in (
        (any_scores, 40, one_at_a_time),
        (tied_scores, 12, recursive),
    ):
        s = np.array(scores, float)
        budget = data.draw(st.integers(1, largest_budget))
        np.testing.assert_array_equal(allocate(s, budget), rule(s, budget))


@settings(max_examples=50)
@given(
    st.lists(st.one_of(st.just(0.0), st.floats(0.1, 10)), min_size=1, max_size=8),
    st.integers(1, 30),
    st.data(),
)
def test_zero_scores(scores: list[float], budget: int, data: st.DataObject) -> None:
    s = np.array(scores)
    untried = np.array(data.draw(st.lists(st.booleans(), min_size=len(s), max_size=len(s))))
    a = allocate(s, budget, stream_keys(data.draw(st.integers(0, 10)))[0], untried)
    assert a.sum() == budget
    assert a.min() >= 0
    new = (s == 0) & untried
    clipped = (s == 0) & ~untried
    positive = s > 0
    remaining = budget - min(budget, int(new.sum()))
    if not remaining:  # the untried come first, one each
        assert (a[new].max(), a[~new].sum()) == (1, 0)
    elif clipped.any():  # then the clipped, as evenly as can be
        assert (a[new] == 1).all()
        assert a[positive].sum() == 0
        assert a[clipped].max() - a[clipped].min() <= 1
    elif positive.any():  # then the rule above
        assert (a[new] == 1).all()
        np.testing.assert_array_equal(a[positive], allocate(s[positive], remaining))
    else:  # nobody but the untried
        assert a.max() - a.min() <= 1


@pytest.mark.parametrize(
    ("rule", "untried"),
    [(allocate, True), (allocate, False), (beta_rule, True)],
)
def test_the_choice_among_zeros_is_uniform(rule, untried: bool) -> None:
    rows = 5_000
    n = 6
    a = rule(np.zeros((rows, n)), 2, stream_keys(5, rows), np.full(n, untried))
    pairs = np.array(
        [(a[:, list(pair)] == 1).all(axis=1).sum() for pair in itertools.combinations(range(n), 2)],
    )
    assert pairs.sum() == rows
    assert stats.chisquare(pairs).pvalue > 1e-3


@pytest.mark.parametrize("rule", [allocate, beta_rule])
def test_rows_do_not_touch_each_other(rule) -> None:
    rng = np.random.default_rng(0)
    scores = np.where(rng.random((50, 8)) < 0.3, 0.0, rng.random((50, 8)))
    untried = rng.random((50, 8)) < 0.5
    keys = stream_keys(9, 50)
    batch = rule(scores, 11, keys, untried)
    for e in range(50):
        np.testing.assert_array_equal(batch[e], rule(scores[e], 11, keys[e], untried[e]))
    shaped = rule(scores.reshape(5, 10, 8), 11, keys.reshape(5, 10), untried.reshape(5, 10, 8))
    np.testing.assert_array_equal(shaped.reshape(50, 8), batch)


def test_scores_of_any_layout_and_scale_and_any_budget() -> None:
    scores = np.asfortranarray(np.random.default_rng(1).random((7, 5)))
    np.testing.assert_array_equal(allocate(scores, 9), allocate(np.ascontiguousarray(scores), 9))
    np.testing.assert_array_equal(allocate(scores[:, ::-2], 9), allocate(scores[:, ::-2].copy(), 9))
    # without keys the lowest come first
    np.testing.assert_array_equal(
        allocate(np.zeros(5), 7),
        [2, 2, 1, 1, 1],
    )
    np.testing.assert_array_equal(allocate(np.zeros(5), 3, untried=np.ones(5)), [1, 1, 1, 0, 0])
    scores = np.array([1.0, 3.0, 0.7])
    for budget in (1, 10**6, 2**50):
        a = allocate(scores, budget)
        assert a.sum() == budget
        assert (a * scores).max() <= ((a + 1) * scores).min()
    for scale in (5e-324, 1e-310, 1e-300, 1.0, 1e300, 1.7e307):
        np.testing.assert_array_equal(
            allocate(np.array([1.0, 2.0, 4.0, 10.0]) * scale, 17),
            [10, 5, 2, 0],
        )


@pytest.mark.parametrize("budget", [1, 23, 300, 7000])
def test_many_workers(budget: int) -> None:
    """Also with ties, and where the workers of a sample, evenly spaced, are not like the others."""
    rng = np.random.default_rng(0)
    n = 40_000
    few_values = np.array([1.0, 2.0, 4.0])
    for scores in (
        rng.exponential(size=n),
        rng.choice(few_values, n),
        np.full(n, 0.7),
        np.where(np.arange(n) % (n // 4096), 4.0, rng.choice(few_values, n)),
        np.where(np.arange(n) % (n // 4096), rng.choice(few_values, n), 4.0),
        np.where(rng.random(n) < 0.001, 0.5, rng.choice(few_values, n)),
    ):
        np.testing.assert_array_equal(allocate(scores, budget), one_at_a_time(scores, budget))
        if budget < 300:  # workers that are away, or of score 0, take nothing from the others
            some = np.arange(n) % 3 > 0
            a = allocate(np.where(some, scores, 0.0), budget, available=some)
            np.testing.assert_array_equal(a[some], allocate(scores[some], budget))


@pytest.mark.parametrize(
    ("message", "cases"),
    [
        ("finite and at least 0", [([1.0, bad], 3) for bad in (np.nan, np.inf, -1.0)]),
        ("n of at least 1", [([], 3), (1.0, 3)]),
        ("budget must be a whole number", [([1.0], bad) for bad in (0, -2, 2.0, 2**50 + 1, True)]),
        ("one uint64 key per row", [(np.zeros((2, 3)), 2, np.zeros(3, np.uint64))]),
        (
            "at least one worker must be available in",
            [(np.ones((2, 3)), 2, None, None, [[True] * 3, [False] * 3])],
        ),
        (
            "available must have a shape that broadcasts",
            [
                (np.ones((2, 3)), 2, None, None, bad)
                for bad in (True, [True], [True, True], np.ones((3, 3)))
            ],
        ),
    ],
)
def test_bad_input(message: str, cases: list[tuple[object, ...]]) -> None:
    for arguments in cases:
        with pytest.raises(ValueError, match=message):
            allocate(*arguments)


def test_proxy_optimal() -> None:
    assert proxy_loss([3, 0], [1.0, np.inf]) == 3.0
    mixed = exponential([1.0, 2.0]) + pareto(0.5, 1.0)
    np.testing.assert_array_equal(proxy_optimal(mixed, 3), [2, 1, 0])
    with pytest.raises(ValueError, match="infinite mean"):
        proxy_optimal(pareto(0.9, 1.0), 3)


@settings(max_examples=50)
@given(
    st.lists(POSITIVE | st.just(0.0), min_size=1, max_size=9),
    st.integers(1, 40),
    st.booleans(),
    st.data(),
)
def test_unavailable_workers_are_as_if_they_did_not_exist(scores, budget, by_chance, data) -> None:
    masks = st.lists(st.booleans(), min_size=len(scores), max_size=len(scores))
    available = np.array(data.draw(masks.filter(any)))
    untried = np.array(data.draw(masks))
    s = np.array(scores)
    spread = np.array(scores[::-1])
    junk = data.draw(st.sampled_from([np.nan, -1.0, 0.0, 1e-300]))
    if by_chance:
        keys = stream_keys(data.draw(st.integers(0, 99)))[0]
        never = untried
    else:
        keys = None
        never = None
    for rule, parts in ((allocate, (s,)), (allocate_by_cost, (s, spread))):
        if rule is allocate_by_cost:
            keys = None  # its random order is drawn by worker, so that it depends on who is there
        a = rule(
            *(np.where(available, part, junk) for part in parts),
            budget,
            keys,
            never,
            available,
        )
        assert not a[~available].any()
        if never is None:
            some = None
        else:
            some = never[available]
        np.testing.assert_array_equal(
            a[available],
            rule(*(part[available] for part in parts), budget, keys, some),
        )
        all_available = rule(*parts, budget, keys, never, np.ones(len(s), bool))
        np.testing.assert_array_equal(all_available, rule(*parts, budget, keys, never))


@settings(max_examples=25)
@given(n=st.integers(1, 40), budget=st.integers(1, 10**6), seed=st.integers(0, 10**6))
def test_the_beta_rule_gives_available_workers_the_whole_budget(
    n: int,
    budget: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    mean, spread = rng.random((2, 4, n)) * (rng.random((2, 4, n)) < rng.random((2, 4, 1)))
    untried, available = rng.random((2, 4, n)) < rng.random((2, 4, 1))
    available[:, 0] |= ~available.any(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for never in (untried, available, None):  # available: all who are there were never tried
            for available_now in (available, None):
                a = allocate_by_cost(
                    mean, spread * rng.integers(2), budget, None, never, available_now
                )
                assert (a.sum(axis=1) == budget).all()
                assert a.min() >= 0
                if available_now is not None:
                    assert not a[~available_now].any()


@settings(max_examples=25)
@given(
    st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=5),
    st.integers(1, 2000),
    st.data(),
)
def test_the_beta_rule_hands_out_many_tasks_at_once_as_one_by_one(costs, budget, data) -> None:
    mean, spread = np.array(costs).T
    never = np.array(data.draw(st.lists(st.booleans(), min_size=len(mean), max_size=len(mean))))
    expected = np.where(never & (budget >= never.sum()), 1, 0)
    if never.all() or budget < never.sum():
        expected = budget // len(mean) + (np.arange(len(mean)) < budget % len(mean))
        if not (never.all()):
            expected = never * (np.cumsum(never) <= budget)
    else:
        unit = 2.0 ** np.floor(np.log2(np.maximum(mean, spread)[~never].min()))
        for _ in range(budget - int(expected.sum())):
            j = expected + 1
            with np.errstate(over="ignore"):
                cost = mean / unit * j + spread / unit * np.sqrt(j)
            expected[np.argmin(np.where(never, np.inf, cost))] += 1
    np.testing.assert_array_equal(allocate_by_cost(mean, spread, budget, untried=never), expected)


@pytest.mark.parametrize("budget", [3, 17, 10**6, 2**50])
def test_the_beta_rule_at_any_scale_and_budget(budget: int) -> None:
    mean = np.array([1.0, 2.0, 4.0, 10.0])
    spread = np.array([8.0, 1.0, 0.0, 3.0])
    a = allocate_by_cost(mean, spread, budget)
    for scale in (5e-324, 1e-310, 1e-300, 1.7e307):
        np.testing.assert_array_equal(allocate_by_cost(mean * scale, spread * scale, budget), a)
    assert a.sum() == budget
    cost = mean * a + spread * np.sqrt(a)
    assert np.where(a > 0, cost, 0.0).max() <= (mean * (a + 1) + spread * np.sqrt(a + 1)).min() * (
        1 + 1e-12
    )
    np.testing.assert_array_equal(
        allocate_by_cost(np.array([1.0, 0.0, 0.0]), np.zeros(3), budget),
        [0, budget, 0],
    )
    even = allocate_by_cost(np.array([1.0, 2.0]), np.zeros(2), budget, untried=np.ones(2, np.bool_))
    np.testing.assert_array_equal(even, [budget - budget // 2, budget // 2])
