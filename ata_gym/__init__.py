"""Adaptive task allocation on workers of unequal speeds, as Gymnasium environments.

Importing the package registers ``ata_gym/TaskAllocation-v0``, ``ata_gym/TaskRace-v0`` and ``ata_gym/TaskDispatch-v0``,
and ids such as ``ata_gym/TaskAllocation-flat-shares-v0`` for programs that take an id and no arguments: the same envs
with ``observation="flat"``, that form of ``action`` and ``reward_unit="even round"``.

The names below are those that users type most; the rooms of the package hold the rest.
"""

from typing import TYPE_CHECKING

from ata_gym.utils.lazy import lazy_names
from ata_gym.utils.signals import quiet_start

with quiet_start():
    import gymnasium

if TYPE_CHECKING:
    from ata_gym.scenarios import Scenario, scenario, scenario_names
    from ata_gym.theory.allocation.proxy_loss import allocate, proxy_loss, proxy_optimal
    from ata_gym.theory.optimal.allocation import Optimum, optimal_allocation
    from ata_gym.theory.round_time.expected import expected_round_time
    from ata_gym.utils.compiled import threads
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Optimum": "theory.optimal.allocation", "Scenario": "scenarios",
            "allocate": "theory.allocation.proxy_loss", "expected_round_time": "theory.round_time.expected",
            "optimal_allocation": "theory.optimal.allocation", "proxy_loss": "theory.allocation.proxy_loss",
            "proxy_optimal": "theory.allocation.proxy_loss", "scenario": "scenarios", "scenario_names": "scenarios",
            "threads": "utils.compiled",
            **{room: room for room in ("bench", "changes", "cluster", "envs", "pools", "scenarios", "theory")},
        },
    )  # fmt: skip

__version__ = "0.1.0"
__all__ = [
    "Optimum", "Scenario", "__version__", "allocate", "expected_round_time", "optimal_allocation", "proxy_loss",
    "proxy_optimal", "scenario", "scenario_names", "threads",
]  # fmt: skip

_FORMS = {
    "TaskAllocation": ("allocation", ("shares", "assign")),
    "TaskRace": ("allocation", ("shares",)),
    "TaskDispatch": ("dispatch", ("dispatch", "start")),
}
"""For each env its module, and the forms of actions that have an id without arguments."""

for _name, (_module, _actions) in _FORMS.items():
    _arguments: dict[str, dict[str, str]] = {"": {}}
    for _action in _actions:
        _arguments[f"-flat-{_action}"] = {"observation": "flat", "action": _action, "reward_unit": "even round"}
    for _form, _kwargs in _arguments.items():
        if f"ata_gym/{_name}{_form}-v0" not in gymnasium.registry:
            gymnasium.register(
                id=f"ata_gym/{_name}{_form}-v0", entry_point=f"ata_gym.envs.{_module}:{_name}Env",
                vector_entry_point=f"ata_gym.envs.{_module}:{_name}VectorEnv", kwargs=_kwargs,
            )  # fmt: skip
