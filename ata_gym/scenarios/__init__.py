"""Scenarios as data: pool, changes, budget, horizon, price and published hyperparameters."""

from ata_gym.scenarios.for_agents import SPLITS
from ata_gym.scenarios.published import PAPER
from ata_gym.scenarios.registry import SCENARIO_GROUPS, resolve, scenario, scenario_names
from ata_gym.scenarios.scenario import AtaConstants, PoolData, Published, Scenario

__all__ = [
    "PAPER",
    "SCENARIO_GROUPS",
    "SPLITS",
    "AtaConstants",
    "PoolData",
    "Published",
    "Scenario",
    "resolve",
    "scenario",
    "scenario_names",
]
