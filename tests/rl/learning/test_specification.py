"""What there is to train is refused in words where it makes no sense, and so are agents that cannot be played."""

from __future__ import annotations

import shutil
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.bench.experiment.provenance import provenance
from ata_gym.rl.agent import LearnedAgent, LearnedDispatchAgent
from ata_gym.rl.learning.specification import ACTIONS, AgentSpec, policy_name
from ata_policies.policy import Setting

pytest.importorskip("stable_baselines3", reason="extra rl is not installed")
pytest.importorskip("sb3_contrib", reason="extra rl is not installed")
pytest.importorskip("tensorboard", reason="extra rl is not installed")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("alocation",), "allocation"),
        (("allocation", "pppo"), "ppo"),
        (("allocation", "ppo", "start"), "shares"),
        (("race", "dqn"), "use ppo or a2c"),
        (("dispatch", "dqn", "dispatch"), "start"),
        (("allocation", "ppo", "shares", 0, {"gama": 0.9}), "gamma"),
        (("allocation", "ppo", "shares", 0, {"device": "cuda"}), "device"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(arguments, says):
    with pytest.raises(ValueError, match=says):
        AgentSpec(*arguments)


def test_a_hyperparameter_of_the_wrong_kind_is_refused(learning):
    from ata_gym.rl.learning.training import make_agent

    spec = AgentSpec("allocation", "ppo", "shares", 0, {"n_steps": "fast"})
    with pytest.raises(ValueError, match="ppo does not take these hyperparameters: "):
        make_agent(replace(learning(), agent=spec))


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"rows": 0}, "rows must be"),
        ({"evaluations": 300}, "evaluations must be at most the steps, 128"),
        ({"test_rows": 2_000_000}, "the split test has 1,000,000 seeds"),
        ({"validation_rows": 1.5}, "validation-rows must be a whole number"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(learning, sizes, says):
    with pytest.raises(ValueError, match=says):
        learning(**sizes)


def test_each_algorithm_has_an_action_by_default_in_each_env_that_it_can_play():
    for algorithm in ("ppo", "a2c", "maskable-ppo", "dqn"):
        for env, actions in ACTIONS.items():
            if env == "race" and algorithm in ("dqn", "maskable-ppo"):
                continue
            assert AgentSpec(env, algorithm).action in actions


def test_an_agent_for_any_size_plays_other_numbers_of_workers(trained):
    *_, path = trained
    made = LearnedAgent(Setting(n=9, budget=20), folder=str(path))
    row = {"worker": [[-1] * 20], "duration": [[0.0] * 20], "elapsed": [[0.0] * 9]}
    action, _ = made.predict({name: np.array(value) for name, value in row.items()})
    assert action.shape == (1, 9)
    assert action.sum() == 20


def test_an_agent_of_a_fixed_size_plays_only_that(learning, learn_in, tmp_path):
    learn_in(learning(algorithm="dqn", steps=32, evaluations=1), tmp_path)
    LearnedAgent(Setting(n=6, budget=8), folder=str(tmp_path))
    with pytest.raises(ValueError, match="for 6 workers and a budget of 8, not for 9 and 20"):
        LearnedAgent(Setting(n=9, budget=20), folder=str(tmp_path))


def test_a_folder_without_an_agent_is_refused(trained, tmp_path):
    *_, path = trained
    with pytest.raises(ValueError, match="holds no trained agent"):
        LearnedAgent(Setting(n=6, budget=8), folder=str(tmp_path))
    with pytest.raises(ValueError, match=r"plays ata_gym/TaskAllocation-v0: name it .*:LearnedAgent:"):
        LearnedDispatchAgent(Setting(n=6, budget=8), folder=str(path))
    with pytest.raises(ValueError, match="folder"):
        ata_policies.make("ata_gym.rl.agent:LearnedAgent", gym.make("ata_gym/TaskAllocation-v0"))
    shutil.copy(path / "config.json", tmp_path)
    (tmp_path / "agent.zip").write_bytes((path / "agent.zip").read_bytes()[:-100])
    with pytest.raises(ValueError, match="does not hold the weights of this agent"):
        LearnedAgent(Setting(n=6, budget=8), folder=str(tmp_path))
    codes = [provenance(policy_name("allocation", folder))["code"] for folder in (path, tmp_path)]
    assert codes[0] != codes[1]  # results are told apart by the weights of the agent
