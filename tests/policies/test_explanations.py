"""What a policy says of its last decision, and which policy is the default."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ata_policies
from ata_gym.changes import Spot
from ata_gym.pools import deterministic, shifted_exponential
from ata_gym.utils.trees import map_leaves
from ata_policies.allocation.baselines import Uta
from ata_policies.explanation import listed
from ata_policies.policy import DispatchPolicy, Setting
from ata_policies.registry import DEFAULTS
from ata_policies.steps import play
from tests.fuzz.states import PLAYED, ROWS, N, played

MEANS = np.array([1.0, 2.0, 3.0, 5.0, 8.0])
POOL = shifted_exponential(MEANS, 0.1 * MEANS)


@pytest.mark.parametrize("name", ata_policies.names())
def test_every_policy_explains_itself(name: str) -> None:
    game = played(name, 0.1)
    policy, now = game.policy, {"privileged": game.env.unwrapped.conditions()} if game.policy.privileged else {}
    action, state = policy.predict(game.observation, game.state, **now)
    later = 2 if isinstance(policy, DispatchPolicy) else PLAYED + 1
    for round, one in ((0, policy.first_state(ROWS)), (later, state)):
        told, alone = policy.explain(one, row=1), policy.explain(map_leaves(lambda leaf: leaf[1:], one))
        assert str(told) == str(alone)
        np.testing.assert_array_equal(told.mean, alone.mean)
        assert told.round == round
        assert told.policy
        assert told.mean.shape == told.evidence.shape == told.away.shape == told.untried.shape == (N,)
        assert (told.evidence >= 0).all()
        assert not np.nan_to_num(told.mean, nan=1.0).min() < 0
        assert told.tasks is None or (round > 0 and told.tasks.tolist() == action[1].tolist())
        assert round > 0 or not told.away.any()
        lines = str(told).splitlines()
        assert lines[0] == f"round {round}: {told.policy}"
        assert sum(line.split()[:1] == [str(i)] for line in lines for i in range(N)) == N
    with pytest.raises(ValueError, match=f"one of the state's {ROWS} rows, counted from 0, not {ROWS}"):
        policy.explain(state, ROWS)


def test_means_are_those_of_the_times_seen() -> None:
    envs = gym.make("ata_gym/TaskAllocation-v0", pool=deterministic(MEANS), budget=5)
    named = ("certainty-equivalence", "distribution-learner", "recent-average", "median-of-means")
    for name in (*named, "thompson:memory=window", "thompson:memory=discount", "restarting-beta"):
        policy = ata_policies.make(name, envs)
        *_, last = islice(play(policy, envs), 3)
        told = policy.explain(last.state)
        assert told.mean[~told.untried] == pytest.approx(MEANS[~told.untried])
        assert np.isnan(told.mean[told.untried]).all()


@pytest.mark.parametrize("name", ["restarting-beta", "lb-bsp-federated"])
def test_who_owes_results_is_thought_to_be_away(name: str) -> None:
    pool, changes = deterministic(np.ones(6)), [Spot(leaves=0.05, returns=0.05, deadline=10.0)]
    env = gym.make("ata_gym/TaskAllocation-v0", pool=pool, changes=changes, budget=6)
    policy, seen, gone = ata_policies.make(name, env), 0, np.zeros(6, np.bool_)
    for step in islice(play(policy, env, seed=1), 60):
        told = policy.explain(step.state)
        seen += (told.away & gone).sum()  # who has been away for a round
        if told.away.any():
            assert f"thought to be away: {listed(told.away)}" in str(told)
        gone = env.unwrapped.conditions().dies == 0.0  # type: ignore[attr-defined]
    assert seen > 0


def test_many_workers_are_cut_and_counted() -> None:
    policy = Uta(Setting(n=1000, budget=3))
    action, state = policy.predict({"worker": np.full(3, -1), "duration": np.zeros(3), "elapsed": np.zeros(1000)})
    text = str(policy.explain(state))
    assert "975 more workers" in text
    assert text.endswith("untried: 0-999")
    shown = {int(line.split()[0]) for line in text.splitlines() if line.split()[0].isdigit()}
    assert set(np.flatnonzero(action).tolist()) <= shown


@settings(max_examples=20)
@given(st.lists(st.booleans(), max_size=40))
def test_ranges_name_each_worker_once(which: list[bool]) -> None:
    text = listed(np.array(which, np.bool_))
    ends = [part.split("-") for part in text.split(", ") if part]
    named = [i for first, *last in ends for i in range(int(first), int((last or [first])[0]) + 1)]
    assert named == np.flatnonzero(which).tolist()


@pytest.mark.parametrize("env_id", DEFAULTS)
def test_the_default_says_who_it_is(env_id: str, caplog: pytest.LogCaptureFixture, capsys: Any) -> None:
    env = gym.make(env_id, pool=POOL, budget=6, price=0.25)
    caplog.set_level(logging.INFO, logger="ata_policies")
    ata_policies.make("default", env)
    assert [(one.name, one.levelname, one.getMessage()) for one in caplog.records] == [
        ("ata_policies", "INFO", ata_policies.explain_default(env))
    ]
    assert f"{DEFAULTS[env_id]} plays {env_id} with 5 workers, B = 6 and price 0.25" in caplog.text
    caplog.clear()
    ata_policies.make(DEFAULTS[env_id], env)
    assert not caplog.records
    assert capsys.readouterr() == ("", "")
