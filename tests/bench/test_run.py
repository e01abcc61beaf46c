from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ata_policies
from ata_gym import proxy_loss, proxy_optimal
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.run import SCHEMA
from ata_gym.changes import Change, Crash, Jump, Outliers, Spot, Switch, Walk
from ata_gym.pools import exponential
from ata_gym.scenarios import Scenario
from ata_policies import AllocationPolicy, DispatchPolicy

SCENARIO = "icml2025-regret"


def experiment(rounds: int = 1500, seeds: int = 3, seed: int = 5) -> Experiment:
    return Experiment.on_scenario(SCENARIO, rounds=rounds, seeds=seeds, seed=seed)


@pytest.fixture
def play(played):
    return lambda policy, experiment, name="out": played(experiment, policy, name=name).results([policy])


def by_hand(policy: str, played: Experiment, seed: int) -> Iterator[tuple[np.ndarray, dict[str, Any], np.ndarray]]:
    """Each round of a single env: the allocation, the info, and the means of the workers."""
    env: Any = gym.make(ata_policies.load(policy).env_id, scenario=played.scenario)
    observation, _ = env.reset(seed=seed)
    player, state = ata_policies.make(policy, env, seed=seed), None
    for _ in range(played.rounds):
        means = env.unwrapped.means()
        allocation, state = player.predict(observation, state, privileged=env.unwrapped.conditions())
        observation, *_, info = env.step(allocation)
        yield allocation, info, means


@pytest.mark.parametrize("policy", ["ata-empirical-icml", "uta", "gta"])
def test_the_records_are_those_of_single_envs_played_by_hand(play, policy):
    played = experiment(rounds=60)
    records = play(policy, played)
    assert records.schema == pl.Schema(SCHEMA)
    assert records["round"].unique().to_list() == played.record_at().tolist()
    pool = played.scenario.pool
    least = proxy_loss(proxy_optimal(pool, 5), pool.mean())
    for seed in (5, 6, 7):
        regret = 0.0
        mine = {row["round"]: row for row in records.filter(pl.col("seed") == seed).to_dicts()}
        for k, (allocation, info, means) in enumerate(by_hand(policy, played, seed), start=1):
            regret += proxy_loss(allocation, means) - least
            if k in mine:
                times, kept = (info["runtime"], info["total_worker_time"]), None if policy == "gta" else regret
                assert (*mine[k].values(),) == (policy, seed, k, *times, kept, np.count_nonzero(allocation))


class Shrinking(DispatchPolicy):
    """Starts only the first ``missing`` workers, one more in every other round."""

    def act(self, state, seen):
        waiting = seen["missing"] + (state.round % 2)[:, None]
        return (np.arange(self.setting.n) < waiting).astype(np.int8), state


DISPATCH = f"{__name__}:Shrinking"


def test_dispatch_is_recorded_as_an_env_played_by_hand(play):
    played = Experiment.on_scenario(SCENARIO, rounds=40, seeds=2, seed=3, price=0.5)
    records = play(DISPATCH, played)
    assert records.schema == pl.Schema(SCHEMA)
    assert records["regret"].is_null().all()
    for seed in (3, 4):
        env = gym.make("ata_gym/TaskDispatch-v0", scenario=SCENARIO)
        observation, _ = env.reset(seed=seed)
        player, state = ata_policies.make(DISPATCH, env, seed=seed), None
        mine = {row["round"]: row for row in records.filter(pl.col("seed") == seed).to_dicts()}
        for k in range(1, 41):
            workers = set()
            for _ in range(5):
                action, state = player.predict(observation, state)
                workers |= {*np.flatnonzero(action), *np.flatnonzero(observation["started"])}
                observation, _, _, _, info = env.step(action)
            assert info["round_over"]
            if k in mine:
                told = info["runtime"], info["total_worker_time"], len(workers)
                assert tuple(mine[k][name] for name in ("runtime", "total_worker_time", "support")) == told


def changing(*changes: Change, rounds: int = 60) -> Experiment:
    scenario = Scenario(exponential([1.0, 2.0, 3.0, 7.0]), 4, changes=changes, name="changing")
    return Experiment(scenario, rounds=rounds, seeds=2, seed=5)


class Informed(AllocationPolicy):
    """Needs the conditions of each round; gives everything to the worker whose conditions are best."""

    privileged = True

    def act_knowing(self, state, seen, conditions):
        del seen
        means = conditions.means(self.setting.pool)
        return np.eye(self.setting.n, dtype=np.int64)[means.argmin(axis=1)] * self.setting.budget, state

    def allocate(self, state):
        return np.zeros((len(state.round), self.setting.n), np.int64)


@pytest.mark.parametrize("policy", ["ata-icml", "ofta", "dynamic-ofta", f"{__name__}:Informed"])
def test_where_workers_change_the_regret_is_against_the_best_of_each_round(play, policy):
    """And who needs the conditions of each round gets them."""
    played = changing(Switch(every=13), Walk(0.1, 0.7), Jump(20, (3,), 0.1, until=40), Outliers(0.1, 2, 4))
    records = play(policy, played)
    every = np.array([a for a in np.ndindex(5, 5, 5, 5) if sum(a) == 4])
    for seed in (5, 6):
        rounds = list(by_hand(policy, played, seed))
        regret = [(a * means).max() - (every * means).max(axis=1).min() for a, _, means in rounds]
        mine = records.filter(pl.col("seed") == seed)
        assert mine["runtime"][-1] == rounds[-1][1]["runtime"]
        assert mine["regret"].to_numpy() == pytest.approx(np.cumsum(regret)[played.record_at() - 1], abs=1e-9)
        assert (mine["regret"][-1] == 0) == (policy == "dynamic-ofta")


def test_where_workers_may_be_away_there_is_no_regret(play):
    for change in (Spot(0.1, 0.1, 10.0), Crash(probability=0.1, within=3.0, away=2, deadline=5.0)):
        records = play("uta", changing(change), type(change).__name__)
        assert records["regret"].is_null().all()


STOPPED = {name: experiment(500) for name in ("ata", "gta", "uta", DISPATCH)}
STOPPED["ata-icml"] = changing(Switch(every=130), Walk(0.1, 0.7), rounds=400)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(policy=st.sampled_from([*STOPPED]), looks=st.lists(st.integers(1, 50), max_size=3))
def test_a_run_stopped_anywhere_ends_with_the_same_bytes(check_stops, policy, looks):
    check_stops(STOPPED[policy], policy, looks)
