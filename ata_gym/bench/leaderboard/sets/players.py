"""Who plays a set of scenarios where no policies are named."""

from __future__ import annotations

import gymnasium as gym

import ata_policies
from ata_policies.registry import DEFAULTS

FOLLOWERS = ("restarting-beta", "thompson-gamma:memory=restarting", "recent-average", "lb-bsp-ema", "lb-bsp-federated")
"""Learners for workers that change, which are shown where workers stay as they are, too."""

DYNAMIC_ORACLES = ("dynamic-ofta", "dynamic-oracle:tolerance=0.2", "race-dynamic-oracle", "dispatch-dynamic-oracle")
"""Oracles that see the conditions of each round."""

_OTHERS = ("thompson-beta", "certainty-equivalence", "ata-icml", "uta")
"""Allocation policies for workers that stay, beside the default, where the set is not made for them."""


def usual_policies() -> list[str]:
    """The defaults, all policies for workers that stay as they are, and the followers."""
    steady = [name for name in ata_policies.names() if not ata_policies.load(name).nonstationary]
    return list(dict.fromkeys([*DEFAULTS.values(), *steady, *FOLLOWERS]))


def for_changing_workers() -> list[str]:
    """The defaults, followers and some others, all races and dispatch, and the oracles of each round.

    Oracles that know what the workers are like without changes are left out.
    """
    return [
        DEFAULTS["ata_gym/TaskAllocation-v0"],
        *FOLLOWERS,
        *_OTHERS,
        *(name for env in ("TaskRace", "TaskDispatch") for name in _without_oracles(env)),
        *DYNAMIC_ORACLES,
    ]


def for_unseen_workers() -> list[str]:
    """As ``for_changing_workers``, with a policy that explores first and then stays with what it found."""
    return [*for_changing_workers(), "explore-then-commit"]


def _without_oracles(env: str) -> list[str]:
    """The policies of an env that know nothing beforehand."""
    found = {name: ata_policies.load(name) for name in ata_policies.names()}
    return [name for name, one in found.items() if gym.spec(one.env_id).name == env and one.knows == "nothing"]
