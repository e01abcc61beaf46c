"""Adaptive task allocation on workers of unequal speeds, as Gymnasium environments.

Importing the package registers ``ata_gym/TaskAllocation-v0``, ``ata_gym/TaskRace-v0`` and
``ata_gym/TaskDispatch-v0``, and ids such as ``ata_gym/TaskAllocation-flat-shares-v0`` for programs
that take an id and no arguments: the same envs with ``observation="flat"``, that form of ``action``
and ``reward_unit="even round"``, and the steps of an episode in their spec.

Users type the names below most; the subpackages hold the rest.
"""

from typing import TYPE_CHECKING

from ata_gym.utils.imports.after_import import after_import
from ata_gym.utils.imports.garbage import no_garbage
from ata_gym.utils.imports.lazy import lazy_names
from ata_gym.utils.process.signals import quiet_start

with quiet_start(), no_garbage():
    import gymnasium

if TYPE_CHECKING:
    from ata_gym.scenarios import Scenario, scenario, scenario_names
    from ata_gym.theory.allocation.proxy_loss import allocate, proxy_loss, proxy_optimal
    from ata_gym.theory.optimal.allocation import Optimum, optimal_allocation
    from ata_gym.theory.round_time.expected import expected_round_time
    from ata_gym.utils.compiled import threads
else:
    _SUBPACKAGES = ("bench", "changes", "cluster", "envs", "pools", "scenarios", "theory")
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Optimum": "theory.optimal.allocation",
            "Scenario": "scenarios",
            "allocate": "theory.allocation.proxy_loss",
            "expected_round_time": "theory.round_time.expected",
            "optimal_allocation": "theory.optimal.allocation",
            "proxy_loss": "theory.allocation.proxy_loss",
            "proxy_optimal": "theory.allocation.proxy_loss",
            "scenario": "scenarios",
            "scenario_names": "scenarios",
            "threads": "utils.compiled",
            **{name: name for name in _SUBPACKAGES},
        },
    )

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

_ROUNDS = 100
"""The horizon of the scenario that an env has without arguments."""

_BUDGET = 8
"""The budget of that scenario."""

_FORMS: dict[str, tuple[str, dict[str, int | None]]] = {
    "TaskAllocation": ("allocation", {"shares": _ROUNDS, "assign": _ROUNDS * _BUDGET}),
    "TaskRace": ("allocation", {"shares": _ROUNDS}),
    "TaskDispatch": ("dispatch", {"dispatch": _ROUNDS * _BUDGET, "start": None}),
}
"""For each env its module, and the steps of an episode by the form of its actions.

Each of these forms has an id that needs no arguments. None: episodes of "start" differ in their
number of steps.
"""

for _name, (_module, _actions) in _FORMS.items():
    _ids: dict[str, tuple[dict[str, str], int | None]] = {f"ata_gym/{_name}-v0": ({}, None)}
    for _action, _steps in _actions.items():
        _kwargs = {"observation": "flat", "action": _action, "reward_unit": "even round"}
        _ids[f"ata_gym/{_name}-flat-{_action}-v0"] = _kwargs, _steps
    for _id, (_kwargs, _steps) in _ids.items():
        if _id not in gymnasium.registry:
            gymnasium.register(
                id=_id,
                entry_point=f"ata_gym.envs.{_module}:{_name}Env",
                max_episode_steps=_steps,
                vector_entry_point=f"ata_gym.envs.{_module}:{_name}VectorEnv",
                kwargs=_kwargs,
            )

after_import("minari.serialization", "ata_gym.envs.spaces.minari:register")
