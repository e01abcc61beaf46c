"""XuanCe: PPO learns shares, on single envs, with the file of its own example for a Box of
actions.
"""

import tempfile

import gymnasium as gym
from xuance.common import get_arguments
from xuance.environment import REGISTRY_ENV, make_envs
from xuance.torch.agents import PPO_Agent

ID = "ata_gym:ata_gym/TaskAllocation-v0"
FORM = {"observation": "flat", "action": "shares", "reward_unit": "even round", "horizon": 20}


class Env(gym.Wrapper):
    """With its arguments; XuanCe makes an id without arguments, such as
    TaskAllocation-flat-shares-v0, by itself.
    """

    def __init__(self, config) -> None:
        super().__init__(gym.make(ID, **FORM))
        self.env.reset(seed=config.env_seed)
        self.max_episode_steps = FORM["horizon"]


REGISTRY_ENV["ata"] = Env
config = get_arguments("ppo", "classic_control", "Pendulum-v1")
folder = tempfile.mkdtemp()
own = {
    "env_name": "ata",
    "env_id": ID,
    "parallels": 16,
    "horizon_size": 40,
    "n_minibatch": 4,
    "gamma": 0.9,
}
own |= {
    "representation_hidden_size": [64],
    "actor_hidden_size": [64],
    "critic_hidden_size": [64],
    "ent_coef": 0.0,
}
own |= {
    "learning_rate": 1e-3,
    "use_obsnorm": False,
    "log_dir": folder,
    "model_dir": folder,
    "logger": "tensorboard",
}
vars(config).update(own)
agent = PPO_Agent(config, make_envs(config))
agent.train(30 * config.horizon_size)
rows = gym.make_vec(ID, num_envs=64, **FORM)
for name, weight in (("PPO", 1.0), ("uniform", 0.0)):
    seen = rows.reset(seed=1_000_000)[0]
    total = 0.0
    for _ in range(FORM["horizon"]):
        seen, reward, *_ = rows.step(
            weight * agent.get_actions(seen, deterministic=True)["actions"],
        )
        total += reward.mean()
    print(f"{name}: {total:.2f}")
