"""A row of a batch decides as it does alone, bit for bit, in any pool, whatever changes, for every policy."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ata_policies
from ata_gym.changes import Jump, OnOff, Spot, Switch, Walk
from ata_gym.pools import concatenate, exponential, gamma, log_normal, trace
from ata_gym.scenarios import AtaConstants, Published, Scenario
from ata_gym.utils.trees import difference, map_leaves

WORKERS = st.one_of(
    st.builds(lambda mean: exponential([mean]), st.floats(0.1, 10.0)),
    st.builds(lambda shape, mean: gamma([shape], [mean / shape]), st.floats(0.3, 9.0), st.floats(0.1, 10.0)),
    st.builds(lambda sigma, mu: log_normal([mu], [sigma]), st.floats(0.1, 2.0), st.floats(-1.0, 2.0)),
    st.builds(lambda times: trace([times]), st.lists(st.floats(0.1, 10.0), min_size=1, max_size=9)),
)
CHANGES = (
    Switch(every=4),
    Walk(0.1, 0.7),
    OnOff(5.0, 0.2, 0.3),
    Jump(at=9, factor=6.0, workers=(0,)),
    Spot(0.1, 0.3, 0.5),
)
NARROW = Published(*[AtaConstants(alpha=0.1, eta=0.1)] * 2)
"""Bounds so narrow that scores are above 0 after few rounds."""


def play(name: str, scenario: Scenario, rows: int, seed: int, steps: int) -> tuple[list[Any], Any]:
    """The actions, (rows, n) each, and the last state."""
    preset = ata_policies.load(name)
    envs = gym.make_vec(preset.env_id, num_envs=rows, scenario=scenario)
    bare: Any = envs.unwrapped
    policy, (observation, _), state, actions = ata_policies.make(name, envs, seed), envs.reset(seed=seed), None, []
    for _ in range(steps):
        privileged = {"privileged": bare.conditions()} if preset.privileged else {}
        action, state = policy.predict(observation, state, **privileged)
        observation = envs.step(action)[0]
        actions.append(action)
    envs.close()
    return actions, state


@pytest.mark.parametrize("name", ata_policies.names())
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    workers=st.lists(WORKERS, min_size=1, max_size=4),
    changes=st.lists(st.sampled_from(CHANGES), max_size=2, unique=True),
    budget=st.integers(1, 6),
    price=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 99),
)
def test_a_row_of_a_batch_is_the_row_alone(
    name: str, workers: list[Any], changes: list[Any], budget: int, price: float, seed: int
) -> None:
    scenario = Scenario(concatenate(workers), budget, horizon=17, changes=tuple(changes), price=price, published=NARROW)
    steps = 30 * (budget if "Dispatch" in ata_policies.load(name).env_id else 1)
    batch, state = play(name, scenario, 3, seed, steps)
    for e in range(3):
        alone, own = play(name, scenario, 1, seed + e, steps)
        for action, expected in zip(alone, batch, strict=True):
            np.testing.assert_array_equal(action[0], expected[e])
        assert difference(own, map_leaves(lambda leaf, e=e: leaf[e : e + 1], state)) is None
