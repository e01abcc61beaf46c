import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ata_gym.bench.experiment import Experiment, recorded_rounds
from ata_gym.changes import Redraw
from ata_gym.pools import PoolDistribution, read_trace, trace
from ata_gym.scenarios import Scenario

REGRET = "icml2025-regret"


@settings(max_examples=25)
@given(rounds=st.integers(1, 5_000_000))
def test_recorded_rounds_are_log_spaced_up_to_the_last(rounds):
    record_at = Experiment.on_scenario(REGRET, seeds=1, rounds=rounds).record_at()
    assert (record_at[0], record_at[-1]) == (1, rounds)
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
    def drawn(fewest, **more):
        scenario = Scenario(PoolDistribution(3, fewest=fewest), 4, 6, **more)
        return Experiment.on_scenario(scenario, seeds=2, seed=7, price=0.5)

    assert drawn(1).config() != drawn(2).config()
    for policy in ("distribution-learner", "dispatch-dynamic-oracle"):
        drawn(2).try_out(policy)
    for priced in ((0.1, 1.0), (0.5, 0.5)):
        with pytest.raises(
            ValueError,
            match="policies know one price, and this scenario draws one for each episode",
        ):
            drawn(2, changes=(Redraw(PoolDistribution(3, fewest=2), price=priced),))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("icml2025-cifar100", {"rounds": 4_000_000, "budget": 5}),
        *(
            (REGRET, other)
            for other in ({"seeds": 3}, {"seed": 1}, {"price": 0.5}, {"rounds": 10}, {"budget": 6})
        ),
    ],
)
def test_the_configuration_is_plain_data_and_tells_experiments_apart(name, other):
    config = Experiment.on_scenario(REGRET, seeds=2).config()
    assert json.loads(json.dumps(config)) == config
    assert Experiment.on_scenario(name, **{"seeds": 2, **other}).config() != config


def test_the_configuration_of_a_trace_is_that_of_its_content(tmp_path):
    text = "worker,time\n0,1.5\n1,2.5\n0,3.5\n"
    configs = []
    for name, content in (("a.csv", text), ("b.csv", text), ("c.csv", text.replace("3.5", "3.6"))):
        (tmp_path / name).write_text(content)
        pool = read_trace(tmp_path / name, worker="worker", duration="time")
        configs.append(Experiment.on_scenario(Scenario(pool, 2), seeds=1).config())
    one, same, other = configs
    assert (one, {key for key in one if one[key] != other[key]}) == (same, {"pool"})


def test_a_trace_holds_its_shortest_record_by_round_and_all_tasks_by_task():
    times = [[1.0, 2.0, 3.0], [1.0, 1.0, 2.0]]
    for replay, budget, rounds in (("round", 4, 3), ("task", 4, 1), ("task", 100, 1)):
        assert recorded_rounds(trace(times, replay=replay), budget=budget) == rounds
