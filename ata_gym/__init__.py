"""Who computes what: adaptive task allocation on unequal workers, as a Gymnasium environment.

Importing the package registers ``ata_gym/TaskAllocation-v0``, ``ata_gym/TaskRace-v0`` and ``ata_gym/TaskDispatch-v0``.
"""

import gymnasium

from ata_gym.allocation import allocate, proxy_loss, proxy_optimal
from ata_gym.optimal import Optimum, optimal_allocation
from ata_gym.round_time import expected_round_time
from ata_gym.scenarios import Scenario, scenario, scenario_names

__version__ = "0.1.0"
__all__ = [
    "Optimum",
    "Scenario",
    "__version__",
    "allocate",
    "expected_round_time",
    "optimal_allocation",
    "proxy_loss",
    "proxy_optimal",
    "scenario",
    "scenario_names",
]

for _name, _module in (("TaskAllocation", "envs"), ("TaskRace", "envs"), ("TaskDispatch", "dispatch")):
    if f"ata_gym/{_name}-v0" not in gymnasium.registry:
        gymnasium.register(
            id=f"ata_gym/{_name}-v0",
            entry_point=f"ata_gym.{_module}:{_name}Env",
            vector_entry_point=f"ata_gym.{_module}:{_name}VectorEnv",
        )
