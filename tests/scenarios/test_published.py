"""The published scenarios against their publication."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest

from ata_gym import Scenario, scenario, scenario_names
from ata_gym.pools import exponential


def test_scenarios_match_their_publication() -> None:
    names = [name for name in scenario_names() if name.startswith("icml2025")]
    assert len(names) == 21
    linear = scenario("icml2025-cifar100")
    np.testing.assert_allclose(linear.pool.mean(), 58 * np.arange(1, 52))
    np.testing.assert_allclose(linear.pool.sd(), 29 * np.arange(1, 52))
    for name in names:
        published = scenario(name)
        means = published.pool.mean()
        assert Scenario(**json.loads(json.dumps(published.to_data()))).published == published.published
        (alpha, eta), by_icml = published.published
        assert by_icml == (None, None)
        if name == "icml2025-regret":
            assert (alpha, eta) == (means.max(), 1.0) == (40, 1)
        else:
            np.testing.assert_allclose(alpha, 2 * means.max())
            assert (published.budget, eta) == (23, 2.0)
    mixed = scenario("icml2025-mixed-n15").pool
    assert mixed.families[:5] == ("exponential", "uniform", "half-normal", "log-normal", "gamma")
    np.testing.assert_allclose(mixed.mean(), np.repeat(58.0 * np.array([1, 6, 11]), 5))
    np.testing.assert_allclose(mixed.sd()[3], 29 * np.sqrt(28))
    np.testing.assert_allclose(mixed.sd()[4], 1.0)
    with pytest.raises(ValueError, match="there is no scenario"):
        scenario("nothing")


def test_a_scenario_may_be_shortened() -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret", horizon=2, budget=3).unwrapped
    assert (env.horizon, env.budget, env.n) == (2, 3, 20)  # type: ignore[attr-defined]
    assert gym.make("ata_gym/TaskAllocation-v0", pool=exponential([1.0]), budget=1).unwrapped.horizon is None  # type: ignore[attr-defined]
