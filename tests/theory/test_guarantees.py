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
from ata_gym import allocate, expected_round_time, pools, proxy_loss, scenario
from ata_gym.theory import guarantee
from ata_gym.theory.guarantees import VERSIONS
from ata_policies.allocation.estimates.ata import score
from ata_policies.steps import play

MEAN = st.floats(0.1, 10.0)
WORKER = st.one_of(
    st.builds(pools.exponential, MEAN), st.builds(pools.shifted_exponential, MEAN, MEAN),
    st.builds(pools.gamma, st.floats(0.2, 50.0), MEAN), st.builds(pools.deterministic, MEAN),
)  # fmt: skip
NARROW = pools.uniform([0.999, 1.998, 3.0], [1.001, 2.002, 3.01])


@settings(max_examples=30)
@given(st.lists(WORKER, min_size=1, max_size=5), st.data())
def test_the_expected_round_time_is_between_the_proxy_loss_and_the_factor(workers: list[Any], data: Any) -> None:
    pool = pools.concatenate(workers)
    tasks = data.draw(st.lists(st.integers(0, 6), min_size=pool.n, max_size=pool.n).filter(any))
    time, loss = expected_round_time(pool, tasks), float(proxy_loss(tasks, pool.mean()))
    assert loss * (1 - 1e-9) <= time <= guarantee(pool, sum(tasks), "icml").factor * loss * (1 + 1e-9)


@pytest.mark.parametrize("empirical", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_regret_of_ata_is_below_the_bound(version: str, empirical: bool) -> None:
    """The bound says something only once it is below the worst allocation's; with the preprint's it takes longer."""
    found, rounds = guarantee(NARROW, 5, version, empirical), 600
    envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, pool=NARROW, budget=5)
    policy = ata_policies.make("ata" + "-empirical" * empirical + "-icml" * (version == "icml"), envs)
    steps = [step.action for step, _ in zip(play(policy, envs), range(rounds), strict=False)]
    regret = (proxy_loss(steps, NARROW.mean()) - found.loss).sum(axis=0)
    assert regret.mean() <= found.regret(rounds) <= rounds * found.most
    assert (found.regret(rounds) < rounds * found.most / 2) == (version == "icml")


@settings(max_examples=20)
@given(means=st.lists(MEAN, min_size=2, max_size=5), budget=st.integers(2, 9), empirical=st.booleans())
def test_the_bound_is_the_charge_of_all_tasks(means: list[float], budget: int, empirical: bool) -> None:
    pool, rounds = pools.exponential(means), 1e12
    found, mu, total = guarantee(pool, budget, "icml", empirical), np.array(means), 0.0
    least = min(proxy_loss(allocate(mu, budget), mu), found.loss)
    for i, c in enumerate(2 * found.constant * (mu if empirical else np.ones_like(mu))):
        over = [b * mu[i] - least for b in range(1, budget + 1) if b * mu[i] > least * (1 + 1e-9)]
        assert found.gaps[i] == pytest.approx(over[0] if over else math.inf)
        if over:
            m = budget + 1 - len(over)

            def tasks(gap: float, c: float = c) -> float:  # over ln(2 K^2)
                return 4 / (math.sqrt(1 + 2 * gap / c) - 1) ** 2

            gaps = over[0] / m, over[-1] / budget
            charged = gaps[0] * tasks(gaps[0]) + quad(tasks, *gaps, epsabs=0, epsrel=1e-10)[0]
            total += math.log(2 * rounds**2) * charged + over[-1]
    bad = pool.n * budget * (1 + math.log(rounds)) * (budget * mu.max() - least)
    assert found.regret(rounds) == pytest.approx(total + bad, rel=1e-7)


@pytest.mark.parametrize("empirical", [False, True])
def test_the_uniform_phase_is_that_of_task_times_at_their_means(empirical: bool) -> None:
    pool, budget = scenario("five-workers").pool, 4
    found, mu = guarantee(pool, budget, "icml", empirical), pool.mean()
    seen, some, every = np.zeros(pool.n), 0, 0
    widths = (0.0, 2 * found.constant) if empirical else (2 * found.constant, 0.0)
    for k in range(1, 2 * found.uniform.some_zero):
        scores = score(seen, seen * mu, math.log(2 * k * k), *widths)
        every, some = (k if every == k - 1 and (scores == 0).all() else every), (k if (scores == 0).any() else some)
        seen += allocate(scores, budget, np.uint64(k), seen == 0)
    assert found.uniform == pytest.approx((every, some), rel=0.05, abs=1)


@pytest.mark.parametrize(("sentence", "arguments"), [
    (r"no guarantee holds: the psi1 norm of worker 1 \(log-normal\) is infinite", {}),
    (r"no guarantee holds: the psi1 norm of worker 0 \(pareto\) is inf", {"pool": pools.pareto(0.9, [1.0, 2.0])}),
    ("no guarantee holds for alpha = 3: give 3.06", {"pool": pools.exponential([1.0, 2.0]), "constant": 3.0}),
    ("no guarantee holds for eta = 0.1: give 1.53", {"pool": NARROW + pools.exponential(1.0), "empirical": True}),
    ("version must be 'preprint' or 'icml', not 'v3'", {"version": "v3"}),
    ("budget must be", {"budget": 0}),
])  # fmt: skip
def test_where_nothing_is_promised_a_sentence_says_why(sentence: str, arguments: dict[str, Any]) -> None:
    usual = {"pool": pools.exponential(1.0) + pools.log_normal(0.0, 1.0), "budget": 3, "version": "icml"}
    with pytest.raises(ValueError, match=sentence):
        guarantee(**{**usual, "constant": 0.1, **arguments})
    with pytest.raises(ValueError, match="rounds must be numbers from 1 on, not 0"):
        guarantee(NARROW, 3).regret(0)
