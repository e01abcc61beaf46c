"""What ATA's theorems promise, against exact expectations, quadrature, and what ATA does."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.integrate import quad

import ata_policies
from ata_gym import (
    allocate,
    expected_round_time,
    optimal_allocation,
    pools,
    proxy_loss,
    proxy_optimal,
    scenario,
)
from ata_gym.pools import Pool
from ata_gym.theory import Guarantee, guarantee
from ata_gym.theory.guarantees import COUNTEREXAMPLE, VERSIONS
from ata_policies.allocation.estimates.ata import score
from ata_policies.steps import play

MEAN = st.floats(0.1, 10.0)
WORKER = st.one_of(
    st.builds(pools.exponential, MEAN),
    st.builds(pools.shifted_exponential, MEAN, MEAN),
    st.builds(pools.gamma, st.floats(0.2, 50.0), MEAN),
    st.builds(pools.deterministic, MEAN),
)
NARROW = pools.uniform([0.999, 1.998, 3.0], [1.001, 2.002, 3.01])


@settings(max_examples=30)
@given(st.lists(WORKER, min_size=1, max_size=5), st.data())
def test_the_expected_round_time_is_between_the_proxy_loss_and_the_factor(
    workers: list[Any],
    data: Any,
) -> None:
    pool = pools.concatenate(workers)
    tasks = data.draw(st.lists(st.integers(0, 6), min_size=pool.n, max_size=pool.n).filter(any))
    time = expected_round_time(pool, tasks)
    loss = float(proxy_loss(tasks, pool.mean()))
    assert (
        loss * (1 - 1e-9) <= time <= guarantee(pool, sum(tasks), "icml").factor * loss * (1 + 1e-9)
    )


@settings(max_examples=25)
@given(st.lists(WORKER, min_size=2, max_size=4), st.integers(1, 6), st.sampled_from(list(VERSIONS)))
def test_where_ata_ends_costs_at_most_the_factor_of_the_best(
    workers: list[Any],
    budget: int,
    version: str,
) -> None:
    pool = pools.concatenate(workers)
    best = optimal_allocation(pool, budget)
    promise = guarantee(pool, budget, version)
    assert expected_round_time(pool, proxy_optimal(pool, budget)) <= promise.factor * (
        best.cost + best.gap
    )


@pytest.mark.parametrize(("n", "mean"), [(23, 0.8), (40, 0.9)])
def test_the_factor_of_the_preprint_does_not_hold_and_is_not_promised(n: int, mean: float) -> None:
    """Exponential workers beside constant ones that are a little slower: OFTA plays the former, in
    n mean H_n.
    """
    pool = pools.deterministic(np.ones(n)) + pools.exponential(np.full(n, mean))
    harmonic = mean * float(np.sum(1 / np.arange(1, n + 1)))
    assert expected_round_time(pool, proxy_optimal(pool, n)) == pytest.approx(harmonic, rel=1e-9)
    assert optimal_allocation(pool, n).cost == 1.0
    promise = guarantee(pool, n)
    icml = guarantee(pool, n, "icml")
    assert promise.published_factor == pytest.approx(1 + math.sqrt(math.log(n)))
    assert (
        promise.published_factor < harmonic < promise.factor == icml.factor == icml.published_factor
    )
    assert icml.statement == f"C_K <= {icml.factor:.3g} C*_K + O(ln K)"
    assert promise.statement.startswith(icml.statement)
    assert (
        f"as published C_K <= {promise.published_factor:.3g} C*_K + O(ln K), which does not hold"
        in promise.statement
    )
    assert promise.statement.endswith(COUNTEREXAMPLE)


def test_the_counterexample_is_a_scenario() -> None:
    named = scenario("counterexample-preprint")
    assert f"--scenario {named.name} " in COUNTEREXAMPLE
    cost = expected_round_time(named.pool, proxy_optimal(named.pool, named.budget))
    best = optimal_allocation(named.pool, named.budget)
    assert cost / best.cost > guarantee(named.pool, named.budget).published_factor
    assert best.gap == 0


@pytest.mark.parametrize("empirical", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_regret_of_ata_is_below_the_bound(version: str, empirical: bool) -> None:
    """The bound says something only once it is below the worst allocation's; with the preprint's it
    takes longer.
    """
    promise = guarantee(NARROW, 5, version, empirical)
    rounds = 600
    envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, pool=NARROW, budget=5)
    name = "ata-empirical" if empirical else "ata"
    if version == "icml":
        name += "-icml"
    policy = ata_policies.make(name, envs)
    steps = [step.action for step, _ in zip(play(policy, envs), range(rounds), strict=False)]
    regret = (proxy_loss(steps, NARROW.mean()) - promise.loss).sum(axis=0)
    assert regret.mean() <= promise.regret(rounds) <= rounds * promise.largest_regret
    assert (promise.regret(rounds) < rounds * promise.largest_regret / 2) == (version == "icml")


@settings(max_examples=20)
@given(
    means=st.lists(MEAN, min_size=2, max_size=5),
    budget=st.integers(2, 9),
    empirical=st.booleans(),
)
def test_the_bound_is_the_charge_of_all_tasks(
    means: list[float],
    budget: int,
    empirical: bool,
) -> None:
    pool = pools.exponential(means)
    rounds = 1e12
    promise = guarantee(pool, budget, "icml", empirical)
    mu = np.array(means)
    total = 0.0
    least = min(proxy_loss(allocate(mu, budget), mu), promise.loss)
    for i, c in enumerate(2 * promise.constant * (mu if empirical else np.ones_like(mu))):
        over = [b * mu[i] - least for b in range(1, budget + 1) if b * mu[i] > least * (1 + 1e-9)]
        assert promise.gaps[i] == pytest.approx(over[0] if over else math.inf)
        if over:
            m = budget + 1 - len(over)

            def tasks(gap: float, c: float = c) -> float:  # over ln(2 K^2)
                return 4 / (math.sqrt(1 + 2 * gap / c) - 1) ** 2

            gaps = over[0] / m, over[-1] / budget
            charged = gaps[0] * tasks(gaps[0]) + quad(tasks, *gaps, epsabs=0, epsrel=1e-10)[0]
            total += math.log(2 * rounds**2) * charged + over[-1]
    bad = pool.n * budget * (1 + math.log(rounds)) * (budget * mu.max() - least)
    assert promise.regret(rounds) == pytest.approx(total + bad, rel=1e-7)


def phase_played(
    pool: Pool,
    budget: int,
    promise: Guarantee,
    rounds: int,
    draw: int = 0,
) -> tuple[int, int]:
    """The rounds to the first score above 0, and the last with one of 0, where task times are at
    their means.
    """
    counts = np.zeros(pool.n)
    mu = pool.mean()
    every = 0
    some = 0
    factor = VERSIONS[promise.version].factor * promise.constant
    if promise.empirical:
        widths = (0.0, factor)
    else:
        widths = (factor, 0.0)
    for k in range(1, rounds):
        scores = score(counts, counts * mu, math.log(2 * k * k), *widths)
        if every == k - 1 and not scores.any():
            every = k
        if not (scores.all()):
            some = k
        counts += allocate(scores, budget, np.uint64(k + draw), counts == 0)
    return every, some


@pytest.mark.parametrize(
    ("pool", "budget", "empirical"),
    [
        (scenario("five-workers").pool, 4, False),
        (scenario("five-workers").pool, 4, True),
        (pools.deterministic(np.linspace(1, 3, 70)), 1, False),
        (pools.deterministic(np.linspace(1, 3, 70)), 9, True),
        (pools.uniform(np.full(40, 0.98), np.full(40, 1.02)), 3, False),
        (pools.exponential(1.0), 3, False),
        (pools.gamma(900.0, np.linspace(1, 2, 300)), 7, True),
        (pools.uniform(np.linspace(0.9, 1.8, 30), np.linspace(1.1, 2.2, 30)), 1, False),
        (pools.uniform(np.linspace(0.5, 3.0, 20), np.linspace(1.5, 4.0, 20)), 15, False),
    ],
)
def test_the_uniform_phase_is_that_of_task_times_at_their_means(
    pool: Pool,
    budget: int,
    empirical: bool,
) -> None:
    """In whole tasks: also where there are more workers than tasks, and scores are above 0 after
    one of them.
    """
    promise = guarantee(pool, budget, "icml", empirical)
    assert promise.uniform_phase == phase_played(
        pool,
        budget,
        promise,
        2 * promise.uniform_phase.some_zero + 3 * pool.n,
    )


@pytest.mark.parametrize(
    ("n", "budget", "constant"),
    [(12, 1, None), (60, 12, None), (10, 13, 9.0)],
)
def test_a_long_uniform_phase_is_near_the_median_of_those_played(
    n: int,
    budget: int,
    constant: float | None,
) -> None:
    pool = pools.exponential(np.linspace(1.0, 1.2, n))
    promise = guarantee(pool, budget, "icml", constant=constant)
    assert 1000 < promise.uniform_phase.some_zero < 6000
    played = [
        phase_played(pool, budget, promise, int(1.1 * promise.uniform_phase.some_zero), 10**6 * d)
        for d in (1, 2, 3)
    ]
    assert promise.uniform_phase == pytest.approx(np.median(played, axis=0), rel=0.1)
    assert promise.uniform_phase.some_zero == pytest.approx(played[0][1], rel=0.02)


@pytest.mark.parametrize(
    ("pool", "constant"),
    [
        (pools.exponential([1e-9, 1.0]), None),
        (pools.exponential([1.0, 2.0]), 1e12),
        (pools.exponential([1e-150, 1.0]), None),
        (pools.exponential([1.0, 2.0]), 1e200),
    ],
)
def test_a_phase_without_an_end_in_sight_does_not_overflow(
    pool: Pool,
    constant: float | None,
) -> None:
    """Some are 0 until B (k - 1) = L sum (c_i / mu_i)^2, about, where c_i is far above mu_i."""
    promise = guarantee(pool, 1, "icml", constant=constant)
    every, some = promise.uniform_phase
    assert 0 < every <= some
    wide = float(
        np.minimum(promise.widths / promise.means, 1e145)
        @ np.minimum(promise.widths / promise.means, 1e145),
    )
    assert some == pytest.approx(wide * (math.log(2) + 2 * math.log(some)), rel=1e-3)


@pytest.mark.parametrize(
    ("sentence", "arguments"),
    [
        (r"no guarantee holds: the psi1 norm of worker 1 \(log-normal\) is infinite", {}),
        (
            r"no guarantee holds: the psi1 norm of worker 0 \(pareto\) is inf",
            {"pool": pools.pareto(0.9, [1.0, 2.0])},
        ),
        (
            "no guarantee holds for alpha = 3: give 3.06",
            {"pool": pools.exponential([1.0, 2.0]), "constant": 3.0},
        ),
        (
            "no guarantee holds for eta = 0.1: give 1.53",
            {"pool": NARROW + pools.exponential(1.0), "empirical": True},
        ),
        ("version must be 'preprint' or 'icml', not 'v3'", {"version": "v3"}),
        ("budget must be", {"budget": 0}),
    ],
)
def test_where_nothing_is_promised_a_sentence_says_why(
    sentence: str,
    arguments: dict[str, Any],
) -> None:
    usual = {
        "pool": pools.exponential(1.0) + pools.log_normal(0.0, 1.0),
        "budget": 3,
        "version": "icml",
    }
    with pytest.raises(ValueError, match=sentence):
        guarantee(**{**usual, "constant": 0.1, **arguments})
    with pytest.raises(ValueError, match="rounds must be numbers from 1 on, not 0"):
        guarantee(NARROW, 3).regret(0)
