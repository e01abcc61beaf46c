#!/usr/bin/env bash
# rl_games 1.6.5, gymnasium 1.4.0
#
# Where the infos of an env have time_outs, rl_games adds to the last reward of an episode gamma times the value of the
# observation BEFORE the last step; the value of the observation after it is meant, and nothing that an env can hand over
# changes it. So a state that is always the last one before the limit learns the value r + gamma V of itself, r / (1 - gamma):
# with gamma = .99 a reward in the last step counts a hundredfold there. Here observations are the steps of an episode, rewards
# are 0, and the limit comes after two steps, so that the reward that is kept for the second step is what was added.
# It concerns envs with a time limit whose observations tell the time, or whose last rewards are not as the others. Leave
# time_outs out where the limit belongs to the task; else take another library, or make episodes long against 1 / (1 - gamma).
. "$(dirname "$0")/fresh.bash"
install rl_games==1.6.5 gymnasium==1.4.0 torch==2.13.0 numpy==2.4.6 setuptools==80.9.0

expect "added at the limit: gamma times the value of the observation
before the last step: True
after the last step: False" <<'PY'
import contextlib
import io
from pathlib import Path

import numpy as np
import rl_games
import torch
import yaml
from gymnasium.spaces import Box
from rl_games.common import env_configurations, vecenv
from rl_games.torch_runner import Runner

GAMMA = 0.5


class Steps(vecenv.IVecEnv):
    step_of_episode = 0

    def reset(self):
        return np.zeros((1, 1), np.float32)

    def step(self, actions):
        self.step_of_episode = (self.step_of_episode + 1) % 2
        ended = np.array([self.step_of_episode == 0])
        observation = np.full((1, 1), self.step_of_episode, np.float32)
        return observation, np.zeros(1, np.float32), ended, {"time_outs": ended}

    def get_env_info(self):
        return {"observation_space": Box(0, 2, (1,)), "action_space": Box(-1, 1, (1,))}


vecenv.register("steps", lambda *_, **options: Steps())
env_configurations.register("steps", {"vecenv_type": "steps"})
example = Path(rl_games.__file__).parent / "configs" / "ppo_continuous.yaml"
config = yaml.safe_load(example.read_text())
config["params"]["seed"] = 1
options = {"name": "steps", "env_name": "steps", "env_config": {}, "device": "cpu", "train_dir": "runs"}
options |= {"num_actors": 1, "horizon_length": 2, "seq_length": 2, "minibatch_size": 2, "max_epochs": 1}
options |= {"gamma": GAMMA, "reward_shaper": {}}
config["params"]["config"] |= options
with contextlib.redirect_stdout(io.StringIO()):
    runner = Runner()
    runner.load(config)
    agent = runner.algo_factory.create("a2c_continuous", base_name="run", params=runner.params)
    agent.init_tensors()
    agent.obs = agent.env_reset()
    agent.play_steps()
added = agent.experience_buffer.tensor_dict["rewards"].flatten()[1].item()
before, after = (agent.get_values({"obs": torch.tensor([[step]])}).item() for step in (1.0, 2.0))
print("added at the limit: gamma times the value of the observation")
print("before the last step:", np.isclose(added, GAMMA * before))
print("after the last step:", np.isclose(added, GAMMA * after))
PY
