"""Experiments as data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ata_gym.bench.experiment.experiment import Experiment, recorded_rounds
from ata_gym.changes import Redraw
from ata_gym.pools import PoolDistribution, read_trace, trace
from ata_gym.scenarios import Scenario

REGRET = "icml2025-regret"


@given(rounds=st.integers(1, 5_000_000))
def test_recorded_rounds_are_log_spaced_up_to_the_last(rounds):
    record_at = Experiment.on_scenario(REGRET, seeds=1, rounds=rounds).record_at()
    assert record_at[0] == 1
    assert record_at[-1] == rounds
    assert (np.diff(record_at) > 0).all()
    assert len(record_at) <= 200
    ratio = rounds ** (1 / max(1, min(rounds, 200) - 1))
    assert (record_at[1:] <= (record_at[:-1] + 0.5) * ratio + 0.5 + 1e-6).all()


def test_a_scenario_gives_rounds_and_budget_unless_told():
    experiment = Experiment.on_scenario(REGRET, seeds=2)
    assert (experiment.rounds, experiment.scenario.budget) == (4_000_000, 5)
    envs = Experiment.on_scenario(REGRET, seeds=2, budget=7).make_envs("ata_gym/TaskAllocation-v0")
    assert envs.unwrapped.budget == 7


def test_workers_that_are_drawn_anew_are_played_and_prices_are_not():
    pools = PoolDistribution(3, fewest=2)
    drawn = Experiment.on_scenario(Scenario(pools, 4, 6), seeds=2, seed=7, price=0.5)
    others = Scenario(PoolDistribution(3, fewest=1), 4, 6)
    assert Experiment.on_scenario(others, seeds=2, seed=7, price=0.5).config() != drawn.config()
    drawn.try_out("distribution-learner")
    drawn.try_out("dispatch-dynamic-oracle")
    for priced in ((0.1, 1.0), (0.5, 0.5)):
        with pytest.raises(ValueError, match="policies know one price, and this scenario draws one for each episode"):
            Experiment.on_scenario(Scenario(pools, 4, 6, (Redraw(pools, price=priced),)), seeds=2)


def test_the_configuration_is_plain_data_and_tells_experiments_apart():
    config = Experiment.on_scenario(REGRET, seeds=2).config()
    assert json.loads(json.dumps(config)) == config
    others = [
        Experiment.on_scenario("icml2025-cifar100", seeds=2, rounds=4_000_000, budget=5),
        Experiment.on_scenario(REGRET, seeds=3),
        Experiment.on_scenario(REGRET, seeds=2, seed=1),
        Experiment.on_scenario(REGRET, seeds=2, price=0.5),
        Experiment.on_scenario(REGRET, seeds=2, rounds=10),
        Experiment.on_scenario(REGRET, seeds=2, budget=6),
    ]
    assert all(other.config() != config for other in others)


def test_the_configuration_of_a_trace_is_that_of_its_content(tmp_path):
    text = "worker,time\n0,1.5\n1,2.5\n0,3.5\n"
    paths = [tmp_path / name for name in ("a.csv", "b.csv", "c.csv")]
    for path, content in zip(paths, (text, text, text.replace("3.5", "3.6")), strict=True):
        path.write_text(content)
    one, same, other = (
        Experiment.on_scenario(Scenario(read_trace(path, worker="worker", duration="time"), 2), seeds=1).config()
        for path in paths
    )
    assert one == same
    assert {key for key in one if one[key] != other[key]} == {"pool"}


def test_a_trace_holds_its_shortest_record_by_round_and_all_tasks_by_task():
    times = [[1.0, 2.0, 3.0], [1.0, 1.0, 2.0]]
    assert recorded_rounds(trace(times, replay="round"), budget=4) == 3
    assert recorded_rounds(trace(times, replay="task"), budget=4) == 1
    assert recorded_rounds(trace(times, replay="task"), budget=100) == 1
