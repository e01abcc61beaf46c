"""What is done to a policy's state where workers come and go, and states as plain values.

A policy keeps arrays with an axis of workers somewhere. Which axes these are shows where the first state for n workers
is compared with that for n + 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ata_gym.typing import Mask
from ata_gym.utils.trees import leaves, rebuild

T = TypeVar("T")

_NEVER = 2**40
"""Rounds until a worker that has left is probed."""
_SHARED = ("allocation", "order")
"""Arrays that make sense as a whole only: a worker's entry cannot be taken from another state."""


def widened(tree: T, fresh: T) -> T:
    """A state in the form of ``fresh``, which is that of as many workers or more; what is new in it is as in ``fresh``.

    >>> from ata_policies.policy import Setting
    >>> from ata_policies.allocation.baselines import Uta
    >>> three, four = (Uta(Setting(n, budget=5)).first_state(1) for n in (3, 4))
    >>> learned = three._replace(belief=three.belief.observe(np.array([[2]]), np.array([[7.0]])))
    >>> widened(learned, four).belief.totals
    array([[0., 0., 7., 0.]])
    """
    old = dict(leaves(tree))

    def with_old(name: str, new: NDArray[Any]) -> NDArray[Any]:
        if name not in old:
            return new
        wide = np.zeros_like(new) if name.rpartition(".")[2] == "allocation" else new.copy()
        wide[tuple(map(slice, old[name].shape))] = old[name]
        return wide

    result: T = rebuild(fresh, [with_old(name, leaf) for name, leaf in leaves(fresh)])
    return result


def renewed(tree: T, worker: int, fresh: T, wider: T) -> T:
    """A state in which nothing is known of a worker; ``fresh`` and ``wider`` are first states, for n and n + 1."""
    of_fresh, of_wider = dict(leaves(fresh)), dict(leaves(wider))

    def anew(name: str, leaf: NDArray[Any]) -> NDArray[Any]:
        sizes = zip(of_fresh[name].shape, of_wider[name].shape, strict=True)
        own = tuple(worker if size != more else slice(None) for size, more in sizes)
        if name.rpartition(".")[2] in _SHARED or worker not in own:
            return leaf
        leaf = leaf.copy()
        leaf[own] = of_fresh[name][own]
        return leaf

    result: T = rebuild(tree, [anew(name, leaf) for name, leaf in leaves(tree)])
    return result


def told_who_is_there(tree: T, absent: Mask, back: Mask) -> T:
    """The state of a policy that watches who is away, where it knows who has left and who has just come; masks (n,).

    Other policies have no place for it. A worker that came back is probed at once, where workers are probed.
    """
    if not isinstance(tree, tuple):
        return tree
    parts = [told_who_is_there(part, absent, back) for part in tree]
    if not hasattr(tree, "_make"):
        return type(tree)(parts)
    told: Any = tree._make(parts)
    for name in ("away", "absent"):
        away: Any = getattr(told, name, None)
        if np.shape(away)[1:] != absent.shape:
            continue
        probed = hasattr(told, "wait")
        news = {name: np.where(absent, True, np.where(back, probed, away)).astype(away.dtype)}
        if probed:
            news["wait"] = np.where(absent, _NEVER, np.where(back, 1, told.wait))
        if hasattr(told, "asked"):
            news["asked"] = np.where(absent | back, 0, told.asked).astype(told.asked.dtype)
        told = told._replace(**news)
    return told  # type: ignore[no-any-return]


def plain(tree: Any, name: str) -> dict[str, Any]:
    """The leaves of a tree as numbers in nested lists, which every format can hold and read without running code."""
    return {key: _signed(np.asarray(leaf)).tolist() for key, leaf in leaves(tree, name)}


def restored(like: T, given: Mapping[str, Any], name: str) -> T:
    """The tree of the form of ``like`` from what ``plain`` gave, maybe as arrays by now; ValueError if it does not fit.

    >>> restored((np.zeros(2), np.uint64(0)), plain((np.ones(2), np.uint64(2**64 - 1)), "state"), "state")
    (array([1., 1.]), array(18446744073709551615, dtype=uint64))
    """
    result: T = rebuild(like, [_restored(key, leaf, given) for key, leaf in leaves(like, name)])
    return result


def _restored(key: str, like: Any, given: Mapping[str, Any]) -> NDArray[Any]:
    form = _signed(np.asarray(like))
    value = np.asarray(given.get(key))
    if value.dtype.kind in "biuf" and value.shape == form.shape:
        with np.errstate(invalid="ignore"):
            array = value.astype(form.dtype)
        if np.array_equal(array, value, equal_nan=True):
            return array.view(np.asarray(like).dtype)
    raise ValueError(f"this state does not fit: {key} must hold {form.dtype} of shape {form.shape}")


def _signed(array: NDArray[Any]) -> NDArray[Any]:
    """The same bits as signed integers: lists of large unsigned ones would be read as floats."""
    return array.view(np.int64) if array.dtype == np.uint64 else array
