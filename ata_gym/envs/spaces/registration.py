"""The registration of the action spaces with Gymnasium's functions on spaces.

These functions batch, concatenate, share and flatten.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.spaces import Box, MultiDiscrete, utils as space_utils
from gymnasium.vector import utils as vector_utils
from gymnasium.wrappers.utils import create_zero_array

from ata_gym.envs.spaces.allocation import Allocation, RaceAllocation
from ata_gym.envs.spaces.dispatch import Dispatch
from ata_gym.typing import Ints


def _batch(space: Allocation, n: int = 1) -> Allocation:
    if space.rows is not None:
        raise ValueError(f"a batch cannot be batched again: {space}")
    return type(space)(space.n_workers, space.budget, n, deepcopy(space.np_random))


def _batch_differing(spaces: Sequence[Allocation]) -> Allocation:
    if any(space != spaces[0] for space in spaces):
        raise ValueError(f"spaces must be equal to form a batch, not {list(spaces)}")
    return _batch(spaces[0], len(spaces))


def _flatten_space(space: Allocation) -> Box:
    # Flat spaces are boxes, which do not keep the sum.
    length = space.n_workers * (space.rows or 1)
    return Box(0, space.budget, (length,), np.int64)


def _first_worker_tasks(space: Allocation) -> Ints:
    """All tasks to the first worker, as an array of zeros is no element."""
    least = np.zeros(space.shape, dtype=np.int64)
    least[..., 0] = space.budget
    return least


_ALLOCATION_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    vector_utils.batch_space: _batch,
    vector_utils.batch_differing_spaces: _batch_differing,
    space_utils.flatten_space: _flatten_space,
    create_zero_array: _first_worker_tasks,
}
_BOX_FUNCTIONS: tuple[Any, ...] = (
    vector_utils.concatenate,
    vector_utils.create_empty_array,
    vector_utils.create_shared_memory,
    vector_utils.read_from_shared_memory,
    vector_utils.write_to_shared_memory,
    vector_utils.iterate,
    space_utils.flatdim,
    space_utils.flatten,
    space_utils.unflatten,
    space_utils.is_space_dtype_shape_equiv,
)
"""Functions to which a space of integers is like a Box: they use only its shape and dtype."""


def register() -> None:
    """Register the action spaces with all functions that dispatch on the class of a space.

    Each class needs its own entry, as some of these functions do not look for a parent class.
    """
    for space_class in (Allocation, RaceAllocation):
        for function, rule in _ALLOCATION_FUNCTIONS.items():
            function.register(space_class, rule)
        for function in _BOX_FUNCTIONS:
            function.register(space_class, function.dispatch(Box))
    for function in (*_ALLOCATION_FUNCTIONS, *_BOX_FUNCTIONS):
        function.register(Dispatch, function.dispatch(MultiDiscrete))
