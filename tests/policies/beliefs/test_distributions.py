"""The belief about whole distributions: against Kaplan-Meier of scipy, plain means, known distributions; and tails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ata_gym.pools import Pool, exponential, gamma, log_normal
from ata_policies.beliefs.distributions.bins import BINS, DistributionBelief, own_sample, sample
from ata_policies.beliefs.distributions.censoring import censored_distributions
from ata_policies.beliefs.distributions.tails import borrow_tails


def learn(times: Any, elapsed: Any = ()) -> DistributionBelief:
    """One row, one worker: some results, then cancelled tasks."""
    time = np.array(times, float)[None]
    belief = DistributionBelief.empty(1, 1).observe(np.zeros(time.shape, int), time, np.zeros((1, 1)))
    for x in elapsed:
        belief = belief.observe(np.array([[-1]]), np.zeros((1, 1)), np.array([[float(x)]]))
    return belief


positive = st.floats(1e-3, 1e6)


@settings(max_examples=40)
@given(times=st.lists(positive, min_size=1, max_size=40), size=st.integers(1, 50))
def test_without_cancelled_tasks_means_are_plain_means_and_slices_increase(times: list[float], size: int) -> None:
    belief = learn(times)
    for distribution in (own_sample(belief, size)[0, 0], sample(belief, size)[0, 0]):
        np.testing.assert_allclose(distribution.mean(), np.mean(times), rtol=1e-9)
        assert (np.diff(distribution) >= -1e-9 * distribution[1:]).all()
        assert distribution.min() >= 0.0
    np.testing.assert_allclose(belief.mean()[0, 0], np.mean(times), rtol=1e-12)


@settings(max_examples=20)
@given(spread=st.floats(1e-4, 0.5), seed=st.integers(0, 1000))
def test_the_own_distribution_has_the_spread_of_the_results(spread: float, seed: int) -> None:
    """Also where all results are in one bin, which is far wider."""
    times = np.random.default_rng(seed).gamma(spread**-2, size=300)
    distribution = own_sample(learn(times), 1000)[0, 0]
    np.testing.assert_allclose(distribution.std(), np.std(times), rtol=0.03)


@settings(max_examples=25)
@given(data=st.data())
def test_kaplan_meier(data: st.DataObject) -> None:
    """Where no bin holds both results and cancelled tasks, the chances of the bins are those of scipy's estimator."""
    bin = st.tuples(st.integers(-15, 14).filter(bool), st.integers(1, 4), st.booleans())
    place, count, cancelled = np.array(data.draw(st.lists(bin, min_size=1, max_size=12, unique_by=lambda b: b[0]))).T
    middle = 2.0 ** (0.5 * (place + 0.5))
    results = np.append(1.0, np.repeat(middle, count * (1 - cancelled)))  # the first one anchors the bins
    elapsed = np.repeat(middle, count * cancelled)
    distribution = own_sample(learn(results, elapsed), 20_000)[0, 0]
    expected = stats.ecdf(stats.CensoredData(uncensored=results, right=elapsed)).sf
    edges = 2.0 ** (0.5 * np.arange(-15, 16))
    edges = edges[edges <= max(results.max(), elapsed.max(initial=0.0))]
    survival = (distribution[None] >= edges[:, None] * (1 - 1e-6)).mean(axis=1)
    np.testing.assert_allclose(survival, expected.evaluate(edges * (1 - 1e-6)), atol=2e-3)


def test_cancelled_tasks_of_exponential_times() -> None:
    """Every task beyond 1.5 is cancelled: the distribution is still that of mean 1, and the tail is exponential."""
    rng = np.random.default_rng(0)
    times = rng.exponential(size=8_000)
    late = times > 1.5
    belief = DistributionBelief.empty(1, 1)
    for x, cancelled in zip(times, late, strict=True):
        belief = belief.observe(np.array([[-int(cancelled)]]), np.array([[x]]), np.array([[1.5 * cancelled]]))
    distribution = own_sample(belief, 64)[0, 0]
    np.testing.assert_allclose(distribution.mean(), 1.0, rtol=0.05)
    np.testing.assert_allclose(belief.mean()[0, 0], 1.0, rtol=0.02)
    exact = stats.expon.ppf((np.arange(64) + 0.5) / 64)
    assert abs(distribution - exact)[:60].max() < 0.2


def test_after_many_tasks_in_vain_a_worker_is_thought_to_take_longer_than_most_of_them() -> None:
    """Ages in one bin, from 360 to 500; one other worker shows that the shortest time is not far below the mean."""
    rng, belief = np.random.default_rng(3), DistributionBelief.empty(1, 2)
    ages = rng.uniform(365.0, 505.0, 800)
    for age, time in zip(ages, 500.0 + rng.exponential(500.0, 800), strict=True):
        belief = belief.observe(np.array([[0]]), np.array([[time]]), np.array([[0.0, age]]))
    shortest = censored_distributions(belief, 32).times[0, 1, 0]
    assert np.quantile(ages, 0.75) < shortest < 2.0 * ages.max()


@pytest.mark.parametrize("pool", [gamma(4.0, 3.0), log_normal(0.0, 1.0), exponential([7.0], shift=[7.0])])
def test_converges_to_the_distribution(pool: Pool) -> None:
    shift, scale, standard = pool.distributions.shift[0], pool.distributions.scale[0], pool.standard(0)
    distribution = own_sample(learn(shift + scale * standard.rvs(50_000, np.random.default_rng(0))), 32)[0, 0]
    exact = shift + scale * standard.ppf((np.arange(32) + 0.5) / 32)
    np.testing.assert_allclose(distribution[1:-1], exact[1:-1], rtol=0.06)


def test_workers_seen_rarely_borrow_the_shape_of_the_others() -> None:
    """Nineteen workers of CV 1/2 lend it to a worker seen twice, and a worker never seen has no distribution."""
    rng = np.random.default_rng(1)
    n, size = 21, 64
    worker = np.repeat(np.arange(n - 1), [*[200] * (n - 2), 2])
    belief = DistributionBelief.empty(1, n).observe(
        worker[None], rng.gamma(4.0, 5.0, (1, worker.size)), np.zeros((1, n))
    )
    distribution = sample(belief, size)[0]
    cv = distribution.std(axis=1) / distribution.mean(axis=1)
    np.testing.assert_allclose(cv[: n - 1], 0.5, rtol=0.25)
    assert np.isnan(distribution[n - 1]).all()
    np.testing.assert_allclose(distribution[n - 2].mean(), belief.mean()[0, n - 2])
    alone = sample(learn([1.0, 1.001]), size)[0, 0]
    assert 0.3 < alone.std() / alone.mean() < 1.0


def test_extreme_times_and_cancelled_tasks_only() -> None:
    """Zeros, the smallest and the largest times have a bin."""
    cancelled = learn([], [4.0, 8.0])
    assert not cancelled.untried().any()
    assert cancelled.mean()[0, 0] == 12.0
    assert sample(cancelled, 8).mean() > 8.0
    belief = learn([0.0, 5e-324, 1.0, 1e300], [0.0, 1e308])
    assert belief.bins[0, 0, 0].sum() == 4
    assert belief.bins[0, 0, 1, BINS - 1] == 1
    assert sample(learn([0.0, 0.0]), 5).tolist() == [[[0.0] * 5]]


# --- rare huge times: what is borrowed from all workers' tails, and what stays ---


def belief_of(times: Any) -> DistributionBelief:
    """What is known after one round with K results of each of n workers, times (n, K)."""
    n, k = np.shape(times)
    return DistributionBelief.empty(1, n).observe(
        np.tile(np.arange(n), k)[None], np.ravel(times, "F")[None], np.zeros((1, n))
    )


def test_without_long_times_moments_are_as_they_were() -> None:
    belief = belief_of(np.random.default_rng(0).uniform(1.0, 3.0, (5, 40)))
    for found, expected in zip(borrow_tails(belief), (belief.counts, belief.totals, belief.deviations), strict=True):
        np.testing.assert_array_equal(found, expected[0])


def test_the_tail_by_hand() -> None:
    """The median of worker 0 is 2, between the two values in the middle, so its times are cut at 8."""
    times = np.ones((2, 128))
    times[0, 64:120], times[0, 120:] = 3.0, 10.0
    cut = np.minimum(times, 8.0).mean(axis=1)
    tail, moments = times.mean(axis=1) / cut - 1.0, borrow_tails(belief_of(times))
    expected = cut * (1.0 + (128 * tail + 100 * tail.mean()) / 228)
    np.testing.assert_allclose(moments.totals / moments.counts, expected, rtol=1e-12)


def test_one_huge_time_says_little_of_its_worker_and_its_variation_stays() -> None:
    times = np.ones((10, 30))
    times[3, 5] = 30.0
    belief = belief_of(times)
    raw, moments = belief.totals[0] / belief.counts[0], borrow_tails(belief)
    got = moments.totals / moments.counts
    others = np.delete(got, 3)
    assert np.ptp(others) < 1e-9
    assert 1.0 < others[0] < got[3] < 1.0 + 0.5 * (raw[3] - 1.0)
    variation = moments.deviations * moments.counts / moments.totals**2
    np.testing.assert_allclose(variation, belief.deviations[0] * belief.counts[0] / belief.totals[0] ** 2)
    slices = sample(belief, 128)[0]
    assert slices[3, -1] / slices[3, 0] < 0.5 * 30.0  # a tail of its own would reach that far
