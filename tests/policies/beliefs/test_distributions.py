"""The belief about whole distributions: against Kaplan-Meier of scipy, plain means and known distributions."""

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
from ata_policies.beliefs.moments import Exposure


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
    kinds = data.draw(st.lists(st.tuples(st.integers(-15, 14), st.integers(1, 4)), min_size=1, max_size=12))
    bins = {b: c for b, c in kinds if b}
    middle = 2.0 ** (0.5 * np.array([b + 0.5 for b in bins]))
    cancels = data.draw(st.lists(st.booleans(), min_size=len(bins), max_size=len(bins)))
    counts = np.array(list(bins.values()), dtype=int)
    results = np.append(1.0, np.repeat(middle, counts * ~np.array(cancels, bool)))  # the first one anchors the bins
    elapsed = np.repeat(middle, counts * np.array(cancels, bool))
    distribution = own_sample(learn(results, elapsed), 20_000)[0, 0]
    expected = stats.ecdf(stats.CensoredData(uncensored=results, right=elapsed)).sf
    edges = np.concatenate([2.0 ** (0.5 * np.arange(-15, 16))])
    last = max(results.max(), elapsed.max(initial=0.0))
    edges = edges[edges <= last]
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


def test_a_worker_with_cancelled_tasks_only() -> None:
    belief = learn([], [4.0, 8.0])
    assert not belief.untried().any()
    assert belief.mean()[0, 0] == 12.0
    assert sample(belief, 8).mean() > 8.0


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


def test_extreme_times() -> None:
    """Zeros, the smallest and the largest times have a bin."""
    belief = learn([0.0, 5e-324, 1.0, 1e300], [0.0, 1e308])
    assert belief.bins[0, 0, 0].sum() == 4
    assert belief.bins[0, 0, 1, BINS - 1] == 1
    assert sample(learn([0.0, 0.0]), 5).tolist() == [[[0.0] * 5]]


def test_observes_as_exposure_does_and_rows_can_be_taken_out() -> None:
    rng = np.random.default_rng(2)
    many, exposure = DistributionBelief.empty(3, 4), Exposure.empty(3, 4)
    for _ in range(30):
        worker, time = rng.integers(-1, 4, (3, 5)), rng.lognormal(size=(3, 5))
        elapsed = rng.exponential(size=(3, 4)) * rng.integers(0, 2, (3, 4))
        many, exposure = many.observe(worker, time, elapsed), exposure.observe(worker, time, elapsed)
    np.testing.assert_array_equal(many.counts, exposure.counts)
    np.testing.assert_allclose(many.busy, exposure.busy, rtol=1e-12)
    for e in range(3):
        np.testing.assert_array_equal(sample(many.rows([e]), 16)[0], sample(many, 16)[e])
