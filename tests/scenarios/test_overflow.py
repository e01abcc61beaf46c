"""Times and prices whose sums can overflow are refused where a scenario is made."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from ata_gym.changes import Change, Crash, Jump, Load, OnOff, Outliers, Periodic, Spot, Walk
from ata_gym.pools import exponential, pareto
from ata_gym.scenarios import Scenario


def test_times_that_can_overflow_are_refused() -> None:
    pool = {"family": "exponential", "scale": [1.0, 2.0]}
    huge: list[tuple[list[Change], str]] = [
        ([Load(0.3, 0.3, 1e4, 0.5)], "Load"),
        ([Outliers(0.5, 1e308, 1.7e308)], "Outliers"),
        ([Jump(1, (0,), 1e20), Jump(2, (0,), 1e20)], r"Jump\(at=2"),
        ([Walk(1.0, 100.0)] * 7, "Walk"),
        ([Periodic(5, 0.9)] * 1100, "Periodic"),
        ([OnOff(1e299, 0.1, 0.1)], "OnOff"),
        ([Crash(0.1, within=1e308, away=1)], "Crash"),
        ([Spot(0.1, 0.1, deadline=1e308)], "Spot"),
    ]
    for changes, name in huge:
        with pytest.raises(ValueError, match=rf"with {name}.* times of up to .* use smaller factors"):
            Scenario(pool, budget=3, changes=changes)
    for arguments in ({"price": 1e308}, {"pool": {"family": "pareto", "shape": 0.05}}, {"pool": exponential([1e299])}):
        with pytest.raises(ValueError, match=r"with the pool, times of up to .* smaller price, or a larger unit"):
            Scenario(**{"pool": pool, "budget": 3} | arguments)
    Scenario(exponential([1e20]), budget=3, changes=[Jump(1, (0,), 1e-300), OnOff(1e12, 0.1, 0.1)])


@pytest.mark.parametrize("env_id", ["TaskAllocation", "TaskRace", "TaskDispatch"])
def test_the_largest_times_have_finite_rewards(env_id: str) -> None:
    changes = [Load(0.9, 0.09, 1.0, 0.5, swap=0.0), Outliers(0.5, 1e2, 1e3)]
    envs = gym.make_vec(f"ata_gym/{env_id}-v0", num_envs=50, pool=pareto([0.8, 0.6], 1.0), budget=3, changes=changes)
    envs.reset(seed=0)
    for _ in range(6):
        observation, reward, *_ = envs.step(np.tile([1, 1] if env_id == "TaskDispatch" else [1, 2], (50, 1)))
        assert np.isfinite(reward.astype(np.float32)).all()
        assert np.isfinite(observation["duration"].astype(np.float32)).all()
