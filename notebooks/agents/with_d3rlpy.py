"""d3rlpy: TD3+BC learns shares offline, from 512 episodes of random shares that were played on the
native rows.
"""

import d3rlpy
import gymnasium as gym
import numpy as np
from d3rlpy.algos import TD3PlusBCConfig
from d3rlpy.models import VectorEncoderFactory

ID = "ata_gym:ata_gym/TaskAllocation-v0"
ROWS = 512
FORM = {"observation": "flat", "action": "shares", "reward_unit": "even round", "horizon": 20}
d3rlpy.seed(0)
rng = np.random.default_rng(0)
envs = gym.make_vec(ID, num_envs=ROWS, **FORM)
seen = envs.reset(seed=0)[0]
steps = []
for _ in range(FORM["horizon"]):
    action = rng.uniform(-1, 1, envs.action_space.shape).astype(np.float32)
    after, reward, terminated, truncated, _ = envs.step(action)
    steps.append((seen, action, reward, terminated, truncated))
    seen = after
parts = (
    np.stack(part, axis=1).reshape(ROWS * FORM["horizon"], -1) for part in zip(*steps, strict=True)
)
observations, actions, rewards, terminals, timeouts = (
    parts  # each episode's steps one after the other
)
dataset = d3rlpy.dataset.MDPDataset(observations, actions, rewards, terminals[:, 0], timeouts[:, 0])
net = VectorEncoderFactory([64])
agent = TD3PlusBCConfig(
    gamma=0.9,
    alpha=10.0,
    batch_size=256,
    actor_learning_rate=1e-3,
    critic_learning_rate=1e-3,
    actor_encoder_factory=net,
    critic_encoder_factory=net,
).create(device="cpu")
silent = d3rlpy.logging.NoopAdapterFactory()
agent.fit(
    dataset,
    n_steps=3_000,
    n_steps_per_epoch=3_000,
    logger_adapter=silent,
    show_progress=False,
)
rows = gym.make_vec(ID, num_envs=64, **FORM)
for name, weight in (("TD3", 1.0), ("uniform", 0.0)):
    seen = rows.reset(seed=1_000_000)[0]
    total = 0.0
    for _ in range(FORM["horizon"]):
        seen, reward, *_ = rows.step(weight * agent.predict(seen))
        total += reward.mean()
    print(f"{name}: {total:.2f}")
