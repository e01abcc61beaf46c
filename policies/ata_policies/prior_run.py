"""Let a policy play an env, and keep what it learned as the prior of later runs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ata_gym.utils.validation import whole_number
from ata_policies.beliefs.prior import save_prior
from ata_policies.registry import make


def play_prior(
    path: str | os.PathLike[str], env: Any, policy: str = "ata-empirical-icml", *, rounds: int = 1000, seed: int = 0
) -> None:
    """Let a policy play some rounds of an env, and save what it learned for later runs.

    The env, single or vector (rows are added up), is reset with ``seed``, and the rounds are played within one episode.
    ``policy`` names one that learns counts and totals. ValueError if the episode ends before the rounds are played.

    >>> import gymnasium, ata_gym, tempfile
    >>> from pathlib import Path
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "prior.csv")
    >>> play_prior(path, env, rounds=100)
    >>> informed = make("ata-icml", env, memory="prior", prior=path)
    >>> informed.first_belief(rows=1).counts.sum()  # 100 rounds of 5 tasks
    np.float64(500.0)
    >>> folder.cleanup()
    """
    rounds = whole_number("rounds", rounds)
    player = make(policy, env, seed=seed)
    observation, _ = env.reset(seed=seed)
    state = None
    for played in range(1, rounds + 1):
        action, state = player.predict(observation, state)
        observation, _, _, truncated, _ = env.step(action)
        if np.any(truncated):
            raise ValueError(f"rounds must be fewer than an episode has: it ended with round {played} of {rounds}")
    _, state = player.predict(observation, state)
    save_prior(path, state)
