"""Policies by name: the entry points of group ``ata_gym.policies``, ours and those of a user's own package."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import Any

import gymnasium as gym

from ata_gym.checks import unknown
from ata_policies.policy import Policy, Setting

GROUP = "ata_gym.policies"


def names() -> tuple[str, ...]:
    """The names of all installed policies.

    >>> "ata" in names()
    True
    """
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def load(name: str) -> type[Policy]:
    """The policy class of a name, or of ``package.module:Class``.

    Raises
    ------
    ValueError
        If there is none; the message names the nearest.
    """
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            found: type[Policy] = getattr(importlib.import_module(module), attribute)
        except (ModuleNotFoundError, AttributeError) as error:
            raise ValueError(f"there is no policy {name!r}: {error}") from error
        return found
    points = entry_points(group=GROUP, name=name)
    if not points:
        raise unknown("policy", name, names())
    loaded: type[Policy] = next(iter(points)).load()
    return loaded


def make(
    name: str,
    env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any],
    seed: int = 0,
    **hyperparameters: Any,
) -> Policy:
    """Make the policy of that name for a single or a vector env.

    Parameters
    ----------
    name
        A registered name (see ``names``) or ``package.module:Class``.
    env
        Tells the number of workers, the budget and, where it has them, the scenario and the pool.
    seed
        Seeds the policy's own randomness; row e of a vector env gets that of ``seed + e``.
    hyperparameters
        Those of the policy's class, such as ``alpha`` of ATA.

    Raises
    ------
    ValueError
        If there is no such policy or hyperparameter, or a needed one cannot be found.

    Examples
    --------
    >>> import gymnasium as gym, ata_gym
    >>> env = gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
    >>> observation, _ = env.reset(seed=0)
    >>> policy = make("ata", env)
    >>> allocation, state = policy.predict(observation)
    >>> int(allocation.sum())
    5
    """
    policy = load(name)
    try:
        return policy(Setting.of(env), seed=seed, **hyperparameters)
    except TypeError as error:
        raise ValueError(f"policy {name!r} does not take these hyperparameters: {error}") from error
