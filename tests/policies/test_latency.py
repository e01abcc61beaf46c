"""Policies where workers pay a latency: units, latencies of 0, races, and LB-BSP."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats

import ata_policies
from ata_gym import allocate
from ata_gym.pools import deterministic, exponential, log_normal
from ata_gym.theory.allocation.proxy_loss import proxy_loss
from ata_policies import Setting
from ata_policies.beliefs.moments import LatencyBelief
from ata_policies.lb_bsp.gpu import LbBspGpu, LbBspProfiled, balanced
from ata_policies.steps import play as play_env

MEANS = np.array([1.0, 2.0, 1.5, 4.0, 3.0])
LATENCIES = np.array([6.0, 0.5, 20.0, 1.0, 3.0])
ROUNDS = {"allocation": 40, "race": 30, "dispatch": 6}
NAMES = [
    "default",
    *(
        f"{estimate}:memory={memory}:rule={rule}"
        for estimate in ("kl-lcb", "thompson-gamma", "ata")
        for memory, rule in (("everything", "proxy"), ("restarting", "beta"))
    ),
    "lb-bsp-ema",
    "lb-bsp-gpu",
    "race",
    "dispatch",
    "race-oracle",
    "dispatch-oracle",
    "oracle",
]


def scenario(unit: float = 1.0) -> dict[str, Any]:
    pool = exponential(unit * MEANS).with_latency(log_normal(np.log(unit * LATENCIES), 0.5))
    return {"pool": pool, "budget": 9, "price": 0.05}


def actions(play: Any, name: str, **options: Any) -> Any:
    rounds = ROUNDS[ata_policies.load(name).env_id.removeprefix("ata_gym/Task")[:-3].lower()]
    return play(name, rounds, 2, **options).actions


@pytest.mark.parametrize("name", NAMES)
def test_the_unit_of_time_does_not_matter_with_latencies(play: Any, name: str) -> None:
    usual = actions(play, name, **scenario())
    for unit in (2.0**40, 2.0**-30):
        assert np.array_equal(actions(play, name, **scenario(unit)), usual)
    # rounding may decide between two allocations that are as good as each other
    other = actions(play, name, **scenario(1000.0))
    assert (other == usual).all(axis=-1).mean() > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_latencies_of_0_change_nothing(play: Any, name: str) -> None:
    pool = exponential(MEANS)
    without = actions(play, name, pool=pool, budget=9, price=0.05)
    assert np.array_equal(
        actions(play, name, pool=pool.with_latency(0.0), budget=9, price=0.05), without
    )


def test_a_latency_that_was_cut_short_counts_as_long_as_it_is_expected_to_be() -> None:
    """Round times cut a worker's latencies: their mean stays within a few percent of the true
    one, where the mean of the latencies paid in full alone is far too small.
    """
    rng = np.random.default_rng(3)
    drawn = rng.lognormal(np.log([10.0, 20.0]), 0.5, (4_000, 2))
    true = np.exp(np.log([10.0, 20.0]) + 0.125)
    ends = 22.0
    belief = LatencyBelief.empty(1, 2)
    for latency in drawn:
        belief = belief.observe(np.minimum(latency, ends)[None], (latency <= ends)[None])
    np.testing.assert_allclose(belief.mean()[0], true, rtol=0.12)
    paid = [of_worker[of_worker <= ends].mean() for of_worker in drawn.T]
    assert paid[1] < 0.75 * true[1]


def test_one_latency_cut_short_is_expected_to_last_as_its_distribution_says() -> None:
    belief = LatencyBelief.empty(1, 1)
    rng = np.random.default_rng(0)
    for latency in rng.lognormal(1.0, 0.7, 500):
        belief = belief.observe(np.array([[latency]]), np.array([[True]]))
    mean = float(belief.mean()[0, 0])
    deviation = np.sqrt(np.log1p(belief.variation()[0] ** 2))
    known = stats.lognorm(deviation, scale=mean / np.exp(deviation**2 / 2))
    after = belief.observe(np.array([[6.0]]), np.array([[False]]))
    expected = known.expect(lambda x: x, lb=6.0, conditional=True)
    assert after.totals[0, 0] - belief.totals[0, 0] == pytest.approx(expected, rel=1e-6)
    # who has no share tells nothing
    assert belief.observe(np.zeros((1, 1)), np.array([[False]])).counts == belief.counts


@pytest.mark.parametrize("price", [0.0, 0.1])
def test_a_race_learns_latencies_apart_from_task_times(play: Any, price: float) -> None:
    """Times of whole shares alone made it lose 4 to 7 % of the oracle's cost at this price."""
    rng = np.random.default_rng(11)
    pool = exponential(np.exp(rng.uniform(0.0, np.log(8.0), 16)))
    pool = pool.with_latency(log_normal(np.log(5.0 * np.exp(rng.normal(0.0, 1.0, 16))), 0.5))
    options = {"pool": pool, "budget": 40, "price": price, "rows": 16}
    costs = {name: play(name, 200, **options).costs[20:].mean() for name in ("race", "race-oracle")}
    assert costs["race"] < 1.02 * costs["race-oracle"]


def test_a_worker_with_hardly_any_latency_does_not_say_how_others_vary() -> None:
    rng = np.random.default_rng(0)
    belief = LatencyBelief.empty(1, 3)
    scale = np.array([30.0, 12.0, 0.4])
    deviation = np.array([0.2, 0.2, 1.5])
    for _ in range(200):
        latency = scale * np.exp(deviation * rng.normal(size=3))
        belief = belief.observe(latency[None], np.ones((1, 3), bool))
    assert belief.variation()[0] == pytest.approx(0.2, rel=0.1)


def test_a_worker_cut_short_in_its_latency_is_neither_away_nor_untried() -> None:
    pool = deterministic([1.0, 1.0, 1.0]).with_latency([0.0, 0.5, 50.0])
    env = gym.make("ata_gym/TaskRace-v0", pool=pool, budget=4)
    policy = ata_policies.make("race", env)
    observation, _ = env.reset(seed=0)
    action, state = policy.predict(observation)
    assert action.tolist() == [4, 4, 4]
    for _ in range(40):
        observation = env.step(action)[0]
        action, state = policy.predict(observation, state)
        assert not policy.away(state).any()
    assert action[2] == 0


@pytest.mark.parametrize("latency", [[0.0, 8.0, 3.0, 20.0], [5.0, 5.0, 5.0, 5.0]])
def test_lb_bsp_for_gpus_balances_latencies_too(latency: list[float]) -> None:
    """Its times are the times of whole shares: c + b x for constant latencies."""
    means = np.array([1.0, 1.0, 2.0, 0.5])
    pool = deterministic(means).with_latency(latency)
    budget = 64
    best = allocate(means, budget, latency=np.array(latency))
    least = float(proxy_loss(best, means, latency))
    env = gym.make("ata_gym/TaskAllocation-v0", pool=pool, budget=budget, horizon=300)
    for policy, bound in ((LbBspProfiled, 1e-9), (LbBspGpu, 0.05 * least + means.max())):
        steps = list(play_env(policy(Setting.from_env(env)), env))
        assert proxy_loss(steps[-1].action, means, latency) <= least + bound, policy
    # even shares, as at first, take longer
    assert proxy_loss(steps[0].action, means, latency) > 1.1 * least


def test_lb_bsp_for_gpus_balances_a_flat_part_after_a_latency() -> None:
    """A share of x tasks takes c + max(t, b x): flat until the device is full."""
    flat = np.array([9.0, 4.0, 0.0])
    slope = np.array([0.5, 1.0, 1.5])
    latency = np.array([2.0, 0.0, 6.0])
    budget = 48
    best = balanced(latency + flat, latency, slope, np.full(3, budget), budget)

    def share_times(tasks: Any) -> Any:
        return np.where(tasks > 0, latency + np.maximum(flat, slope * tasks), 0.0)

    for policy, bound in (
        (LbBspProfiled(Setting(3, budget)), 1e-9),
        (LbBspGpu(Setting(3, budget)), 0.05 * share_times(best).max() + slope.max()),
    ):
        observation = {
            "worker": np.full(budget, -1),
            "duration": np.zeros(budget),
            "elapsed": np.zeros(3),
            "latency": np.zeros(3),
        }
        state = None
        for _ in range(300):
            tasks, state = policy.predict(observation, state)
            worker = np.repeat(np.arange(3), tasks)
            work = share_times(tasks) - latency * (tasks > 0)
            observation = {
                "worker": worker,
                "duration": (work / np.maximum(tasks, 1))[worker],
                "elapsed": np.zeros(3),
                "latency": latency * (tasks > 0),
            }
        assert share_times(tasks).max() <= share_times(best).max() + bound, policy
