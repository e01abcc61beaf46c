"""The belief about whole distributions: against Kaplan-Meier and known ones; its tails, and what it
forgets.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from ata_gym.pools import Pool, exponential, gamma, log_normal
from ata_gym.typing import Floats
from ata_gym.utils.trees import difference
from ata_policies.beliefs.distributions.arrays import FINISHED, ROW, SLOT
from ata_policies.beliefs.distributions.bins import BINS, SLOTS, DistributionBelief
from ata_policies.beliefs.distributions.censoring import censored_distributions
from ata_policies.beliefs.distributions.slices import own_sample, sample
from ata_policies.beliefs.distributions.tails import borrow_tails, own_slices


def learn(times: Any, elapsed: Any = ()) -> DistributionBelief:
    """One row, one worker: some results, then cancelled tasks."""
    time = np.array(times, float)[None]
    belief = DistributionBelief.empty(1, 1).observe(
        np.zeros(time.shape, int),
        time,
        np.zeros((1, 1)),
    )
    belief.row[:, ROW.gains : ROW.gains + 3] = -1e9  # all results count
    for x in elapsed:
        belief = belief.observe(np.array([[-1]]), np.zeros((1, 1)), np.array([[float(x)]]))
    return belief


positive = st.floats(1e-3, 1e6)


@settings(max_examples=40)
@given(times=st.lists(positive, min_size=1, max_size=40), size=st.integers(1, 50))
def test_without_cancelled_tasks_means_are_plain_means_and_slices_increase(
    times: list[float],
    size: int,
) -> None:
    belief = learn(times)
    for distributions in (
        own_sample(belief, size),
        sample(belief, size),
        censored_distributions(belief, size).times,
    ):
        distribution = distributions[0, 0]
        np.testing.assert_allclose(distribution.mean(), np.mean(times), rtol=1e-9)
        assert (np.diff(distribution) >= -1e-9 * distribution[1:]).all()
        assert distribution.min() >= 0.0
    np.testing.assert_allclose(belief.mean()[0, 0], np.mean(times), rtol=1e-12)


@settings(max_examples=20)
@given(spread=st.floats(1e-4, 0.5), seed=st.integers(0, 1000))
def test_the_own_distribution_has_the_spread_of_the_results(spread: float, seed: int) -> None:
    times = np.random.default_rng(seed).gamma(spread**-2, size=300)
    distribution = own_sample(learn(times), 1000)[0, 0]
    np.testing.assert_allclose(distribution.std(), np.std(times), rtol=0.03)


@settings(max_examples=25)
@given(data=st.data())
def test_kaplan_meier(data: st.DataObject) -> None:
    """Where no bin holds both results and cancelled tasks, the bins have the chances of
    scipy's estimator.
    """
    bin = st.tuples(st.integers(-15, 14).filter(bool), st.integers(1, 4), st.booleans())
    place, count, cancelled = np.array(
        data.draw(st.lists(bin, min_size=1, max_size=12, unique_by=lambda b: b[0])),
    ).T
    middle = 2.0 ** (0.5 * (place + 0.5))
    # the first one anchors the bins
    results = np.append(
        1.0,
        np.repeat(middle, count * (1 - cancelled)),
    )
    elapsed = np.repeat(middle, count * cancelled)
    distribution = own_sample(learn(results, elapsed), 20_000)[0, 0]
    expected = stats.ecdf(stats.CensoredData(uncensored=results, right=elapsed)).sf
    edges = 2.0 ** (0.5 * np.arange(-15, 16))
    edges = edges[edges <= max(results.max(), elapsed.max(initial=0.0))]
    survival = (distribution[None] >= edges[:, None] * (1 - 1e-6)).mean(axis=1)
    np.testing.assert_allclose(survival, expected.evaluate(edges * (1 - 1e-6)), atol=2e-3)


def test_cancelled_tasks_of_exponential_times() -> None:
    """Every task beyond 1.5 is cancelled: the distribution still has mean 1, and the tail is
    exponential.
    """
    rng = np.random.default_rng(0)
    times = rng.exponential(size=8_000)
    late = times > 1.5
    belief = DistributionBelief.empty(1, 1)
    for x, cancelled in zip(times, late, strict=True):
        belief = belief.observe(
            np.array([[-int(cancelled)]]),
            np.array([[x]]),
            np.array([[1.5 * cancelled]]),
        )
    distribution = own_sample(belief, 64)[0, 0]
    np.testing.assert_allclose(distribution.mean(), 1.0, rtol=0.05)
    np.testing.assert_allclose(belief.mean()[0, 0], 1.0, rtol=0.02)
    exact = stats.expon.ppf((np.arange(64) + 0.5) / 64)
    assert abs(distribution - exact)[:60].max() < 0.2


def test_after_many_tasks_in_vain_a_worker_is_thought_to_take_longer_than_most_of_them() -> None:
    """Ages in one bin, from 360 to 500; one other worker shows that the shortest time is not far
    below the mean.
    """
    rng = np.random.default_rng(3)
    belief = DistributionBelief.empty(1, 2)
    ages = rng.uniform(365.0, 505.0, 800)
    for age, time in zip(ages, 500.0 + rng.exponential(500.0, 800), strict=True):
        belief = belief.observe(np.array([[0]]), np.array([[time]]), np.array([[0.0, age]]))
    shortest = censored_distributions(belief, 32).times[0, 1, 0]
    assert np.quantile(ages, 0.75) < shortest < 2.0 * ages.max()


@pytest.mark.parametrize(
    "pool",
    [gamma(4.0, 3.0), log_normal(0.0, 1.0), exponential([7.0], shift=[7.0])],
)
def test_converges_to_the_distribution(pool: Pool) -> None:
    shift = pool.distributions.shift[0]
    scale = pool.distributions.scale[0]
    standard = pool.standard(0)
    distribution = own_sample(
        learn(shift + scale * standard.rvs(50_000, np.random.default_rng(0))),
        32,
    )[0, 0]
    exact = shift + scale * standard.ppf((np.arange(32) + 0.5) / 32)
    np.testing.assert_allclose(distribution[1:-1], exact[1:-1], rtol=0.06)


def test_workers_seen_rarely_borrow_the_shape_of_the_others() -> None:
    """Nineteen workers of CV 1/2 lend it to a worker seen twice, and a worker never seen has no
    distribution.
    """
    rng = np.random.default_rng(1)
    n = 21
    size = 64
    worker = np.repeat(np.arange(n - 1), [*[200] * (n - 2), 2])[None]
    belief = DistributionBelief.empty(1, n).observe(
        worker,
        rng.gamma(4.0, 5.0, worker.shape),
        np.zeros((1, n)),
    )
    distribution = sample(belief, size)[0]
    cv = distribution.std(axis=1) / distribution.mean(axis=1)
    np.testing.assert_allclose(cv[: n - 1], 0.5, rtol=0.25)
    assert np.isnan(
        [distribution[n - 1], censored_distributions(belief, size).times[0, n - 1]],
    ).all()
    np.testing.assert_allclose(distribution[n - 2].mean(), belief.mean()[0, n - 2])
    alone = sample(learn([1.0, 1.001]), size)[0, 0]
    assert 0.3 < alone.std() / alone.mean() < 1.0


def test_extreme_times_and_cancelled_tasks_only() -> None:
    cancelled = learn([], [4.0, 8.0])
    assert not cancelled.untried().any()
    assert cancelled.mean()[0, 0] == 12.0
    assert sample(cancelled, 8).mean() > 8.0
    belief = learn([0.0, 5e-324, 1.0, 1e300], [0.0, 1e308])
    assert (belief.bins[0, 0, 0].sum(), belief.bins[0, 0, 1, BINS - 2 :].sum()) == (4, 1)
    assert sample(learn([0.0, 0.0]), 5).tolist() == [[[0.0] * 5]]


# --- rare huge times: what is borrowed from all workers' tails, and what stays ---


def belief_of(times: Any) -> DistributionBelief:
    """What is known after one round with K results of each of n workers, times (n, K)."""
    (n, k), time = np.shape(times), np.ravel(times, "F")
    return DistributionBelief.empty(1, n).observe(
        np.tile(np.arange(n), k)[None],
        time[None],
        np.zeros((1, n)),
    )


def test_without_long_times_moments_are_as_they_were() -> None:
    belief = belief_of(np.random.default_rng(0).uniform(1.0, 3.0, (5, 40)))
    moments = borrow_tails(belief, *own_slices(belief))
    for found, expected in zip(
        moments,
        (belief.counts, belief.totals, belief.deviations),
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)


def test_equal_tails_are_shared_in_full_and_different_ones_are_kept() -> None:
    rng = np.random.default_rng(0)
    times = np.exp(rng.normal(0.0, 1.5, (10, 60)))
    belief = belief_of(times)
    mean = borrow_tails(belief, *own_slices(belief)).mean()[0]
    raw = times.mean(axis=1)
    # ten workers of one distribution: their means differ less
    assert np.log(mean).std() < 0.85 * np.log(raw).std()
    # one worker in two has no tail at all, and thousands of results tell so
    times = np.ones((2, 4000))
    times[0] = np.exp(rng.normal(0.0, 1.5, 4000))
    belief = belief_of(times)
    mean = borrow_tails(belief, *own_slices(belief)).mean()[0]
    np.testing.assert_allclose(mean, times.mean(axis=1), rtol=0.01)


def test_means_of_gamma_times_are_not_mended_by_their_tails() -> None:
    """The median of gamma times of a small shape is known far worse than their mean."""
    rng = np.random.default_rng(0)
    times = rng.gamma(0.1, 10.0, (2, 2000))
    few = DistributionBelief.empty(1, 2).observe(
        np.repeat([0, 1], [2000, 8])[None],
        np.concatenate([times[0], times[1, :8]])[None],
        np.zeros((1, 2)),
    )
    mean = borrow_tails(few, *own_slices(few)).mean()[0]
    np.testing.assert_allclose(mean, [times[0].mean(), times[1, :8].mean()], rtol=0.2)


def test_a_short_first_time_leaves_bins_for_all_others() -> None:
    times = np.concatenate([[1e-12], np.random.default_rng(0).uniform(1.0, 100.0, 2000)])
    belief = belief_of(times[None])
    slices = own_slices(belief)[1][0, 0]
    expected = np.quantile(times, (np.arange(128) + 0.5) / 128)
    np.testing.assert_allclose(slices[5:], expected[5:], rtol=0.1)
    np.testing.assert_allclose(slices.mean(), times.mean(), rtol=1e-9)
    # as many results and as much time as before the bins moved
    assert belief.bins[0, 0, 0].sum() == times.size
    total = belief.bins[0, 0, 2].sum() * belief.anchor[0, 0]
    np.testing.assert_allclose(total, times.sum(), rtol=1e-12)


def test_one_huge_time_says_little_of_its_worker_and_its_variation_stays() -> None:
    times = np.ones((10, 30))
    times[3, 5] = 30.0
    belief = belief_of(times)
    raw = belief.totals[0] / belief.counts[0]
    moments = borrow_tails(belief, *own_slices(belief))
    got = moments.mean()[0]
    others = np.delete(got, 3)
    assert np.ptp(others) < 1e-9
    assert 1.0 < others[0] < got[3] < 1.0 + 0.6 * (raw[3] - 1.0)
    variation = moments.deviations * moments.counts / moments.totals**2
    np.testing.assert_allclose(variation, belief.deviations * belief.counts / belief.totals**2)
    slices = sample(belief, 128)[0]
    assert slices[3, -1] / slices[3, 0] < 0.5 * 30.0  # a tail of its own would reach that far


FAMILIES: dict[str, Any] = {
    "exponential": lambda rng, size: rng.exponential(size=size),
    "gamma": lambda rng, size: rng.gamma(25.0, 0.04, size),
    "log-normal": lambda rng, size: np.exp(rng.normal(-0.5, 1.0, size)),
    "deterministic": lambda rng, size: np.ones(size),  # noqa: ARG005
    "outliers": lambda rng, size: (
        rng.gamma(4.0, 0.25, size) * np.where(rng.random(size) < 0.003, 20.0, 1.0)
    ),
}


def play(
    levels: Floats,
    family: str = "gamma",
    rows: int = 4,
    tasks: int = 2,
    seed: int = 0,
) -> DistributionBelief:
    """The belief after rounds in which each worker gives some results; ``levels`` (rounds, n), 0
    for a worker idle.
    """
    rng = np.random.default_rng(seed)
    belief = DistributionBelief.empty(rows, levels.shape[1])
    for level in levels:
        busy = np.flatnonzero(level)
        worker = np.tile(np.repeat(busy, tasks), (rows, 1))
        time = level[worker] * FAMILIES[family](rng, worker.shape)
        belief = belief.observe(worker, time, np.zeros((rows, levels.shape[1])))
    return belief


def restarted(belief: DistributionBelief) -> Floats:
    """When each worker last began anew, (E, n); 0: never."""
    return belief.tracks[:, :, SLOT.restart]


@pytest.mark.parametrize("family", FAMILIES)
def test_where_nothing_changes_nothing_is_forgotten(family: str) -> None:
    belief = play(np.tile([1.0, 2.0, 5.0, 9.0], (1000, 1)), family, rows=16)
    assert (belief.row[:, ROW.force] == 0.0).all()
    assert (belief.counts[~belief.suspects()] >= 1990).all()
    assert belief.suspects().mean() < 0.05
    assert not restarted(belief).any()
    assert (belief.since == 1000).all()
    assert (belief.reach == 1000).all()


@pytest.mark.parametrize("family", ["exponential", "gamma", "deterministic"])
def test_how_long_tasks_may_last_is_no_change(family: str) -> None:
    """In a race tasks are cancelled at ages that depend on who takes part, which the policy
    decides.
    """
    rng = np.random.default_rng(1)
    means = np.array([1.0, 1.5, 2.0, 4.0, 8.0])
    belief = DistributionBelief.empty(16, 5)
    for k in range(800):
        time = means * FAMILIES[family](rng, (16, 5))
        until = 1.2 + 8.0 * (k < 8) + 1.0 * (k % 100 < 30) + rng.random((16, 1))
        done = time <= until
        belief = belief.observe(np.where(done, np.arange(5), -1), time, np.where(done, 0.0, until))
    assert ((belief.counts + belief.cancellations)[~belief.suspects()] > 780).all()
    assert belief.suspects().mean() < 0.05
    assert not restarted(belief).any()


def test_what_the_memory_in_force_holds_counts_and_nothing_is_lost() -> None:
    rng = np.random.default_rng(2)
    belief = DistributionBelief.empty(1, 2)
    belief.row[:, ROW.force] = 2
    belief.row[:, ROW.gains + 1] = 1e9
    held = np.zeros(2)
    total = np.zeros(2)
    time = np.zeros(2)
    all_time = np.zeros(2)
    for k in range(1, 60):
        if k % 3 or k >= 40:
            busy = [0]
        else:
            busy = [0, 1]
        x = 1.0 + rng.random(2)
        belief = belief.observe(np.array([busy]), x[None, busy], np.zeros((1, 2)))
        held[busy] = 0.75 * held[busy] + 1.0
        time[busy] = 0.75 * time[busy] + x[busy]
        total[busy] = total[busy] + 1.0
        all_time[busy] = all_time[busy] + x[busy]
    np.testing.assert_allclose(belief.counts[0], held + 1.0, rtol=1e-9)
    np.testing.assert_allclose(
        belief.mean()[0],
        (time + all_time / total) / (held + 1.0),
        rtol=1e-9,
    )
    belief.row[:, ROW.gains : ROW.gains + 3] = -1e9
    belief = belief.observe(np.array([[0]]), np.array([[1.5]]), np.zeros((1, 2)))
    np.testing.assert_allclose(belief.counts[0], total + np.array([1.0, 0.0]), rtol=1e-9)
    np.testing.assert_allclose(belief.totals[0], all_time + np.array([1.5, 0.0]), rtol=1e-9)


@settings(max_examples=6)
@given(seed=st.integers(0, 10**6))
def test_moments_and_bins_agree_whatever_happens(seed: int) -> None:
    rng = np.random.default_rng(seed)
    belief = DistributionBelief.empty(2, 4)
    n = 4
    level = np.ones((2, n))
    for k in range(150):
        level *= np.exp(rng.normal(0.0, 0.2, (2, n)) + np.log(8.0) * (rng.random((2, n)) < 0.02))
        worker = rng.integers(-1, n, (2, 6))
        worker[:, 0] = rng.integers(n, size=2)
        time = np.take_along_axis(level, np.maximum(worker, 0), 1) * rng.gamma(4.0, 0.25, (2, 6))
        elapsed = level * rng.random((2, n)) * (rng.random((2, n)) < 0.2)
        belief = belief.observe(worker, time, elapsed)
        assert (belief.row[:, ROW.clock] == k + 1).all()
        # no round, and no change
        nothing = belief.observe(
            np.full((2, 2), -1),
            np.zeros((2, 2)),
            np.zeros((2, n)),
        )
        assert difference(nothing, belief) is None
    bins = belief.bins.sum(axis=3)
    np.testing.assert_allclose(bins[:, :, FINISHED], belief.mass(), rtol=1e-6, atol=1e-9)
    assert (belief.mass() >= belief.counts * (1.0 - 1e-9)).all()
    assert (belief.busy >= belief.totals * (1.0 - 1e-9)).all()
    known = ~belief.untried()
    for distribution in (
        sample(belief, 8),
        own_sample(belief, 8),
        censored_distributions(belief, 8).times,
    ):
        assert np.isfinite(distribution[known]).all()
        assert (distribution[known] >= 0.0).all()


@pytest.mark.parametrize("factor", [0.2, 0.35, 2.5, 10.0])
def test_a_worker_that_changes_begins_anew_alone(factor: float) -> None:
    levels = np.tile(np.arange(1.0, 7.0), (460, 1))
    levels[400:, 2] *= factor
    belief = play(levels, "gamma" if factor in (0.35, 10.0) else "log-normal", rows=16)
    assert (restarted(belief)[:, 2] > 400).mean() > 0.9
    others = np.delete(np.arange(6), 2)
    assert (belief.counts[:, others] == 920).mean() > 0.9
    np.testing.assert_allclose(np.median(belief.mean()[:, 2]), 3.0 * factor, rtol=0.25)
    assert (belief.reach < 60).mean() > 0.9
    shape = own_sample(belief, 64)[:, 2]
    np.testing.assert_allclose(shape.mean(axis=1), belief.mean()[:, 2], rtol=1e-6)


def test_when_many_change_everybody_begins_anew() -> None:
    levels = np.zeros((430, 8))
    levels[:20] = np.arange(1.0, 9.0)
    levels[:400, :5] = np.arange(1.0, 6.0)
    levels[400:, :5] = np.arange(1.0, 6.0)[::-1] * 4.0
    belief = play(levels, rows=16)
    assert (belief.since <= 30).mean() > 0.9
    anew = belief.since <= 30
    assert belief.untried()[anew][:, 5:].all()
    np.testing.assert_allclose(belief.mean()[anew][:, :5].mean(axis=0), levels[-1, :5], rtol=0.1)


def test_drift_puts_a_short_memory_in_force() -> None:
    rng = np.random.default_rng(3)
    levels = np.exp(np.cumsum(rng.normal(0.0, 0.05, (1200, 6)), axis=0))
    levels[600:, 5] = 0.0
    belief = play(levels)
    assert (belief.row[:, ROW.force] > 0).all()
    off = np.abs(np.log(belief.mean()[:, :5] / levels[-1, :5]))
    assert off.mean() < 0.25
    assert off.mean() < 0.5 * np.abs(np.log(levels[:, :5].mean(axis=0) / levels[-1, :5])).mean()
    assert (belief.counts[:, :5] < 300).all()
    assert (belief.reach <= 16).all()


def test_a_worker_out_of_use_is_due_for_another_try_and_surprises() -> None:
    levels = np.zeros((2101, 3))
    levels[:, 0] = 1.0
    levels[:100, 1] = 50.0
    belief = play(levels[:1999])
    assert not belief.stale().any()
    belief = play(levels[:2000])
    assert belief.stale().tolist() == [[False, True, False]] * 4
    levels[2100] = 1.0
    tried = play(levels)
    assert not tried.stale().any()
    assert (tried.mean()[:, 1] < 3.0).all()
    assert (tried.counts[:, 1] == 2).all()


def test_tries_come_at_growing_intervals() -> None:
    belief = DistributionBelief.empty(1, 2).observe(
        np.array([[0, 1]]),
        np.ones((1, 2)),
        np.zeros((1, 2)),
    )
    begins = []
    was = False
    for k in range(1, 60_001, 10):
        belief.row[:, 0] = belief.row[:, ROW.clock] = k
        belief.last[:, 0] = k
        now = bool(belief.stale()[0, 1])
        if now and not was:
            begins.append(k)
            belief.last[:, 1] = k
        was = now
    gaps = np.diff(begins)
    assert 1990 <= gaps[0] <= 2010
    assert (np.diff(gaps) >= -20).all()
    assert 0.07 < gaps[-1] / begins[-1] < 0.11


def test_with_thousands_of_workers_the_fastest_have_slots() -> None:
    rng = np.random.default_rng(4)
    n = SLOTS + 500
    means = rng.permutation(np.arange(1.0, n + 1))
    belief = DistributionBelief.empty(1, n)
    for worker in np.arange(n).reshape(-1, 4)[:, None]:
        belief = belief.observe(worker, means[worker], np.zeros((1, n)))
    fast = means <= 400
    assert (belief.slot[0, fast] >= 0).all()
    assert (belief.owner[0, belief.slot[0, fast]] == np.flatnonzero(fast)).all()
    assert (belief.slot >= 0).sum() == SLOTS
    few = np.flatnonzero(fast)[None, :12]
    for _ in range(20):
        belief = belief.observe(few, means[few] * rng.gamma(4.0, 0.25, few.shape), np.zeros((1, n)))
    assert (belief.counts[0] == 1.0 + 20.0 * np.isin(np.arange(n), few)).all()
    chosen = belief.take_workers(few)
    np.testing.assert_array_equal(own_sample(chosen, 16), own_sample(belief, 16)[:, few[0]])
    np.testing.assert_array_equal(chosen.trust(), belief.trust()[:, few[0]])
    np.testing.assert_allclose(sample(belief, 16).mean(axis=2), belief.mean(), rtol=1e-9)
    assert np.isfinite(censored_distributions(belief, 16).times).all()
