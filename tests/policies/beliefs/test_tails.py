"""Rare huge times: what is borrowed from all workers' tails, and what stays."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_policies.beliefs.distributions.bins import DistributionBelief, sample
from ata_policies.beliefs.distributions.tails import borrow_tails


def belief_of(times: Any) -> DistributionBelief:
    """What is known after one round with K results of each of n workers, times (n, K)."""
    n, k = np.shape(times)
    return DistributionBelief.empty(1, n).observe(
        np.tile(np.arange(n), k)[None], np.ravel(times, "F")[None], np.zeros((1, n))
    )


def means(times: Any) -> Any:
    moments = borrow_tails(belief_of(times))
    return moments.totals / moments.counts


def heavy(seed: int, workers: int, results: int) -> Any:
    return np.random.default_rng(seed).lognormal(0.0, 1.5, (workers, results))


@settings(max_examples=20)
@given(seed=st.integers(0, 2**16), exponent=st.integers(-90, 90))
def test_the_unit_of_time_does_not_matter(seed: int, exponent: int) -> None:
    times, unit = heavy(seed, 4, 12), 2.0**exponent
    np.testing.assert_allclose(means(unit * times), unit * means(times), rtol=1e-9)


def test_without_long_times_moments_are_as_they_were() -> None:
    belief = belief_of(np.random.default_rng(0).uniform(1.0, 3.0, (5, 40)))
    moments = borrow_tails(belief)
    for name in ("counts", "totals", "deviations"):
        np.testing.assert_array_equal(getattr(moments, name), getattr(belief, name)[0])


def test_the_tail_by_hand() -> None:
    """The median of worker 0 is 2, between the two values in the middle, so its times are cut at 8."""
    times = np.ones((2, 128))
    times[0, 64:120], times[0, 120:] = 3.0, 10.0
    cut = np.minimum(times, 8.0).mean(axis=1)
    tail = times.mean(axis=1) / cut - 1.0
    np.testing.assert_allclose(means(times), cut * (1.0 + (128 * tail + 100 * tail.mean()) / 228), rtol=1e-12)


def test_one_huge_time_says_little_of_its_worker_and_its_variation_stays() -> None:
    times = np.ones((10, 30))
    times[3, 5] = 30.0
    belief = belief_of(times)
    raw, moments, got = belief.totals[0] / belief.counts[0], borrow_tails(belief), means(times)
    others = np.delete(got, 3)
    assert np.ptp(others) < 1e-9
    assert 1.0 < others[0] < got[3] < 1.0 + 0.5 * (raw[3] - 1.0)
    variation = moments.deviations * moments.counts / moments.totals**2
    np.testing.assert_allclose(variation, belief.deviations[0] * belief.counts[0] / belief.totals[0] ** 2)
    slices = sample(belief, 128)[0]
    assert slices[3, -1] / slices[3, 0] < 0.5 * 30.0  # a tail of its own would reach that far
