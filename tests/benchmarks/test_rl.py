"""The bridge to Stable-Baselines3 against its own vector env: the env alone, and whole iterations
of PPO.
"""

import os
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_gym  # noqa: F401 - registers the ids
from tests.benchmarks.test_throughput import best

sb3 = pytest.importorskip("stable_baselines3", reason="extra rl is not installed")
pytestmark = pytest.mark.benchmark

ROWS = 256
FORM = {
    "scenario": "drawn-6-v1",
    "observation": "workers",
    "action": "shares",
    "reward_unit": "even round",
}
ID = "ata_gym/TaskAllocation-v0"


def bridged(rows: int = ROWS) -> Any:
    from ata_gym.rl.sb3.vec_env import make_vec_env

    return make_vec_env(ID, rows, seed=0, **FORM)


def apart(rows: int = ROWS) -> Any:
    from stable_baselines3.common.env_util import make_vec_env

    return make_vec_env(lambda: gym.make(ID, **FORM), n_envs=rows, seed=0)


def test_the_bridge_steps_faster_than_single_envs() -> None:
    envs = [bridged(), apart()]
    actions = np.random.default_rng(0).uniform(-1, 1, (ROWS, 6)).astype(np.float32)
    for env in envs:
        env.reset()
    ours, theirs = best(
        *(lambda env=env: [env.step(actions) for _ in range(10)] for env in envs),
        repeats=10,
    )
    print(
        f"steps of {ROWS} rows: {10 * ROWS / ours:,.0f} a second, {theirs / ours:.1f} times"
        " DummyVecEnv's",
    )
    assert theirs > 10 * ours


def test_an_iteration_of_ppo_is_faster_with_the_bridge() -> None:
    import torch

    torch.set_num_threads(os.cpu_count() or 1)
    agents = [
        sb3.PPO(
            "MlpPolicy",
            envs,
            n_steps=32,
            batch_size=1024,
            n_epochs=4,
            seed=0,
            device="cpu",
            policy_kwargs={"net_arch": [32, 32]},
        )
        for envs in (bridged(), apart())
    ]
    learn = [
        lambda agent=agent: agent.learn(32 * ROWS, reset_num_timesteps=False) for agent in agents
    ]
    ours, theirs = best(*learn, repeats=4, clock=time.perf_counter)  # torch uses all cores
    print(
        f"PPO, {32 * ROWS} steps of {ROWS} rows: {theirs / ours:.1f} times as fast as with"
        " DummyVecEnv",
    )
    assert theirs > 3 * ours


def test_an_iteration_of_the_agent_of_the_readme() -> None:
    """In processor time, with the updates alone: those are the library's, whatever the env is."""
    import torch

    from ata_gym.rl.sb3.policy import PPO_SETTINGS, WorkersPolicy

    torch.set_num_threads(1)
    rows = 64
    agents = [
        sb3.PPO(WorkersPolicy, envs, **PPO_SETTINGS, seed=0, device="cpu")
        for envs in (bridged(rows), apart(rows))
    ]
    steps = PPO_SETTINGS["n_steps"] * rows
    learn = [lambda agent=agent: agent.learn(steps, reset_num_timesteps=False) for agent in agents]
    ours, theirs, updates = best(*learn, agents[0].train, repeats=10)
    print(
        f"PPO, WorkersPolicy, {rows} rows: {theirs / ours:.1f} times as fast as with DummyVecEnv;"
        f" the updates alone are {updates / ours:.2f} of it, so that with an env that costs"
        f" nothing it would be below {theirs / updates:.1f} times",
    )
    assert theirs > ours
