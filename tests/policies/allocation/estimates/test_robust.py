"""Robust means against plain implementations, and the policies that allocate by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

import ata_policies
from ata_gym import allocate
from ata_gym.pools import log_normal
from ata_policies import Setting
from ata_policies.allocation.estimates.robust import Catoni, MedianOfMeans, TruncatedMean

POLICIES = ["median-of-means", "catoni", "truncated-mean"]
BUDGET = 7
TIMES = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=70)


def found(estimate: Any, times: list[float]) -> float:
    """The robust mean of one worker's times, which all come in one round; for a truncated mean, in rounds of one."""
    rounds = np.array([times]) if isinstance(estimate, MedianOfMeans | Catoni) else np.array(times)[:, None]
    belief = estimate.start(1, 1)
    for time in rounds:
        belief = belief.observe(np.zeros((1, len(time)), np.int64), time[None])
    return float(estimate.mean(estimate.updated(belief))[0, 0])


def block_means(times: list[float], blocks: int) -> list[float]:
    return [float(np.mean(times[b::blocks])) for b in range(blocks)]


def plain_median_of_means(times: list[float], most: int) -> float:
    blocks = max(b for b in (1, 2, 4, 8, 16) if b == 1 or (b <= most and 2 * b <= len(times)))
    return float(np.median(block_means(times, blocks)))


def plain_catoni(times: list[float], most: int, moment: float) -> float:
    """The published A for the blocks' means and their variance, with L a quarter of their number."""
    blocks = min(most, len(times))
    y = np.array(block_means(times, blocks))
    level, v = blocks / 4, moment * np.median(y) ** 2 * blocks / len(times)
    a = math.sqrt(2 * level / (blocks * (v + 2 * v * level / (blocks - 2 * level))))
    if y.max() - y.min() < 1e-12 * y.max():
        return float(y[0])

    def influence(m: float) -> float:
        x = a * (y - m)
        return float((np.sign(x) * np.log(1 + abs(x) + x**2 / 2)).sum())

    return float(brentq(influence, y.min(), y.max(), xtol=1e-15 * y.max(), rtol=1e-14))


def plain_truncated(times: list[float], rounds: list[int], moment: float) -> float:
    total = times[0]
    for j in range(2, len(times) + 1):
        m, level = total / (j - 1), 2 * math.log(rounds[j - 1])
        total += min(times[j - 1], math.inf if level == 0 else max(m, m * math.sqrt(moment * j / level)))
    return total / len(times)


@settings(max_examples=50)
@given(times=TIMES, blocks=st.sampled_from([2, 4, 8, 16]), moment=st.floats(0.1, 50))
def test_the_estimators_are_their_plain_implementations(times: list[float], blocks: int, moment: float) -> None:
    assert found(MedianOfMeans(blocks=blocks), times) == pytest.approx(plain_median_of_means(times, blocks), rel=1e-12)
    assert found(Catoni(moment, blocks=blocks), times) == pytest.approx(plain_catoni(times, blocks, moment), rel=1e-7)
    rounds = list(range(1, len(times) + 1))
    assert found(TruncatedMean(moment), times) == pytest.approx(plain_truncated(times, rounds, moment), rel=1e-12)


@pytest.mark.parametrize("estimate", [MedianOfMeans(blocks=8), Catoni()])
def test_means_are_worked_out_where_results_are_new(estimate: Any) -> None:
    """Those that are kept change nothing but the time that it takes."""
    rng, belief = np.random.default_rng(0), estimate.start(3, 5)
    for _ in range(60):
        belief = estimate.updated(belief.observe(rng.integers(-1, 5, (3, 2)), rng.pareto(1.5, (3, 2)) + 1.0))
    blank = belief._replace(known=0.0 * belief.counts, means=0.0 * belief.counts)
    np.testing.assert_allclose(belief.means, estimate.updated(blank).means, rtol=1e-8)
    marked = belief._replace(means=np.full((3, 5), 7.0))
    assert (estimate.updated(marked).means == 7.0).all()


POOL = log_normal(np.log(np.arange(1.0, 7)), 1.5)
WORLD: dict[str, Any] = {"pool": POOL, "budget": BUDGET}


@pytest.mark.parametrize(
    ("name", "width", "offset"),
    [
        (POLICIES[0], lambda v: math.sqrt(12 * v) * math.sqrt(16), 1 / 8),
        (POLICIES[1], lambda v: 2 * math.sqrt(v), 0.0),
        (POLICIES[2], lambda v: 4 * math.sqrt(v), 0.0),
    ],
)
def test_the_bounds_are_the_published_ones(play: Any, name: str, width: Any, offset: float) -> None:
    """Scores are mean - radius * published radius, at most the mean, and 0 below it."""
    make: Any = ata_policies.load(name)
    policy = make(Setting(n=6, budget=BUDGET), moment=3.0, radius=0.05)
    assert math.sqrt(policy.estimate.width * 3.0) == pytest.approx(width(3.0))
    state = play(policy, 50, 2, **WORLD).states[-1]
    means = np.arange(1.0, 13).reshape(2, 6)
    published = means * width(3.0) * np.sqrt((2 * math.log(50) + offset) / np.maximum(state.belief.counts, 1))
    lower = np.maximum(means - 0.05 * published, 0.0)
    assert (state.round == 50).all()
    belief = state.belief
    if name == "truncated-mean":
        belief = belief._replace(totals=means * np.maximum(belief.counts, 1))
    else:
        belief = belief._replace(means=means)
    found = policy.estimate.scores(belief, state.round, state.round_keys()).score
    tried = belief.counts > 0
    np.testing.assert_allclose(found[tried], lower[tried], rtol=1e-12)
    allocations = (allocate(one, BUDGET, state.round_keys(), ~tried) for one in (found, lower))
    np.testing.assert_array_equal(*allocations)
