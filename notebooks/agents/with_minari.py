"""Minari: the rounds of two policies as data sets, with allocations, infos and the env itself;
nothing is learned.
"""

import os
import tempfile
import warnings

import gymnasium as gym
import minari
import numpy as np

import ata_policies
from ata_gym.pools import shifted_exponential

os.environ["MINARI_DATASETS_PATH"] = tempfile.mkdtemp()  # by default they are in the home folder
warnings.simplefilter("ignore")  # it asks for an author, a description and so on
pool = shifted_exponential([1.0, 1.5, 2.0, 3.0, 6.0], [1.0, 1.5, 2.0, 3.0, 6.0])
env = gym.make(
    "ata_gym/TaskAllocation-v0",
    pool=pool,
    budget=8,
    horizon=50,
    reward_unit="even round",
)
# policies know no unit of rewards
bare = gym.make(
    "ata_gym/TaskAllocation-v0",
    pool=pool,
    budget=8,
    horizon=50,
)
for name in ("thompson-gamma", "uta"):
    collector = minari.DataCollector(env, record_infos=True)
    policy = ata_policies.make(name, bare, seed=0)
    for episode in range(32):
        seen = collector.reset(seed=episode)[0]
        state = None
        over = False
        while not over:
            allocation, state = policy.predict(seen, state)
            seen, _, _, over, _ = collector.step(allocation)
    collector.create_dataset(f"rounds/{name}-v0")
for name in ("thompson-gamma", "uta"):
    dataset = minari.load_dataset(f"rounds/{name}-v0")  # in another program: import ata_gym first
    assert dataset.action_space == env.action_space
    assert dataset.recover_environment().unwrapped.scenario == env.unwrapped.scenario
    assert all(episode.infos["runtime"][0] == 0.0 for episode in dataset)
    assert all(np.all(np.diff(episode.infos["runtime"]) > 0) for episode in dataset)
    mean = np.mean([episode.rewards.sum() for episode in dataset])
    print(f"{'uniform' if name == 'uta' else 'Thompson'}: {mean:.2f}")
