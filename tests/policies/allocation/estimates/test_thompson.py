"""Draws follow their distributions and depend on their key only; Thompson sampling learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ata_gym import proxy_loss, proxy_optimal
from ata_gym.pools import gamma
from ata_gym.simulation.keys import stream_keys
from ata_policies.allocation.estimates.thompson import draw_gammas, draw_means
from ata_policies.beliefs.moments import Moments, learn_shapes


@pytest.mark.parametrize("shape", [0.02, 0.999, 1.0, 1.1, 4.0, 1e3, 1e8])
def test_gamma_draws_follow_their_distribution(shape: float) -> None:
    """The distribution of all numbers, and that of the first worker's over keys."""
    drawn = draw_gammas(np.full((400, 100), shape), stream_keys(7, rows=400))
    assert stats.kstest(drawn.ravel(), stats.gamma(shape).cdf).pvalue > 0.01
    assert stats.kstest(drawn[:, 0], stats.gamma(shape).cdf).pvalue > 0.01
    np.testing.assert_allclose(drawn.mean(), shape, rtol=5 * 200**-1 / shape**0.5)


def test_gamma_draws_have_their_tails() -> None:
    """A million numbers of shape 1, where every twentieth is refused: counts beyond far quantiles are as expected."""
    drawn = draw_gammas(np.ones((1000, 1000)), stream_keys(3, rows=1000)).ravel()
    for share in (1e-4, 1e-3, 1e-2):
        for count in ((drawn > -np.log(share)).sum(), (drawn < -np.log1p(-share)).sum()):
            assert stats.binomtest(int(count), drawn.size, share).pvalue > 1e-3


def test_gamma_draws_are_independent() -> None:
    """Neighbouring workers and neighbouring keys are uncorrelated; one more worker changes nobody's number."""
    drawn, keys = draw_gammas(np.full((1000, 100), 2.0), stream_keys(11, rows=1000)), stream_keys(11, rows=1000)
    for one, other in ((drawn[:, 1:], drawn[:, :-1]), (drawn[1:], drawn[:-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 4 / 1000**0.5 / 10
    fewer = draw_gammas(np.full((1, 50), 2.0), keys[7:8])[0]
    np.testing.assert_array_equal(fewer, drawn[7, :50])


@pytest.mark.parametrize(("shape", "prior"), [(1.0, 0.0), (4.0, 0.0), (0.5, 2.0)])
def test_means_follow_the_posterior(shape: float, prior: float) -> None:
    """5 tasks of total time 20: 1 / mean is Gamma(prior + 5 shape, rate 20 shape)."""
    rows = 4000
    drawn = draw_means(np.full((rows, 1), 5.0), np.full((rows, 1), 20.0), shape, stream_keys(1, rows), prior)
    distribution = stats.invgamma(prior + 5 * shape, scale=20 * shape)
    assert stats.kstest(drawn[:, 0], distribution.cdf).pvalue > 0.01


@settings(max_examples=30)
@given(
    counts=st.lists(st.integers(0, 10**9), min_size=1, max_size=8),
    mean=st.floats(1e-100, 1e100), shape=st.one_of(st.floats(1e-300, 1e-3), st.floats(1e-3, 1e12)),
)  # fmt: skip
def test_draws_and_means_are_finite(counts: list[int], mean: float, shape: float) -> None:
    k, keys = np.array([counts], np.float64), stream_keys(0)
    drawn = draw_gammas(shape * k, keys)
    assert np.isfinite(drawn).all()
    assert (drawn >= 0).all()
    assert (drawn[k == 0] == 0).all()
    means = draw_means(k, k * mean, max(shape, 1e-3), keys)
    assert np.isfinite(means).all()
    assert ((means == 0) == (k == 0)).all()


@settings(max_examples=50)
@given(
    times=st.lists(st.lists(st.floats(0.01, 100), max_size=8), min_size=1, max_size=5),
    weight=st.floats(0.1, 100),
)
def test_shapes_by_their_formula(times: list[list[float]], weight: float) -> None:
    n = len(times)
    worker = np.array([[i for i in range(n) for _ in times[i]]], np.int64)
    belief = Moments.empty(1, n).observe(worker, np.array([[x for own in times for x in own]], np.float64))
    q = [len(own) * np.var(own) / np.mean(own) ** 2 if own else 0.0 for own in times]
    free = [max(len(own) - 1, 0) for own in times]
    common = (1 + sum(q)) / (1 + sum(free))
    expected = [(weight + free[i]) / (weight * common + q[i]) for i in range(n)]
    np.testing.assert_allclose(learn_shapes(belief, weight)[0], expected, rtol=1e-9)


def test_a_known_or_learned_shape_learns_faster(play: Any) -> None:
    pool = gamma(np.full(10, 9.0), np.arange(1.0, 11.0) / 9.0)
    best = proxy_loss(proxy_optimal(pool, 7), pool.mean())
    plain, known, learned = (
        proxy_loss(play(name, 300, 8, pool=pool, budget=7).actions, pool.mean()).mean() / best - 1
        for name in ("thompson", "thompson:shape=9.0", "thompson-gamma")
    )
    assert known < 0.6 * plain
    assert learned < 0.7 * plain
