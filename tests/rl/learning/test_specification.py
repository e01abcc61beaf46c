"""Agents that cannot be played are refused in words."""

import shutil

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.bench.experiment.provenance import provenance
from ata_gym.rl.agent import LearnedAgent, LearnedDispatchAgent
from ata_gym.rl.learning.specification import policy_name
from ata_policies.policy import Setting

pytest.importorskip("stable_baselines3", reason="extra rl is not installed")
pytest.importorskip("sb3_contrib", reason="extra rl is not installed")
pytest.importorskip("tensorboard", reason="extra rl is not installed")


def test_an_agent_for_any_size_plays_other_numbers_of_workers_and_one_of_a_fixed_size_only_that(
    trained, learning, learn_in, tmp_path
):
    *_, path = trained
    made = LearnedAgent(Setting(n=9, budget=20), folder=str(path))
    row = {"worker": [[-1] * 20], "duration": [[0.0] * 20], "elapsed": [[0.0] * 9]}
    action, _ = made.predict({name: np.array(value) for name, value in row.items()})
    assert action.shape == (1, 9)
    assert action.sum() == 20
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
