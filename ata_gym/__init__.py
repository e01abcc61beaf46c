"""Adaptive task allocation on workers of unequal speeds, as Gymnasium environments.

Importing the package registers ``ata_gym/TaskAllocation-v0``, ``ata_gym/TaskRace-v0`` and ``ata_gym/TaskDispatch-v0``.
The names below are those that users type most; the rooms of the package hold the rest.
"""

from ata_gym.utils.signals import quiet_start

with quiet_start():  # these imports take a second
    import gymnasium

    from ata_gym.scenarios import Scenario, scenario, scenario_names
    from ata_gym.theory.allocation.proxy_loss import allocate, proxy_loss, proxy_optimal
    from ata_gym.theory.optimal.allocation import Optimum, optimal_allocation
    from ata_gym.theory.round_time.expected import expected_round_time
    from ata_gym.utils.kernels.threads import threads

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
    "threads",
]

for _name, _module in (("TaskAllocation", "allocation"), ("TaskRace", "allocation"), ("TaskDispatch", "dispatch")):
    if f"ata_gym/{_name}-v0" not in gymnasium.registry:
        gymnasium.register(
            id=f"ata_gym/{_name}-v0",
            entry_point=f"ata_gym.envs.{_module}:{_name}Env",
            vector_entry_point=f"ata_gym.envs.{_module}:{_name}VectorEnv",
        )
