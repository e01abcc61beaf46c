"""The clock: rounds of an env that a policy plays, in any loop."""

from __future__ import annotations

from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.pools import deterministic, shifted_exponential, trace
from ata_policies import Clock
from ata_policies.steps import play

POOL = shifted_exponential([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
IDS = ["ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0", "ata_gym/TaskDispatch-v0"]


@pytest.mark.parametrize("env_id", IDS)
def test_a_tick_is_a_round_of_the_policy(env_id: str) -> None:
    clock = Clock(gym.make(env_id, pool=POOL, budget=5, price=0.2), seed=7)
    assert (clock.rounds, clock.runtime, clock.total_worker_time, clock.allocation) == (0, 0.0, 0.0, None)
    env, tasks = gym.make(env_id, pool=POOL, budget=5, price=0.2), np.zeros(3, np.int64)
    for step in islice(play(ata_policies.make("default", env, seed=7), env, seed=7), 30):
        running = step.seen.get("running", np.zeros(3, np.int8))
        starts = step.action * (running == 0)
        tasks += starts if (starts + running).any() else 1
        if step.round_over:
            rounds = clock.rounds
            assert clock.tick() == clock.runtime == step.info["runtime"]
            assert (clock.rounds, clock.total_worker_time) == (rounds + 1, step.info["total_worker_time"])
            assert clock.allocation is not None
            assert clock.allocation.tolist() == tasks.tolist()
            tasks[:] = 0


@pytest.mark.parametrize("name", [name for name in ata_policies.names() if ata_policies.load(name).privileged])
def test_oracles_of_the_coming_round_play(name: str) -> None:
    env = gym.make(ata_policies.load(name).env_id, pool=deterministic([1.0, 2.0, 9.0]), budget=3)
    clock = Clock(env, name)
    clock.tick()
    assert clock.tick() == 4.0


def test_wrappers_see_the_rounds() -> None:
    env = gym.wrappers.RecordEpisodeStatistics(gym.make(IDS[0], pool=POOL, budget=5, horizon=3))
    clock = Clock(env, ata_policies.make("uta", env))
    for _ in range(3):
        clock.tick()
    assert env.return_queue[-1] == pytest.approx(-clock.runtime)


@pytest.mark.parametrize("env_id", IDS)
def test_after_the_episode_there_is_no_time(env_id: str) -> None:
    clock = Clock(gym.make(env_id, pool=trace([[1.0, 2.0], [1.0, 3.0]], "round", "truncate"), budget=1))
    clock.tick()
    runtime = clock.tick()
    with pytest.raises(ValueError, match=r"the episode ended after 2 rounds: make the env with a longer horizon"):
        clock.tick()
    assert (clock.rounds, clock.runtime) == (2, runtime)


def test_what_is_refused() -> None:
    env, other = (gym.make(IDS[0], pool=POOL, budget=budget) for budget in (5, 4))
    vector: Any = gym.make_vec(IDS[0], num_envs=2, pool=POOL, budget=5)
    for given, said in (
        ((vector,), r"a clock is a single env of ata_gym, made with gymnasium.make, not "),
        ((gym.make("CartPole-v1"),), "a clock is a single env of ata_gym"),
        ((env, "gta"), "gta plays ata_gym/TaskRace-v0, and this env is"),
        ((other, ata_policies.make("uta", env)), "the policy must be made for the env's 3 workers and B = 4"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            Clock(*given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed must be a whole number"):
        Clock(env, seed=-1)
