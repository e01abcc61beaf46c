"""A decision of a default is followed in a few folders, and without going back and forth."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import pytest

import ata_policies
from tests.decision_path import folders_and_returns, followed


@pytest.mark.parametrize(
    ("name", "env_id"),
    [
        ("distribution-learner", "ata_gym/TaskAllocation-v0"),
        ("race", "ata_gym/TaskRace-v0"),
        ("dispatch", "ata_gym/TaskDispatch-v0"),
    ],
)
def test_a_decision_is_followed_in_at_most_six_folders_and_five_returns(name: str, env_id: str) -> None:
    """The longest of some decisions, which plans where some workers were never tried."""
    env: Any = gym.make_vec(env_id, num_envs=1, vectorization_mode="vector_entry_point", scenario="icml2025-cifar100")
    policy, (observation, _), state, paths = ata_policies.make(name, env), env.reset(seed=0), None, []
    for _ in range(24):
        (action, state), path = followed(partial(policy.predict, observation, state))
        observation, *_ = env.step(action)
        paths.append(path)
    longest = max(paths[3:], key=len)  # the first ones make the first state
    assert len(longest) > 6
    folders, returns = folders_and_returns(longest)
    assert (folders <= 6, returns <= 5) == (True, True), "\n".join(map(str, longest))
