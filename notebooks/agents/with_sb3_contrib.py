"""sb3-contrib: MaskablePPO gives out one task at a time, on the native rows."""

import numpy as np
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy

from ata_gym.rl.sb3.vec_env import NativeVecEnv, make_vec_env


def rows(seed: int) -> NativeVecEnv:
    return make_vec_env(
        "ata_gym/TaskAllocation-v0",
        n_envs=16,
        seed=seed,
        observation="flat",
        action="assign",
        horizon=5,
        reward_unit="even round",
    )


class Uniform:
    """One of the workers in the mask, all with the same chance."""

    chance = np.random.default_rng(0)

    def predict(self, observation, state=None, action_masks=None, **_):
        return (self.chance.random(action_masks.shape) * action_masks).argmax(axis=1), state


agent = MaskablePPO(
    "MlpPolicy",
    rows(0),
    n_steps=80,
    batch_size=320,
    learning_rate=1e-3,
    seed=0,
    device="cpu",
)
agent.learn(25_000)
for name, policy in (("MaskablePPO", agent), ("uniform", Uniform())):
    result, _ = evaluate_policy(policy, rows(1_000_000), n_eval_episodes=64, deterministic=False)
    print(f"{name}: {result:.2f}")
