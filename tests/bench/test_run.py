from functools import partial
from itertools import chain, repeat

import numpy as np
import polars as pl
import pytest

from ata_gym import proxy_loss, proxy_optimal
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner.cost_regret import CostRun
from ata_gym.bench.runner.policy_run import SCHEMA, Job, play_to_end
from ata_gym.bench.store.folder import open_folder
from ata_gym.bench.studies.tracking.experiment import TrackedExperiment, TrackedRun
from ata_gym.changes import Change, Crash, Jump, Leak, Outliers, Spot, Switch, Walk, Warming
from ata_gym.pools import exponential
from ata_gym.scenarios import Scenario
from ata_policies import DispatchPolicy
from tests.bench.by_hand import by_hand


def experiment(rounds: int) -> Experiment:
    return Experiment.on_scenario("icml2025-regret", rounds=rounds, seeds=3, seed=5)


@pytest.fixture
def play(played):
    return lambda policy, experiment, name="out": played(experiment, policy, name=name).results(
        [policy],
    )


class Shrinking(DispatchPolicy):
    """Starts only the first ``missing`` workers, one more in every other round."""

    def act(self, state, observation):
        waiting = observation["missing"] + (state.round % 2)[:, None]
        return (np.arange(self.setting.n) < waiting).astype(np.int8), state


DISPATCH = f"{__name__}:Shrinking"


@pytest.mark.parametrize("policy", ["ata-empirical-icml", "uta", "gta", DISPATCH])
def test_the_records_are_those_of_single_envs_played_by_hand(play, policy):
    played = experiment(60)
    records = play(policy, played)
    assert (records.schema, records["round"].unique().to_list()) == (
        pl.Schema(SCHEMA),
        played.record_at().tolist(),
    )
    pool = played.scenario.pool
    least = proxy_loss(proxy_optimal(pool, 5), pool.mean())
    for seed in (5, 6, 7):
        regret = 0.0
        mine = {row["round"]: row for row in records.filter(pl.col("seed") == seed).to_dicts()}
        for k, (tasks, info, means, _) in enumerate(by_hand(policy, played, seed), start=1):
            regret += proxy_loss(tasks, means) - least
            if k in mine:
                times = (info["runtime"], info["total_worker_time"])
                if tasks.sum() == 5:
                    kept = regret
                else:
                    kept = None
                assert (*mine[k].values(),) == (
                    policy,
                    seed,
                    k,
                    *times,
                    kept,
                    np.count_nonzero(tasks),
                )


def changing(*changes: Change, rounds: int = 60) -> Experiment:
    scenario = Scenario(exponential([1.0, 2.0, 3.0, 7.0]), 4, changes=changes, name="changing")
    return Experiment(scenario, rounds=rounds, seeds=2, seed=5)


@pytest.mark.parametrize("policy", ["ata-icml", "ofta", "dynamic-ofta"])
def test_where_workers_change_the_regret_is_against_the_best_of_each_round(play, policy):
    played = changing(
        Switch(every=13),
        Walk(0.1, 0.7),
        Jump(20, (3,), 0.1, until=40),
        Outliers(0.1, 2, 4),
    )
    records = play(policy, played)
    every = np.array([a for a in np.ndindex(5, 5, 5, 5) if sum(a) == 4])
    for seed in (5, 6):
        rounds = list(by_hand(policy, played, seed))
        regret = [
            (a * means).max() - (every * means).max(axis=1).min() for a, _, means, _ in rounds
        ]
        mine = records.filter(pl.col("seed") == seed)
        assert mine["runtime"][-1] == rounds[-1].info["runtime"]
        assert mine["regret"].to_numpy() == pytest.approx(
            np.cumsum(regret)[played.record_at() - 1],
            abs=1e-9,
        )
        assert (mine["regret"][-1] == 0) == (policy == "dynamic-ofta")


def test_where_workers_may_be_away_there_is_no_regret(play):
    for change in (Spot(0.1, 0.1, 10.0), Crash(probability=0.1, within=3.0, away=2, deadline=5.0)):
        records = play("uta", changing(change), type(change).__name__)
        assert records["regret"].is_null().all()


def test_where_workers_follow_the_load_there_is_no_regret(play):
    records = play("dynamic-ofta", changing(Warming(5, 3.0)))
    assert records["regret"].is_null().all()


STOPPED = {name: (experiment(500), CostRun) for name in ("ata", "gta", "uta", DISPATCH)} | {
    "ata-icml": (changing(Switch(every=130), Walk(0.1, 0.7), rounds=400), CostRun),
    "recent-average": (changing(Leak(0.2, 9), Warming(30, 3.0), rounds=400), CostRun),
    "dynamic-ofta": (
        TrackedExperiment.around(changing(Switch(every=50)), before=5, after=8),
        TrackedRun,
    ),
}


@pytest.mark.parametrize("policy", STOPPED)
def test_a_run_that_is_stopped_goes_on_and_ends_with_the_same_bytes(tmp_path, policy):
    played, run_of = STOPPED[policy]
    whole, parts = (open_folder(tmp_path / name, played.config()) for name in ("whole", "parts"))
    play_to_end(Job(played, policy, whole, run_of))
    told = []
    seconds = None
    for most in (1, 9, 60, 10**6):
        if seconds is None:
            stop = partial(next, chain(repeat(False, most - 1), repeat(True)))
            job = Job(played, policy, parts, run_of)
            seconds = play_to_end(job, stop=stop, progress=told.append, save_every=0.0)
            assert (seconds is None) == parts.checkpoint(policy).exists() != parts.finished(policy)
    assert (told, told[-1]) == (sorted(set(told)), played.rounds)
    for file in whole.path.rglob("*.parquet"):
        assert (parts.path / file.relative_to(whole.path)).read_bytes() == file.read_bytes()
    assert not list(parts.path.rglob("*.npz"))
