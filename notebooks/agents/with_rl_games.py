"""rl_games: PPO learns shares, on the native rows, which a class of 12 lines hands on; with the
file of its example.
"""

import tempfile
from pathlib import Path

import gymnasium as gym
import rl_games
import torch
import yaml
from rl_games.common import env_configurations, vecenv
from rl_games.torch_runner import Runner

ID = "ata_gym:ata_gym/TaskAllocation-v0"
FORM = {"observation": "flat", "action": "shares", "reward_unit": "even round", "horizon": 20}


class Rows(vecenv.IVecEnv):
    def __init__(self, rows: int, seed: int) -> None:
        self.envs = gym.make_vec(ID, rows, autoreset_mode="SameStep", **FORM)
        self.first = self.envs.reset(seed=seed)[0]

    def reset(self):
        return self.first

    def step(self, actions):
        seen, reward, terminated, truncated, _ = self.envs.step(actions)
        return seen, reward, terminated | truncated, {"time_outs": truncated}

    def get_env_info(self):
        return {
            "observation_space": self.envs.single_observation_space,
            "action_space": self.envs.single_action_space,
        }


vecenv.register("rows", lambda _, num_actors, seed: Rows(num_actors, seed))
env_configurations.register("ata", {"vecenv_type": "rows"})
config = yaml.safe_load(
    (Path(rl_games.__file__).parent / "configs" / "ppo_continuous.yaml").read_text(),
)
config["params"] |= {"seed": 1, "torch_threads": 1}
config["params"]["network"]["mlp"] |= {"units": [64], "activation": "tanh"}
config["params"]["network"]["space"]["continuous"]["sigma_init"]["val"] = -1
own = {
    "name": "ata",
    "env_name": "ata",
    "env_config": {},
    "device": "cpu",
    "train_dir": tempfile.mkdtemp(),
}
own |= {
    "horizon_length": 40,
    "minibatch_size": 160,
    "max_epochs": 30,
    "gamma": 0.9,
    "learning_rate": 1e-3,
}
own |= {
    "lr_schedule": None,
    "clip_value": False,
    "normalize_value": True,
    "reward_shaper": {},
    "print_stats": False,
}
config["params"]["config"] |= own
runner = Runner()
runner.load(config)
agent = runner.algo_factory.create("a2c_continuous", base_name="run", params=runner.params)
agent.train()
for name, weight in (("PPO", 1.0), ("uniform", 0.0)):
    rows = Rows(64, 1_000_000)
    total = 0.0
    seen = rows.reset()
    for _ in range(FORM["horizon"]):
        with torch.no_grad():
            mean = agent.get_action_values({"obs": torch.as_tensor(seen)})["mus"]
        seen, reward, *_ = rows.step(weight * mean.numpy())
        total += reward.mean()
    print(f"{name}: {total:.2f}")
