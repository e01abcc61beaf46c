"""The beta rule on Thompson's draws."""

from __future__ import annotations

from typing import Any

import numpy as np

import ata_policies
from ata_gym.pools import shifted_exponential
from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_policies import Setting

POOL = shifted_exponential(np.arange(1.0, 13), np.arange(1.0, 13))


WORLD: dict[str, Any] = {"pool": POOL, "budget": 15}


def test_settles_on_the_beta_rule_of_the_true_distributions(play: Any) -> None:
    usual = play("thompson-beta", 3000, 2, **WORLD).actions[2500:].mean(axis=(0, 1))
    np.testing.assert_allclose(usual, allocate_by_cost(POOL.mean(), 1.5 * POOL.sd(), 15), atol=0.5)


def test_beta_zero_is_thompson_sampling_on_the_proxy(play: Any) -> None:
    """The same draws, and the same allocation by them."""
    ours = play("thompson-beta", 40, 3, seed=1, hyperparameters={"weight": 3.0, "beta": 0.0}, **WORLD)
    proxy = ata_policies.load("thompson-gamma")(Setting(12, 15, pool=POOL), seed=1, weight=3.0)
    for k in range(3, 40):
        other, _ = proxy.predict(ours.seen[k], ours.states[k - 1])
        np.testing.assert_array_equal(ours.actions[k], other)
