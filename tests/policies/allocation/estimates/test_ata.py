"""ATA and ATA-Empirical: their scores by hand, their constants, and what they learn."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import allocate, proxy_loss, proxy_optimal
from ata_gym.pools import log_normal, shifted_exponential
from ata_gym.simulation.keys import stream_keys
from ata_policies import Belief, Setting
from ata_policies.allocation.estimates.ata import score

POOL = shifted_exponential([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0])


def test_scores_by_hand() -> None:
    """K = 2 and 8 tasks of mean 3 and 5 in round 3: L = ln 18."""
    level = math.log(18)
    seen = [2.0, 8.0, 0.0], [6.0, 40.0, 0.0], level
    f = [math.sqrt(level / k) + level / k for k in (2, 8)]
    expected = [3 - 0.5 * f[0], 5 - 0.5 * f[1], 0.0]
    np.testing.assert_allclose(score(*seen, 0.5, 0.0), expected, rtol=1e-14)
    relative = [3 * (1 - 0.1 * f[0]), 5 * (1 - 0.1 * f[1]), 0]
    np.testing.assert_allclose(score(*seen, 0.0, 0.1), relative, rtol=1e-14)
    assert score(*seen, 2.0, 0.0).tolist() == [0.0, max(5 - 2 * f[1], 0.0), 0.0]  # clipped


@pytest.mark.parametrize(
    ("name", "hyperparameter", "factor"),
    [
        ("ata", "alpha", 4 * math.e),
        ("ata-icml", "alpha", 2),
        ("ata-empirical", "eta", 4 * math.e),
        ("ata-empirical-icml", "eta", 2),
    ],
)
def test_constants_and_where_they_come_from(refuses: Any, name: str, hyperparameter: str, factor: float) -> None:
    def value(policy: Any) -> float:
        v = getattr(policy.estimate, hyperparameter)
        m, k, level = 3.0, 1e12, math.log(2.0)  # so many tasks that the bound is above 0
        belief = Belief(np.full((1, 1), k), np.full((1, 1), k * m))
        found = policy.estimate.scores(belief, np.array([1]), stream_keys(0), ()).score[0, 0]
        unit = 1.0 if hyperparameter == "alpha" else m
        f = math.sqrt(level / k) + level / k
        np.testing.assert_allclose((m - found) / (unit * f), factor * v, rtol=1e-4)
        return float(v)

    env = gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-cifar100")
    assert value(ata_policies.make(name, env)) == {"alpha": 5916.0, "eta": 2.0}[hyperparameter]
    assert value(ata_policies.make(name, env, **{hyperparameter: 3.5})) == 3.5
    own = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=3)
    norms = POOL.psi1_norm(centred="icml" in name)
    expected = norms.max() if hyperparameter == "alpha" else (norms / POOL.mean()).max()
    np.testing.assert_allclose(value(ata_policies.make(name, own)), expected)
    heavy = gym.make("ata_gym/TaskAllocation-v0", pool=log_normal([0.0, 1.0], 1.0), budget=3)
    with pytest.raises(ValueError, match=f"give {hyperparameter}="):
        ata_policies.make(name, heavy)
    refuses(name, f"give {hyperparameter}=")


def test_an_unknown_version(refuses: Any) -> None:
    setting = Setting(n=5, budget=7, pool=POOL)
    refuses("ata", "version must be 'preprint' or 'icml', not 'poster'", setting, version="poster")


def test_ata_follows_its_formula_along_a_run(play: Any) -> None:
    """Every action with all scores positive is RAS of the formula on what was seen."""
    run, checked = play("ata", 49, 1, pool=POOL, budget=7, hyperparameters={"alpha": 0.01}), 0
    for k, (action, state) in enumerate(zip(run.actions, run.states, strict=True), start=1):
        (counts,), (totals,) = state.belief
        if counts.all():
            ratio = math.log(2 * k * k) / counts
            s = totals / counts - 4 * math.e * 0.01 * (np.sqrt(ratio) + ratio)
            if (s > 0).all():
                np.testing.assert_array_equal(action[0], allocate(s, 7))
                checked += 1
    assert checked > 40


@pytest.mark.parametrize("name", ["ata-icml", "ata-empirical-icml"])
def test_ata_learns(play: Any, name: str) -> None:
    """With the ICML constants the allocation comes close to the optimum of the proxy, and uniform does not."""
    losses = proxy_loss(play(name, 4000, pool=POOL, budget=7).actions, POOL.mean()).mean(axis=1)
    best = proxy_loss(proxy_optimal(POOL, 7), POOL.mean())
    assert losses[-500:].mean() < 1.1 * best
    assert losses[:10].mean() > 1.5 * best
