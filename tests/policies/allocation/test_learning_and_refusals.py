"""What every policy of scores and rules must do: learn whom to trust, and refuse wrong hyperparameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ata_gym import proxy_loss, proxy_optimal
from ata_gym.pools import Pool, exponential, shifted_exponential

BUDGET = 7


def shifted(n: int) -> Pool:
    """Workers of the means 2, 4, ..., 2 n."""
    return shifted_exponential(np.arange(1.0, n + 1), np.arange(1.0, n + 1))


@pytest.mark.parametrize(
    ("names", "pool", "rounds", "late"),
    [
        (("certainty-equivalence", "epsilon-uniform", "explore-then-commit"), shifted(8), 400, 1.35),
        (("cucb", "ucb-v", "kl-lcb", "kl-gamma"), shifted(8), 700, 1.1),
        (("thompson", "thompson-gamma"), exponential(np.arange(1.0, 11.0)), 800, 1.05),
        (("ata-icml", "ata-empirical-icml"), shifted(5), 2500, 1.1),
        (("median-of-means", "catoni", "truncated-mean"), shifted(6), 1000, 1.08),
    ],
)
def test_learns(play: Any, names: tuple[str, ...], pool: Pool, rounds: int, late: float) -> None:
    """The proxy loss is far from the least in the first rounds, and near it in the last quarter."""
    least = proxy_loss(proxy_optimal(pool, BUDGET), pool.mean())
    for name in names:
        losses = proxy_loss(play(name, rounds, pool=pool, budget=BUDGET).actions, pool.mean()) / least
        assert losses[:2].mean() > 1.5, name
        assert losses[-rounds // 4 :].mean() < late, name


@pytest.mark.parametrize(
    ("name", "hyperparameter", "wrong", "message"),
    [
        ("epsilon-uniform", "c", (0.0,), "c must be a finite number above 0"),
        ("explore-then-commit", "tasks", (0, 2.0), "tasks must be a whole number from 1"),
        ("cucb", "scale", (0.0,), "scale must be a finite number above 0"),
        ("ucb-v", "scale", (-1.0,), "scale must be a finite number above 0"),
        ("kl-lcb", "shape", (math.inf,), "shape must be a finite number above 0"),
        ("kl-gamma", "weight", (0,), "weight must be a finite number above 0"),
        ("thompson", "shape", (0.0, -1.0, math.inf, math.nan, "4"), "shape must be a finite number above 0"),
        ("thompson-gamma", "weight", (0.0,), "weight must be a finite number above 0"),
        ("thompson-beta", "beta", (-1.0, math.inf), "beta must be a finite number"),
        ("thompson-beta", "weight", (0.0,), "weight must be a finite number"),
        ("median-of-means", "blocks", (0, 1, 3, 128, 2.0), "blocks must be"),
        ("catoni", "moment", (0.0, math.inf), "moment must be"),
        ("truncated-mean", "radius", (-1.0, math.nan), "radius must be"),
        ("exponentiated-gradient", "rate", (-0.5,), "rate must be a finite number above 0"),
        ("ata", "version", ("poster",), "version must be 'preprint' or 'icml', not 'poster'"),
        ("distribution-learner", "weight", (0.0,), "weight must be"),
        ("thompson:memory=window", "blocks", (7,), "blocks must divide the window of 300"),
        ("thompson:memory=window", "of", ("years",), 'of must be "tasks"'),
        ("thompson:memory=window", "window", (0,), "window must be"),
        ("thompson:memory=discount", "discount", (1.0,), "discount must be below 1"),
        ("thompson:memory=discount", "discount", (0.0,), "discount must be a finite number above 0"),
        ("restarting-beta", "detector", ("ear",), "detector must be 'page-hinkley' or 'cusum' or 'glr', not 'ear'"),
        ("restarting-beta", "restart", ("none",), "restart must be 'everybody' or 'many' or 'worker'"),
        ("restarting-beta", "effective_tasks", (39.9, math.inf), "effective_tasks must be a finite number of at least"),
        ("restarting-beta", "refresh", (0.0,), "refresh must be a finite number above 0"),
        ("restarting-beta", "threshold", (-1.0,), "threshold must be a finite number above 0"),
        ("thompson:memory=prior", "prior_weight", (-0.1, 1.1, math.nan), "weight must be"),
        ("ofta", "seed", (0,), "needs an env whose pool is known"),
        ("oracle", "seed", (0,), "needs an env whose pool is known"),
        ("dynamic-ofta", "seed", (0,), "needs an env whose pool is known"),
        ("dynamic-oracle", "seed", (0,), "needs an env whose pool is known"),
        ("race-fastest", "m", (0,), "m must be"),
        ("race-fastest", "m", (4,), "m must be at most the number of workers, 3, not 4"),
        ("race-caps", "m", (1.5,), "m must be"),
        ("race-caps", "d", (-1,), "d must be"),
        ("race-backup", "shape", (0.0,), "shape must be"),
        ("race", "tolerance", (-0.1,), "tolerance must be a finite number of at least 0, not -0.1"),
        ("race", "explore", (math.inf,), "explore must be"),
        ("race-oracle", "seed", (0,), "needs an env whose pool is known"),
        ("dispatch-rest", "m", (0,), "m must be a whole number"),
        ("dispatch-rest", "kappa", (-1.0, math.nan), "kappa must be"),
        ("dispatch-oracle", "seed", (0,), "needs an env whose pool is known"),
        ("dispatch-caps", "seed", (0,), "needs an env whose pool is known"),
    ],
)
def test_wrong_hyperparameters(refuses: Any, name: str, hyperparameter: str, wrong: Any, message: str) -> None:
    name, _, memory = name.partition(":memory=")
    for value in wrong:
        refuses(name, message, **{hyperparameter: value}, **({"memory": memory} if memory else {}))
