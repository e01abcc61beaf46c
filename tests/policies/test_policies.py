"""Every policy of the registry, played."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.bench.experiment.store import load_tree, save_tree
from ata_gym.pools import shifted_exponential
from ata_policies import check_policy

POOL = shifted_exponential([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0])
NAMES = ata_policies.names()


@pytest.mark.parametrize("name", NAMES)
def test_keeps_the_contract(name: str) -> None:
    """Legal, reproducible, the same alone as in a batch, and more; here its advice is an error too."""
    check_policy(name)


@pytest.mark.parametrize("name", NAMES)
def test_goes_on_from_a_checkpoint(name: str, tmp_path: Path) -> None:
    """As the bench saves it, to plain arrays, and restores it in the form of the first state."""
    env = gym.make_vec(ata_policies.load(name).env_id, num_envs=2, pool=POOL, budget=7)
    first, (observation, _) = ata_policies.make(name, env), env.reset(seed=0)
    form = first.first_state(2)
    seen, state, actions = [], None, []
    for _ in range(60):
        now = {"privileged": env.unwrapped.conditions()} if first.privileged else {}  # type: ignore[attr-defined]
        seen.append((observation, now))
        action, state = first.predict(observation, state, **now)
        actions.append(action)
        if len(actions) == 30:
            save_tree(tmp_path / "state.npz", state)
        observation = env.step(action)[0]
    again = ata_policies.make(name, env)
    state = load_tree(tmp_path / "state.npz", form)
    for (observation, now), expected in zip(seen[30:], actions[30:], strict=True):
        action, state = again.predict(observation, state, **now)
        np.testing.assert_array_equal(action, expected)
