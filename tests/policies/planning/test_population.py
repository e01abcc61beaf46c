"""The population of workers: what it is learned to be, and what it says of each worker."""

from __future__ import annotations

import numpy as np
import pytest

from ata_policies.planning.knowledge import (
    Estimates,
    Population,
    estimate_means,
    learn_population,
    posterior,
    value_of_trying,
)


def test_after_many_alike_another_kind_stays_possible() -> None:
    fast = [learn_population(Estimates(np.zeros(m), np.full(m, 1000.0))) for m in (5, 50)]
    chance = [float(one.share[one.place < -1.0].sum()) for one in fast]
    assert chance[0] > 4.0 * chance[1] > 0.0


def test_a_single_short_time_is_not_believed_where_all_are_slow() -> None:
    times = np.append(20.0 * np.random.default_rng(1).exponential(size=200), 1.0)
    once = estimate_means(np.ones(201), times, np.ones(201))
    known = posterior(learn_population(once), once)
    assert known.mean()[-1] > 5.0
    often = once._replace(evidence=np.append(np.ones(200), 100.0))
    np.testing.assert_allclose(posterior(learn_population(often), often).mean()[-1], 1.0, rtol=0.1)


def test_what_was_seen_often_stays_and_workers_never_tried_are_as_the_population() -> None:
    seen = Estimates(np.array([0.3, 2.0, 0.0]), np.array([1e6, 1e6, 0.0]))
    population = learn_population(seen)
    known = posterior(population, seen)
    np.testing.assert_allclose(known.location[:2], seen.location[:2], atol=1e-3)
    np.testing.assert_allclose(known.location[2], population.place @ population.share)
    assert known.spread[2] > 100.0 * known.spread[0]


@pytest.mark.parametrize("limit", [0.5, 1.0, 1.35, 3.0])
def test_the_value_of_trying_by_sampling(limit: float) -> None:
    generator = np.random.default_rng(0)
    place, share = np.linspace(-2.0, 2.0, 48), generator.dirichlet(np.ones(48))
    width, half = place[1] - place[0], 0.5
    seen = Estimates(np.array([-1.0, 0.3, 0.3, 0.0]), np.array([2.0, 30.0, 1000.0, 0.0]))
    got = value_of_trying(Population(place, share), seen, np.full(4, limit))
    for location, evidence, value in zip(*seen, got, strict=True):
        a = evidence / (1.0 + evidence * width**2)
        chance = share * np.exp(-a * (place - location + np.exp(location - place) - 1.0))
        g = generator.choice(48, 100_000, p=chance / chance.sum())
        own = evidence * width**2 / (1.0 + evidence * width**2)
        left = width**2 / (1.0 + evidence * width**2)
        log_mean = place[g] + own * (location - place[g]) + 0.5 * left * (1.0 - half)
        mean = np.exp(log_mean + np.sqrt(left * half) * generator.standard_normal(g.size))
        wanted = np.maximum(1.0 - mean / limit, 0.0).mean() - max(1.0 - mean.mean() / limit, 0.0)
        np.testing.assert_allclose(value, wanted, rtol=0.05, atol=2e-3)


def test_extreme_times() -> None:
    counts = np.array([1.0, 5.0, 0.0, 2.0])
    seen = estimate_means(counts, np.array([1e-300, 1e300, 0.0, 0.0]), np.full(4, 1e-6))
    population = learn_population(seen)
    known = posterior(population, seen)
    assert np.isfinite(known.location).all()
    assert (value_of_trying(population, seen, np.full(4, 1.0)) >= 0.0).all()
