"""The arguments of an env as plain data, for the env's spec.

JSON can hold them, and ``gymnasium.make`` takes them back.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from ata_gym.scenarios import Scenario
from ata_gym.scenarios.scenario import as_distribution


def plain_arguments(arguments: Mapping[str, Any], scenario: Scenario) -> dict[str, Any]:
    """The arguments of an env as plain data.

    A ``backend`` stays as it is, as no data describe it.

    Args:
        arguments: The arguments of ``gymnasium.make``, by name.
        scenario: The scenario that the env was made with.
    """
    return {
        name: value if value is None else _plain(name, value, scenario)
        for name, value in arguments.items()
    }


def _plain(name: str, value: Any, scenario: Scenario) -> Any:
    if name == "scenario" and not isinstance(value, str):
        return scenario.to_data() | {
            "name": scenario.name,
            "summary": scenario.summary,
            "source": scenario.source,
        }
    if name == "pool":
        distribution = as_distribution(value)
        if distribution is None:
            return scenario.pool.to_data()
        return distribution.to_data()
    if name in ("changes", "unit_costs"):
        return scenario.to_data()[name]
    if name == "latency" and scenario.pool.latency is not None:
        return scenario.pool.latency.to_data()
    if isinstance(value, AutoresetMode):
        return value.value
    if isinstance(value, np.generic):
        return value.item()
    return value
