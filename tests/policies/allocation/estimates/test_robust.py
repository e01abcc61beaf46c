"""Robust means against plain implementations, and the policies that allocate by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

import ata_policies
from ata_gym import allocate, proxy_loss, proxy_optimal
from ata_gym.pools import log_normal, pareto
from ata_policies import Setting
from ata_policies.beliefs.robust import BlockMeans, Blocks, Truncated, catoni, median_of_means

POLICIES = ["median-of-means", "catoni", "truncated-mean"]
BUDGET = 7
TIMES = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=70)


def of_one_worker(times: list[float], blocks: int) -> Blocks:
    worker = np.zeros((1, len(times)), np.int64)
    return Blocks.empty(1, 1, blocks).observe(worker, np.array([times]))


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


def truncated_mean(times: list[float], moment: float) -> float:
    """One task in each round."""
    belief = Truncated(np.zeros((1, 1)), np.zeros((1, 1)), np.full(1, moment))
    for time in times:
        belief = belief.observe(np.array([[0]]), np.array([[time]]))
    return float(belief.mean()[0, 0])


@given(times=TIMES, blocks=st.sampled_from([2, 4, 8, 16]), moment=st.floats(0.1, 50))
def test_the_estimators_are_their_plain_implementations(times: list[float], blocks: int, moment: float) -> None:
    belief = of_one_worker(times, blocks)
    assert median_of_means(belief)[0, 0] == pytest.approx(plain_median_of_means(times, blocks), rel=1e-12)
    assert catoni(belief, moment)[0, 0] == pytest.approx(plain_catoni(times, blocks, moment), rel=1e-7)
    rounds = list(range(1, len(times) + 1))
    assert truncated_mean(times, moment) == pytest.approx(plain_truncated(times, rounds, moment), rel=1e-12)


@given(times=TIMES, scale=st.floats(1e-100, 1e100))
def test_they_scale_with_the_times(times: list[float], scale: float) -> None:
    scaled = [scale * time for time in times]
    for estimate in (median_of_means, lambda belief: catoni(belief, 4.0)):
        one, other = (float(estimate(of_one_worker(x, 8))[0, 0]) for x in (times, scaled))
        assert other == pytest.approx(scale * one, rel=1e-7)
        assert min(times) * (1 - 1e-9) <= one <= max(times) * (1 + 1e-9)
    assert truncated_mean(scaled, 30.0) == pytest.approx(scale * truncated_mean(times, 30.0), rel=1e-9)


@given(place=st.integers(1, 63), huge=st.floats(1e3, 1e12), seed=st.integers(0, 99))
def test_one_huge_outlier_barely_moves_them(place: int, huge: float, seed: int) -> None:
    """The plain mean of 64 times becomes huge / 64; these stay within a factor, Catoni's within a 7th root."""
    times = list(1 + np.random.default_rng(seed).exponential(size=64))
    with_outlier = [*times[:place], huge, *times[place + 1 :]]
    both = [of_one_worker(x, 8) for x in (times, with_outlier)]
    before, after = (median_of_means(belief)[0, 0] for belief in both)
    assert after < 1.5 * before
    before, after = (catoni(belief, 1.0)[0, 0] for belief in both)
    assert after < before * 2 * huge ** (1 / 7)
    assert truncated_mean(with_outlier, 10.0) < 2.0 * truncated_mean(times, 10.0)


def test_known_means_are_kept_and_change_nothing() -> None:
    rng = np.random.default_rng(0)
    belief = Blocks.empty(3, 5, 8)
    kept = {name: BlockMeans(*np.zeros((2, 3, 5))) for name in ("median", "catoni")}
    for _ in range(60):
        belief = belief.observe(rng.integers(-1, 5, (3, 2)), rng.pareto(1.5, (3, 2)) + 1.0)
        kept["median"] = BlockMeans(belief.counts, median_of_means(belief, kept["median"]))
        kept["catoni"] = BlockMeans(belief.counts, catoni(belief, 4.0, kept["catoni"]))
    np.testing.assert_array_equal(kept["median"].means, median_of_means(belief))
    np.testing.assert_allclose(kept["catoni"].means, catoni(belief, 4.0), rtol=1e-8)
    marked = BlockMeans(belief.counts, np.full((3, 5), 7.0))
    assert (median_of_means(belief, marked) == 7.0).all()
    assert (catoni(belief, 4.0, marked) == 7.0).all()


def test_times_of_zero_and_workers_never_tried() -> None:
    belief = Blocks.empty(1, 2, 4).observe(np.zeros((1, 9), np.int64), np.zeros((1, 9)))
    assert median_of_means(belief).tolist() == catoni(belief, 4.0).tolist() == [[0.0, 0.0]]
    assert belief.untried().tolist() == [[False, True]]
    assert truncated_mean([0.0, 0.0, 5.0], 4.0) == 0.0


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
    kept = BlockMeans(belief.counts, means)
    found = policy.estimate.scores(belief, state.round, state.round_keys(), kept).score
    tried = ~belief.untried()
    np.testing.assert_allclose(found[tried], lower[tried], rtol=1e-12)
    allocations = (allocate(one, BUDGET, state.round_keys(), ~tried) for one in (found, lower))
    np.testing.assert_array_equal(*allocations)


@pytest.mark.parametrize(("name", "exponent"), [*zip(POLICIES, (-40, 1, 40), strict=True)])
def test_the_unit_of_time_does_not_matter(play: Any, name: str, exponent: int) -> None:
    shapes = np.full(6, 2.5)
    pools = (pareto(shapes, scale * np.arange(1.0, 7)) for scale in (1.0, 2.0**exponent))
    one, other = (play(name, 30, 1, pool=pool, budget=BUDGET).actions for pool in pools)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("pool", ["log-normal", "pareto"])
def test_less_regret_than_the_plain_mean_under_heavy_tails(play: Any, pool: str) -> None:
    """Mean proxy loss over 16 rows, after the first rounds: the plain mean has lost good workers for ever."""
    i = np.arange(1.0, 13)
    workers = {"log-normal": log_normal(np.log(i), 1.75), "pareto": pareto(1.7, i)}[pool]
    means = workers.mean()
    best = proxy_loss(proxy_optimal(workers, BUDGET), means)
    plain, *robust = (
        proxy_loss(play(policy, 2000, 16, pool=workers, budget=BUDGET).actions[1000:], means).mean() / best - 1
        for policy in ("certainty-equivalence", *POLICIES)
    )
    assert max(robust) < 0.95 * plain
