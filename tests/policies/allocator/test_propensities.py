"""How likely decisions are: closed forms, draws without an effect, and weights without a bias."""

from math import comb

import numpy as np
import pytest

from ata_policies import Allocator


def played(policy, workers, budget, rounds, **options):
    """An allocator with a decision that is not observed yet, after some rounds."""
    rng = np.random.default_rng(0)
    allocator = Allocator(workers, budget, policy, **options)
    for _ in range(rounds):
        tasks = allocator.allocate()
        allocator.observe(
            {name: rng.gamma(4.0, 1.0 + place, tasks[name]) for place, name in enumerate(tasks)}
        )
    return allocator


@pytest.mark.parametrize(("n", "budget"), [(4, 2), (5, 3), (3, 7)])
def test_of_uniform_decisions_they_are_those_of_a_random_subset(n, budget):
    allocator = played("uta", n, budget, 2)
    allocator.allocate()
    propensities = allocator.propensities(draws=4_999)
    assert list(propensities.workers.values()) == pytest.approx(
        [min(budget / n, 1.0)] * n, abs=4 * (0.25 / 5_000) ** 0.5
    )
    assert propensities.allocation == pytest.approx(1 / comb(n, budget % n), abs=0.02)


def test_of_a_mixture_they_are_those_of_its_parts():
    allocator = played("epsilon-uniform:c=5", 4, 3, 39)
    allocator.allocate()
    mean = allocator.expected_times()
    splits = [split for split in np.ndindex(4, 4, 4, 4) if sum(split) == 3]
    best = min(splits, key=lambda split: max(split[name] * mean[name] for name in mean))
    epsilon = 5 * 4 / 40
    expected = [epsilon * 3 / 4 + (1 - epsilon) * (count > 0) for count in best]
    propensities = allocator.propensities(draws=4_999)
    assert list(propensities.workers.values()) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("policy", ["default", "lb-bsp-ema", "certainty-equivalence"])
def test_a_decision_without_randomness_is_certain(policy):
    allocator = played(policy, 3, 12, 6)
    tasks = allocator.allocate()
    workers, allocation = allocator.propensities(draws=20)
    assert workers == {name: float(count > 0) for name, count in tasks.items()}
    assert allocation == 1.0


@pytest.mark.parametrize("policy", ["thompson", "uta", "epsilon-uniform", "thompson-beta"])
def test_asking_changes_nothing(policy):
    asked, silent = (played(policy, ["a", "b", "c", "d"], 5, 4) for _ in range(2))
    rng = np.random.default_rng(1)
    for _ in range(4):
        tasks = asked.allocate()
        assert asked.propensities(30) == asked.propensities(30)
        assert silent.allocate() == tasks
        times = {name: rng.gamma(4.0, 1.0, count).tolist() for name, count in tasks.items()}
        asked.observe(times)
        silent.observe(times)
        assert asked.state_dict() == silent.state_dict()


def test_the_mean_of_a_draw_over_its_frequency_is_that_of_exchangeable_draws():
    values = []
    for seed in range(1_500):
        allocator = Allocator(4, 1, "uta", seed=seed)
        first = allocator.allocate()[0]
        values.append(first / allocator.propensities(draws=3).workers[0] if first else 0.0)
    chance, draws = 0.25, 4
    error = np.std(values) / 1_500**0.5
    assert abs(np.mean(values) - (1 - (1 - chance) ** draws)) < 4 * error


def test_who_has_left_has_none_and_limits_count():
    allocator = played("uta", ["a", "b", "c"], 2, 3, limits={"a": (1, 2)})
    allocator.leave("b")
    allocator.allocate()
    workers, _ = allocator.propensities(99)
    assert set(workers) == {"a", "c"}
    assert workers["a"] == 1.0


def test_without_a_decision_there_are_none():
    allocator = Allocator(3, 4, "uta")
    with pytest.raises(ValueError, match="there is no decision to draw again: call propens"):
        allocator.propensities()
    tasks = allocator.allocate()
    with pytest.raises(ValueError, match="draws must be"):
        allocator.propensities(draws=0)
    loaded = Allocator(3, 4, "uta")
    loaded.load_state_dict(allocator.state_dict())
    with pytest.raises(ValueError, match="in the process that called allocate"):
        loaded.propensities()
    allocator.observe({name: [1.0] * count for name, count in tasks.items()})
    with pytest.raises(ValueError, match="there is no decision to draw again"):
        allocator.propensities()
