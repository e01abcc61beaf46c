"""Oracles where the distributions of each round are known: by their definition, and against those
of one pool.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import allocate, expected_round_time
from ata_gym.changes import (
    Congestion,
    Leak,
    Outliers,
    Periodic,
    Redraw,
    ShareTime,
    Spot,
    Switch,
    Throttling,
    Warming,
)
from ata_gym.pools import PoolDistribution, deterministic, exponential, trace
from ata_gym.scenarios import Scenario
from ata_gym.theory.optimal.allocation import optimal_allocation
from ata_policies.setting import Setting
from ata_policies.steps import decide, play_on
from tests.policies.conftest import Run

BUDGET = 6
POOL = exponential(np.arange(1.0, 9.0))
OFTA = "dynamic-ofta"
BEST = "dynamic-oracle"
RACE = "race-dynamic-oracle"
DISPATCH = "dispatch-dynamic-oracle"
ORACLES = {OFTA: "ofta", BEST: "oracle", RACE: "race-oracle", DISPATCH: "dispatch-oracle"}
DRAWN = PoolDistribution(
    5,
    families=("gamma", "log-normal"),
    heterogeneity=(2.0, 9.0),
    cv=(0.2, 1.0),
)
PADDED = PoolDistribution(16, fewest=3, families="gamma")  # with as many distributions as places


def make_envs(name: str, rows: int = 3, **options: Any) -> Any:
    options = {"pool": POOL, "budget": BUDGET, "price": 0.1, **options}
    return gym.make_vec(ata_policies.load(name).env_id, num_envs=rows, **options)


def drawn(
    name: str,
    rows: int,
    pools: PoolDistribution = DRAWN,
    price: float = 0.1,
    **options: Any,
) -> Any:
    return make_envs(name, rows, pool=pools, price=price, changes=[Redraw(pools, **options)])


@pytest.fixture
def run(play: Any) -> Callable[..., Run]:
    def played(
        name: str,
        rounds: int,
        env: Any = None,
        seed: int = 0,
        more: Any = None,
        **options: Any,
    ) -> Run:
        result: Run = play(
            name,
            rounds,
            seed=seed,
            hyperparameters=more,
            env=env or make_envs(name, **options),
        )
        return result

    return played


@pytest.mark.parametrize(
    "changes",
    [
        (Switch(every=4),),
        (Periodic(20, 0.5),),
        (Spot(0.3, 0.3, deadline=5.0),),
        (Switch(every=4), Periodic(20, 0.5)),
        (Leak(0.2, 12),),
        (Throttling(10.0, 0.6, 0.3, 3.0), Warming(4, 9.0, smooth=True)),
    ],
)
def test_dynamic_ofta_allocates_by_the_means_of_the_round(run: Any, changes: Any) -> None:
    found = run(OFTA, 30, changes=changes)
    assert len(np.unique(found.means.reshape(-1, 8), axis=0)) > 3
    for allocation, now in zip(
        found.actions.reshape(-1, 8),
        found.means.reshape(-1, 8),
        strict=True,
    ):
        present = np.isfinite(now)
        np.testing.assert_array_equal(allocation[present], allocate(now[present], BUDGET))
        assert not allocation[~present].any()


@pytest.mark.parametrize("name", [OFTA, BEST])
def test_times_that_depend_on_the_allocation_are_told_to_no_oracle(name: str) -> None:
    envs = make_envs(name, changes=[ShareTime(saturation=3.0)])
    with pytest.raises(ValueError, match="under ShareTime they depend on its own allocation"):
        ata_policies.make(name, envs)
    ata_policies.make("default", envs)


@pytest.mark.parametrize("dynamic", [OFTA, BEST])
def test_where_nothing_changes_it_is_the_plain_oracle(run: Any, dynamic: str) -> None:
    np.testing.assert_array_equal(run(dynamic, 5).actions, run(ORACLES[dynamic], 5).actions)


@pytest.mark.parametrize(("name", "price"), [(BEST, 0.0), (BEST, 0.3), (RACE, 0.1)])
def test_the_plan_is_the_same_whoever_has_the_distributions(
    run: Any,
    name: str,
    price: float,
) -> None:
    found = run(name, 40, price=price, changes=[Switch(every=4)])
    plans = np.take_along_axis(found.actions, np.argsort(found.means, axis=-1), axis=-1)
    (plan,) = np.unique(plans.reshape(-1, 8), axis=0)
    assert (
        name == RACE or plan.tolist() == optimal_allocation(POOL, BUDGET, price).allocation.tolist()
    )
    assert len(np.unique(found.actions.reshape(-1, 8), axis=0)) > 5


@pytest.mark.parametrize("name", [OFTA, BEST])
def test_a_plan_is_kept_while_no_mean_differs_by_more_than_the_tolerance(
    run: Any,
    name: str,
) -> None:
    found = run(
        name,
        40,
        more={"tolerance": 0.3},
        changes=[Periodic(60, 0.5), Spot(0.02, 0.2, deadline=9.0)],
    )
    planned = found.states[0].plan.mean.copy()
    kept = 0
    for state, now, before in zip(found.states[1:], found.means[1:], found.means, strict=False):
        gone = np.isinf(planned)
        near = np.abs(np.where(gone, 0.0, now) - np.where(gone, 0.0, planned)) <= 0.3 * np.where(
            gone,
            1.0,
            planned,
        )
        same = ((gone == np.isinf(now)) & (near | np.isinf(now))).all(axis=1)
        planned = np.where(same[:, None], planned, now)
        np.testing.assert_array_equal(state.plan.mean, planned)
        kept += (same & (now != before).any(axis=1)).sum()
    assert kept > 20
    with pytest.raises(ValueError, match="tolerance must be"):
        run(name, 1, more={"tolerance": np.nan})


@pytest.mark.parametrize("dynamic", [RACE, DISPATCH])
def test_it_follows_workers_that_trade_their_distributions(dynamic: str, run: Any) -> None:
    (ours, fixed), (still, plain) = (
        [run(name, 120, changes=changes).costs.sum(axis=0) for name in (dynamic, ORACLES[dynamic])]
        for changes in ([Switch(every=20)], [])
    )
    assert (ours < 0.9 * fixed).all()
    assert ours == pytest.approx(still, rel=0.15)
    assert (still < 1.03 * plain).all()


@pytest.mark.parametrize(
    ("name", "price"),
    [(RACE, 0.0), (RACE, 1.0), (DISPATCH, 0.0), (DISPATCH, 1.0)],
)
def test_who_is_away_starts_nothing(name: str, price: float, run: Any) -> None:
    changes = [Spot(0.2, 0.4, deadline=5.0), Periodic(9, 0.5), Outliers(0.01, 5, 9)]
    found = run(name, 30, price=price, changes=changes)
    gone = np.isinf(found.means)
    assert gone.any()
    assert not found.actions[gone].any()
    if name == RACE:
        assert (found.actions.sum(axis=-1) >= BUDGET).all()


@pytest.mark.parametrize("name", [RACE, DISPATCH])
def test_it_knows_the_times_of_a_round_that_is_replayed(name: str, run: Any) -> None:
    fast = [1.0, 1.0, 50.0, 50.0]
    slow = [50.0, 50.0, 1.0, 1.0]
    found = run(name, 40, price=1.0, pool=trace([fast, slow, [80.0]], replay="round"))
    assert not found.actions[found.means >= 50.0].any()


@pytest.mark.parametrize(
    ("dynamic", "price"),
    [(name, price) for name in ORACLES for price in (0.0, 0.3)],
)
def test_where_workers_are_drawn_it_is_the_oracle_of_each_draw(
    dynamic: str,
    price: float,
    run: Any,
) -> None:
    env = drawn(dynamic, 3, price=price)
    plain = ORACLES[dynamic]
    ours = run(dynamic, 15, env, seed=4).costs.sum(axis=0)
    for e in range(3):
        env.reset(seed=4)
        pool = env.unwrapped.conditions().row(e).pool(env.unwrapped.scenario.catalogue)
        alone = gym.make_vec(
            ata_policies.load(plain).env_id,
            num_envs=1,
            scenario=Scenario(pool, BUDGET, price=price),
        )
        fixed = run(plain, 15, alone, seed=4 + e).costs.sum()
        assert ours[e] == pytest.approx(fixed, rel=0.08 if dynamic == RACE else 1e-9)


def test_the_shadow_price_is_chosen_for_each_draw_and_kept_in_between(run: Any) -> None:
    kept = run(DISPATCH, 8, drawn(DISPATCH, 4, among=((Switch(every=3),),))).states
    np.testing.assert_array_equal(kept[BUDGET].plan.shadow, kept[-1].plan.shadow)
    assert len(np.unique(kept[0].plan.shadow)) > 1
    anew = run(DISPATCH, 4, drawn(DISPATCH, 4, every=3)).states
    assert (anew[3 * BUDGET - 1].plan.shadow != anew[-1].plan.shadow).any()


@pytest.mark.parametrize(
    "given",
    [None, {"means": [1.0, 2.0]}, np.ones(2), "conditions", (1, 2), 2],
)
def test_privileged_information_of_another_type_or_of_other_rows_is_refused(given: Any) -> None:
    env = make_envs(OFTA, 3)
    said = r"DynamicOfta is an oracle, and privileged is .*: call predict\(\.\.\., priv"
    policy = ata_policies.make(OFTA, env)
    observation, _ = env.reset(seed=0)
    if isinstance(given, int):
        other = make_envs(OFTA, given)
        other.reset(seed=0)
        given = other.unwrapped.conditions()
        said = r"the conditions of 3 rows of 8 workers, not of shape \(2, 8\)"
    with pytest.raises(ValueError, match=said):
        policy.predict(observation, privileged=given)


@pytest.mark.parametrize(("name", "plain"), ORACLES.items())
def test_empty_places_get_nothing_and_an_oracle_of_one_pool_says_so(
    name: str,
    plain: str,
    run: Any,
) -> None:
    found = run(name, 2 if name == DISPATCH else 10, drawn(name, 4, PADDED), seed=1)
    present = np.array([seen["present"] for seen in found.observations])
    assert not present.all()
    assert not found.actions[present == 0].any()
    assert found.actions.any(axis=-1).all() or name == DISPATCH
    for pools in (DRAWN, PADDED):
        with pytest.raises(
            ValueError,
            match=r"the workers, and here they are drawn anew: use a dynamic oracle",
        ):
            ata_policies.make(plain, drawn(plain, 1, pools))


LATE = POOL.with_latency(exponential(np.arange(16.0, 0.0, -2.0)))


def test_dynamic_ofta_counts_the_mean_latency_of_the_round() -> None:
    envs = make_envs(OFTA, pool=LATE, changes=[Congestion(8.0, starts=0.3, ends=0.3)])
    policy = ata_policies.make(OFTA, envs)
    observation, _ = envs.reset(seed=0)
    state = None
    several = set()
    for _ in range(20):
        conditions = envs.unwrapped.conditions()
        latency = conditions.mean_latency(LATE)
        action, state = decide(policy, envs, observation, state)
        np.testing.assert_array_equal(
            action, allocate(envs.unwrapped.means(), BUDGET, latency=latency)
        )
        several |= {row.tobytes() for row in action}
        observation = envs.step(action)[0]
    assert len(several) > 5


@pytest.mark.parametrize("changes", [(), (Switch(every=4), Congestion(8.0, 0.3, 0.3, rack=4))])
def test_the_dynamic_oracle_searches_with_the_latency_of_the_round(changes: Any) -> None:
    envs = make_envs(BEST, rows=1, pool=LATE, changes=changes)
    policy = ata_policies.make(BEST, envs)
    observation, _ = envs.reset(seed=0)
    state = None
    for _ in range(6):
        pool = envs.unwrapped.conditions().row(0).pool(LATE)
        best = optimal_allocation(pool, BUDGET, 0.1)
        action, state = decide(policy, envs, observation, state)
        work = action[0] @ pool.mean() + (action[0] > 0) @ pool.latency.mean()
        cost = expected_round_time(pool, action[0]) + 0.1 * work
        assert cost == pytest.approx(best.cost, rel=1e-6)
        observation = envs.step(action)[0]


@pytest.mark.parametrize("price", [0.0, 0.1])
@pytest.mark.parametrize("name", [*ORACLES, *ORACLES.values(), "dispatch-caps"])
def test_no_oracle_uses_a_fast_worker_whose_latency_is_long(name: str, price: float) -> None:
    """Worker 0 would need 50 for its latency alone; the others do all in 4."""
    pool = deterministic([1.0, 2.0, 2.0]).with_latency([50.0, 0.0, 0.0])
    envs = make_envs(name, rows=2, pool=pool, price=price, budget=4)
    policy = ata_policies.make(name, envs)
    observation, _ = envs.reset(seed=0)
    steps = 8 if "Dispatch" in ata_policies.load(name).env_id else 2
    for step in islice(play_on(policy, envs, observation, None), steps):
        info = step.info
    assert info["runtime"].tolist() == [8.0, 8.0]
    # at price 0, a race may start a worker that no round waits for
    if price:
        assert info["total_worker_time"].tolist() == [16.0, 16.0]


@pytest.mark.parametrize("name", [RACE, DISPATCH, "race-oracle", "dispatch-oracle"])
def test_oracles_of_races_and_dispatch_gain_by_knowing_the_latency(name: str) -> None:
    """Against the same oracle that takes the latency for a part of no worker's time."""
    rng = np.random.default_rng(2)
    pool = exponential(rng.uniform(1.0, 4.0, 6)).with_latency(
        rng.permutation([0.0, 1, 5, 20, 40, 80])
    )
    ignorant = Setting(6, 8, 0.1, pool.with_latency(None))
    costs = []
    for blind in (False, True):
        envs = make_envs(name, rows=16, pool=pool, budget=8)
        policy = ata_policies.load(name)(ignorant if blind else Setting.from_env(envs))
        observation, _ = envs.reset(seed=0)
        steps = 80 if "Dispatch" in ata_policies.load(name).env_id else 10
        for step in islice(play_on(policy, envs, observation, None), steps):
            info = step.info
        costs.append((info["runtime"] + 0.1 * info["total_worker_time"]).mean())
    assert costs[0] < 0.9 * costs[1]
