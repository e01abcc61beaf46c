"""States of policies where workers come and go, and states as plain values with a checksum.

A policy keeps arrays, in which some axes are over workers: these are longer in a first state for
more workers.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ata_gym.utils.files.sealed import array_checksum
from ata_gym.utils.ranges import Within, cast_like, declared
from ata_gym.utils.trees import leaves, rebuild
from ata_gym.utils.validation import short

T = TypeVar("T")

_CHECKSUM = "checksum"


def widened(tree: T, fresh: T) -> T:
    """Return a state in the form of ``fresh``, which has as many workers or more.

    Args:
        tree: The state, a tree of arrays.
        fresh: A first state for more workers; the new workers are as in it.

    Example:
        >>> from ata_policies.setting import Setting
        >>> from ata_policies.allocation.baselines import Uta
        >>> three, four = (Uta(Setting(n, budget=5)).first_state(1) for n in (3, 4))
        >>> belief = three.belief.observe(np.array([[2]]), np.array([[7.0]]))
        >>> widened(three._replace(belief=belief), four).belief.totals
        array([[0., 0., 7., 0.]])
    """
    old_leaves = dict(leaves(tree))

    def with_old(name: str, fresh_leaf: NDArray[Any], within: Within | None) -> NDArray[Any]:
        if name not in old_leaves:
            return fresh_leaf
        # where the sum of an array is restricted, as in an allocation, new workers add 0 to it
        adds_up = within is not None and within.totals is not None
        if adds_up:
            array = np.zeros_like(fresh_leaf)
        else:
            array = fresh_leaf.copy()
        array[tuple(map(slice, old_leaves[name].shape))] = old_leaves[name]
        return array

    result: T = rebuild(fresh, [with_old(*leaf) for leaf in declared(fresh)])
    return result


def plain(tree: Any, name: str) -> dict[str, Any]:
    """Return the leaves of a tree as numbers in nested lists, by name.

    Every format can hold these, and read them without running code.
    """
    return {key: _signed(np.asarray(leaf)).tolist() for key, leaf in leaves(tree, name)}


def restored(like: T, values: Mapping[str, Any], name: str) -> T:
    """Return the tree in the form of ``like`` from the values of ``plain``.

    Args:
        like: A tree of arrays with the same shapes and dtypes.
        values: The values of ``plain``, which may be arrays by now.
        name: The name that ``plain`` had for the tree.

    Raises:
        ValueError: If the values do not fit.

    Example:
        >>> values = plain((np.ones(2), np.uint64(2**64 - 1)), "state")
        >>> restored((np.zeros(2), np.uint64(0)), values, "state")
        (array([1., 1.]), array(18446744073709551615, dtype=uint64))
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"a state is what state_dict() gave, not {short(values)}")  # noqa: TRY004
    result: T = rebuild(like, [_restored(key, leaf, values) for key, leaf in leaves(like, name)])
    return result


def sealed(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state of plain values with its checksum.

    Example:
        >>> sealed({"round.due": True})["checksum"][:8]
        '9d0a7e4b'
    """
    return {**state, _CHECKSUM: array_checksum(state)}


def check_seal(values: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Check that values have the checksum of the ``state`` that was read from them.

    Raises:
        ValueError: If they have none, or another one.
    """
    if _CHECKSUM not in values:
        raise ValueError(
            f"this state has no {_CHECKSUM}: load all that state_dict() gave, with every key",
        )
    if text_of(_CHECKSUM, values[_CHECKSUM]) != array_checksum(state):
        raise ValueError(
            "this state is not what state_dict() gave: its checksum belongs to other values, so"
            " that it was changed or damaged; load another copy, or begin anew",
        )


def text_of(name: str, value: Any) -> str:
    """Return the text that a state holds, which may be an array by now.

    Raises:
        ValueError: If it is anything else.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        text = value.item()
    else:
        text = value
    if not isinstance(text, str):
        raise ValueError(f"{name} must be text, not {short(value)}")  # noqa: TRY004
    return text


def _restored(key: str, like: Any, values: Mapping[str, Any]) -> NDArray[Any]:
    """Return a leaf in the form of ``like``, or raise a ValueError if its values do not fit."""
    try:
        array = cast_like(key, values.get(key), _signed(np.asarray(like)))
    except ValueError as error:
        raise ValueError(f"this state does not fit: {error}") from None
    return array.view(np.asarray(like).dtype)


def _signed(array: NDArray[Any]) -> NDArray[Any]:
    """Return unsigned integers with their bits as signed ones, which every format can hold."""
    if array.dtype == np.uint64:
        return array.view(np.int64)
    return array
