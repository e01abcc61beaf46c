"""Oracles of the coming round: by their definition where workers change, and as the plain ones where nothing does."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import allocate
from ata_gym.changes import Periodic, Spot, Switch
from ata_gym.pools import shifted_exponential
from ata_gym.theory.optimal.allocation import optimal_allocation

MEANS = np.arange(1.0, 6.0)
POOL = shifted_exponential(MEANS / 2, MEANS / 2)


WORLD: dict[str, Any] = {"rows": 3, "pool": POOL, "budget": 7}


@pytest.mark.parametrize(
    "changes",
    [(Switch(every=4),), (Periodic(20, 0.5),), (Spot(0.3, 0.3, deadline=5.0),), (Switch(every=4), Periodic(20, 0.5))],
)
def test_dynamic_ofta_allocates_by_the_means_of_the_round(play: Any, changes: Any) -> None:
    run = play("dynamic-ofta", 30, changes=changes, **WORLD)
    assert len(np.unique(run.means.reshape(-1, 5), axis=0)) > 3
    for allocation, now in zip(run.actions.reshape(-1, 5), run.means.reshape(-1, 5), strict=True):
        there = np.isfinite(now)
        np.testing.assert_array_equal(allocation[there], allocate(now[there], 7))
        assert not allocation[~there].any()


@pytest.mark.parametrize("plain", ["ofta", "oracle"])
def test_where_nothing_changes_it_is_the_plain_oracle(play: Any, plain: str) -> None:
    dynamic, fixed = (play(name, 5, **WORLD).actions for name in (f"dynamic-{plain}", plain))
    np.testing.assert_array_equal(dynamic, fixed)


@pytest.mark.parametrize("price", [0.0, 0.3])
def test_the_dynamic_oracle_plans_anew_when_the_workers_trade_their_distributions(play: Any, price: float) -> None:
    run = play("dynamic-oracle", 12, changes=[Switch(every=4)], price=price, **WORLD)
    best = optimal_allocation(POOL, 7, price).allocation
    for allocation, now in zip(run.actions.reshape(-1, 5), run.means.reshape(-1, 5), strict=True):
        np.testing.assert_array_equal(allocation[np.argsort(now)], best)
    assert len(np.unique(run.actions.reshape(-1, 5), axis=0)) > 3


@pytest.mark.parametrize("name", ["dynamic-ofta", "dynamic-oracle"])
def test_a_plan_is_kept_while_no_mean_differs_by_more_than_the_tolerance(play: Any, name: str) -> None:
    changes = [Periodic(60, 0.5), Spot(0.02, 0.2, deadline=9.0)]
    run = play(name, 40, hyperparameters={"tolerance": 0.3}, changes=changes, **WORLD)
    planned, kept = run.states[0].plan.mean.copy(), 0
    for state, now, before in zip(run.states[1:], run.means[1:], run.means, strict=False):
        gone = np.isinf(planned)
        near = np.abs(np.where(gone, 0.0, now) - np.where(gone, 0.0, planned)) <= 0.3 * np.where(gone, 1.0, planned)
        same = ((gone == np.isinf(now)) & (near | np.isinf(now))).all(axis=1)
        planned = np.where(same[:, None], planned, now)
        np.testing.assert_array_equal(state.plan.mean, planned)
        kept += (same & (now != before).any(axis=1)).sum()
    assert kept > 20


def test_it_needs_the_conditions_of_as_many_rows() -> None:
    env, other = (
        gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=rows, pool=POOL, changes=[Switch(every=4)], budget=7)
        for rows in (2, 3)
    )
    env.reset(seed=0)
    policy, (observation, _), bare = ata_policies.make("dynamic-ofta", env), other.reset(seed=0), env.unwrapped
    with pytest.raises(ValueError, match=r"the conditions of 3 rows of 5 workers, not of shape \(2, 5\)"):
        policy.predict(observation, privileged=bare.conditions())  # type: ignore[attr-defined]
