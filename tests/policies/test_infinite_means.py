"""Every policy where means are infinite: of all workers, of those who are there, or since their
places are empty.
"""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.changes import Redraw, Spot, Switch
from ata_gym.pools import PoolDistribution, exponential, pareto, trace
from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_gym.theory.allocation.proxy_loss import allocate_scores
from ata_gym.typing import Floats, Ints
from ata_policies.lb_bsp.gpu import balanced
from ata_policies.planning.races.search import EVERYTHING, race_allocation
from ata_policies.steps import decide

N = 4
ROUNDS = 100
ENDLESS = pareto([0.6] * N, [1.0, 2.0, 1.5, 3.0])
ONE = pareto([0.6] * (N - 1), [1.0, 2.0, 3.0]) + exponential(2.0)
LEAVE = Spot(0.3, 0.5, deadline=5.0)
PLACES = PoolDistribution(N, fewest=1, families="gamma")
SCENARIOS: dict[str, dict[str, Any]] = {
    "all": {"pool": ENDLESS},
    "all, and they leave": {"pool": ENDLESS, "changes": [LEAVE]},
    "all but one": {"pool": ONE},
    "all but one, which leaves": {"pool": ONE, "changes": [LEAVE]},
    "all but one, in turn": {"pool": ONE, "changes": [Switch(every=7), LEAVE]},
    "places are empty": {"pool": PLACES, "changes": [Redraw(PLACES, every=50, among=((LEAVE,),))]},
    "beside recorded rounds": {
        "pool": ENDLESS + trace([[1.0, 2.0, 3.0]], replay="round"),
        "changes": [LEAVE],
    },
}
NAMES = ata_policies.names()
KNOWING = [
    name for name in NAMES if "distributions" in ata_policies.load(name).knows or "oracle" in name
]


def refused_or_played(name: str, scenario: str, budget: int, price: float) -> str | None:
    """What a policy says where it is refused; None where it has played, by actions that the env
    takes.
    """
    envs = gym.make_vec(
        ata_policies.load(name).env_id,
        num_envs=1,
        budget=budget,
        price=price,
        **SCENARIOS[scenario],
    )
    try:
        policy = ata_policies.make(name, envs, seed=1)
    except ValueError as error:
        return str(error)
    (observation, _), state, rounds = envs.reset(seed=budget), None, 0
    while rounds < ROUNDS:
        action, state = decide(policy, envs, observation, state)
        observation, reward, _, _, info = envs.step(action)
        assert np.isfinite(reward).all()
        rounds += bool(np.all(info.get("round_over", True)))
    return None


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_is_refused_in_a_sentence_or_plays(name: str) -> None:
    for k, scenario in enumerate(("all", "all but one, which leaves", "places are empty")):
        said = refused_or_played(name, scenario, 1 + (NAMES.index(name) + k) % N, 0.1)
        assert said is None or (10 < len(said) < 200 and "\n" not in said)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", KNOWING)
def test_oracles_with_every_budget(name: str, scenario: str) -> None:
    """They are refused where no worker has a finite mean by which they go, at any budget, or where
    no pool is known.
    """
    by_means = name in ("ofta", "oracle", "dynamic-ofta", "dynamic-oracle", "race-dynamic-oracle")
    fixed = not ata_policies.load(name).privileged
    for budget in (
        (1, 2, 3, N, 2 * N + 1) if scenario == "all but one, which leaves" else (2 * N + 1,)
    ):
        said = refused_or_played(name, scenario, budget, 0.0 if budget == 3 else 0.1)
        if (by_means and scenario.startswith("all,")) or (by_means and scenario == "all"):
            assert said is not None
            assert "every worker of this pool has an infinite mean task time" in said
        elif fixed and scenario == "places are empty":
            assert said is not None
            assert "here they are drawn anew" in said
        else:
            assert said is None


@pytest.mark.parametrize(
    "name",
    ["dynamic-ofta", "dynamic-oracle", "race-dynamic-oracle", "dispatch-dynamic-oracle"],
)
def test_who_is_away_gets_nothing_and_the_medians_decide_where_no_mean_does(name: str) -> None:
    scenario = {"pool": ONE, "changes": [LEAVE], "budget": 9, "price": 0.1}
    envs = gym.make_vec(ata_policies.load(name).env_id, num_envs=2, **scenario)
    policy = ata_policies.make(name, envs)
    observation = envs.reset(seed=0)[0]
    state = None
    endless = 0
    for _ in range(200):
        means = envs.unwrapped.means()
        present = envs.unwrapped.conditions().death_time > 0.0
        action, state = decide(policy, envs, observation, state)
        assert not action[~present].any()
        for row in np.flatnonzero(np.isinf(means).all(axis=1)):
            endless += 1
            if name in ("dynamic-ofta", "dynamic-oracle"):
                usual = np.where(present[row], ONE.median(), np.inf)
                np.testing.assert_array_equal(action[row], allocate_scores(usual, 9))
        observation, *_ = envs.step(action)
    assert endless > 10


def test_where_every_mean_is_infinite_nothing_is_handed_out() -> None:
    """And no loop goes on looking for the next task."""
    for n in (1, 2, 31, 32, 33, 70):
        endless = np.full(n, np.inf)
        for tasks in (1, n, 23, 64 * n + 1, 2**50):
            assert not allocate_scores(endless, tasks).any()
            assert not allocate_by_cost(endless, np.zeros(n), tasks).any()
        for tasks in (23, EVERYTHING):
            assert not race_allocation(endless, n, tasks, 23).any()


def one_by_one(flat: Floats, intercept: Floats, slope: Floats, most: Ints, budget: int) -> Ints:
    """Each task goes to the worker that would end it first, of equal ones the first."""
    tasks = np.zeros(len(flat), np.int64)
    for _ in range(budget):
        ready = np.where(tasks < most, np.maximum(flat, intercept + slope * (tasks + 1)), np.inf)
        tasks[ready.argmin()] += 1
    return tasks


def test_tasks_that_end_at_the_same_time_are_handed_out_in_one_step() -> None:
    """The time of 10^12 tasks at 10^30 + x is the same for very many x; small cases are as if
    handed out one by one.
    """
    budget = 10**12
    shared = balanced(
        np.zeros(3),
        np.full(3, 1e30),
        np.array([1.0, 2.0, 1e14]),
        np.full(3, budget),
        budget,
    )
    assert shared.tolist() == [budget, 0, 0]
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = rng.integers(1, 7)
        tasks = int(rng.integers(1, 40))
        most = rng.integers(0, tasks + 1, n)
        most[0] = tasks
        flat = rng.integers(0, 9, n) * 1.0
        intercept = rng.integers(0, 5, n) * rng.choice([1.0, 1e16])
        slope = rng.integers(1, 5, n) * rng.choice([1.0, 0.37])
        expected = one_by_one(flat, intercept, slope, most, tasks)
        np.testing.assert_array_equal(balanced(flat, intercept, slope, most, tasks), expected)
