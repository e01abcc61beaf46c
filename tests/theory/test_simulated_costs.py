"""Planning by simulation, against exact expected round times and the true pool."""

import numpy as np
import pytest

from ata_gym import expected_round_time, scenario
from ata_gym.pools import Pool, deterministic, exponential, gamma, log_normal, pareto, trace
from ata_gym.theory.optimal.allocation import beta_candidates
from ata_gym.theory.simulated.costs import simulate
from ata_gym.theory.simulated.slices import slice_means
from ata_policies.beliefs.distributions.slices import exponential_sample
from tests.theory.test_optimal import CIFAR, SMALL

MIXED = scenario("icml2025-mixed-n15").pool
POOLS = [
    CIFAR,
    MIXED,
    gamma([0.3, 2.0, 50.0], 1.0),
    deterministic([2.0, 3.0]),
    pareto(2.5, 1.0) + log_normal(0.0, 1.5),
]


@pytest.mark.parametrize("pool", POOLS)
def test_known_samples_have_the_means_and_almost_the_spread(pool: Pool) -> None:
    sample = slice_means(pool, 256)
    assert (np.diff(sample, axis=1) >= 0).all()
    np.testing.assert_allclose(sample.mean(axis=1), pool.mean(), rtol=1e-12)
    assert (sample.std(axis=1) <= pool.sd() * (1 + 1e-9)).all()
    light = pool.sd() < 0.6 * pool.mean()
    np.testing.assert_allclose(sample.std(axis=1)[light], pool.sd()[light], rtol=0.02)


def test_known_samples_of_traces_and_of_infinite_means() -> None:
    record = [5.0, 1.0, 3.0, 3.0]
    for size, sample in ((4, sorted(record)), (8, np.repeat(sorted(record), 2)), (1, [3.0])):
        np.testing.assert_allclose(slice_means(trace([record]), size)[0], sample)
    heavy = slice_means(pareto(0.9, 1.0), 64)[0]
    assert np.isfinite(heavy).all()
    assert (np.diff(heavy) > 0).all()
    np.testing.assert_allclose(
        slice_means(exponential([3.0]), 50)[0],
        3.0 * exponential_sample(50),
        rtol=1e-4,
    )
    with pytest.raises(ValueError, match="size must be"):
        slice_means(CIFAR, 0)


def test_simulated_round_times_are_the_expected_ones() -> None:
    candidates = beta_candidates(MIXED.mean(), MIXED.sd(), 23, MIXED.mean())
    costs = simulate(slice_means(MIXED, 512), candidates, 23, 4096)
    exact = [expected_round_time(MIXED, a) for a in candidates]
    np.testing.assert_allclose(costs.round_time, exact, rtol=0.015)
    # each time equally often
    np.testing.assert_allclose(
        costs.worker_time,
        candidates @ MIXED.mean(),
        rtol=1e-9,
    )
    np.testing.assert_allclose(costs.total(0.5), costs.round_time + 0.5 * costs.worker_time)


def test_a_candidate_costs_the_same_whatever_stands_beside_it() -> None:
    times = slice_means(SMALL, 64)
    candidates = np.array([[5, 0, 0, 0, 0], [2, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
    exact = simulate(times, candidates, 5, 128)
    alone = [simulate(times, candidates[[c]], 5, 128) for c in range(3)]
    np.testing.assert_array_equal(np.transpose(exact), np.array(alone)[..., 0])
    unused = times.copy()
    unused[4] = np.nan  # a worker without a distribution, and without a task
    np.testing.assert_array_equal(
        simulate(unused, candidates[:2], 5).round_time,
        simulate(times, candidates[:2], 5)[0],
    )


def test_too_many_task_times() -> None:
    with pytest.raises(ValueError, match=r"more than 2\*\*28 task times"):
        simulate(slice_means(SMALL, 8), np.array([[2**20, 0, 0, 0, 0]]), 2**20, 257)
