"""Functions with which Minari writes and reads the spaces of allocations.

Minari writes ``Dispatch`` as a ``MultiDiscrete``, which it is.
"""

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ata_gym.envs.spaces.allocation import Allocation, RaceAllocation

_KINDS = {f"ata_gym.{kind.__name__}": kind for kind in (Allocation, RaceAllocation)}


def register() -> None:
    """Register the spaces with Minari.

    A version of Minari without these functions says by itself which space it does not know.
    """
    minari = import_module("minari.serialization")
    try:
        serialize = minari.serialize_space.register
        deserialize = minari.deserialize_space.register
    except AttributeError:
        return
    for name, kind in _KINDS.items():
        serialize(kind, _to_data)
        deserialize(name)(_from_data)


def _to_data(space: Allocation, to_string: bool = True) -> dict[str, Any] | str:
    data: dict[str, Any] = {"type": f"ata_gym.{type(space).__name__}", "n_workers": space.n_workers}
    data |= {"budget": space.budget, "rows": space.rows}
    if to_string:
        return json.dumps(data)
    return data


def _from_data(data: Mapping[str, Any]) -> Allocation:
    return _KINDS[data["type"]](data["n_workers"], data["budget"], data["rows"])
