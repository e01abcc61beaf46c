"""Trees of arrays: arrays and numbers nested in tuples, named tuples, lists and mappings.

None is a tree without leaves. Any other object that is not a container is a leaf.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each leaf of a tree with its name.

    The name is the fields, keys and positions that lead to the leaf, joined by dots.

    Args:
        tree: The tree.
        name: The first part of all names.

    Example:
        >>> dict(leaves((1, {"key": [2, 3]}, None), "state"))
        {'state.0': 1, 'state.1.key.0': 2, 'state.1.key.1': 3}
    """
    if tree is None:
        return
    if (children := _children(tree)) is None:
        yield name, tree
        return
    for part, child in children:
        yield from leaves(child, f"{name}.{part}" if name else str(part))


def rebuild(like: Any, values: Iterable[Any]) -> Any:
    """Return a tree of the form of ``like`` whose leaves are ``values``.

    A mapping becomes a dict, other containers keep their type.

    Args:
        like: A tree.
        values: The new leaves, in the order of :func:`leaves`.

    Raises:
        ValueError: For more or fewer values than leaves.
    """
    remaining = iter(values)
    try:
        tree = _rebuild(like, remaining)
    except StopIteration:
        raise ValueError("there are fewer values than leaves") from None
    if next(remaining, remaining) is not remaining:
        raise ValueError("there are more values than leaves")
    return tree


def map_leaves(function: Callable[..., Any], tree: Any, *more_trees: Any) -> Any:
    """Return a tree of the form of ``tree`` whose leaves are computed by a function.

    Args:
        function: Called with a leaf of each tree.
        tree: The first tree.
        *more_trees: The other trees.

    Raises:
        ValueError: If the trees differ in their number of leaves.
    """
    columns = [[leaf for _, leaf in leaves(operand)] for operand in (tree, *more_trees)]
    return rebuild(tree, (function(*row) for row in zip(*columns, strict=True)))


def choose_rows(rows: ArrayLike, first: Any, second: Any) -> Any:
    """Return rows of one tree where a mask is true, and rows of another tree elsewhere.

    Args:
        rows: The mask, shape (E,).
        first: The tree where the mask is true; each leaf is an array with a first axis of size E.
        second: The other tree, of the same form.
    """
    mask = np.asarray(rows, np.bool_)

    def choose(first_leaf: Any, second_leaf: Any) -> Any:
        """The rows of two leaves."""
        # The mask gets as many axes as the leaf.
        shape = (-1, *(1,) * (np.ndim(first_leaf) - 1))
        return np.where(mask.reshape(shape), first_leaf, second_leaf)

    return map_leaves(choose, first, second)


def as_lists(tree: Any) -> Any:
    """Return a tree of the same form with lists in place of tuples, as JSON gives it back.

    Example:
        >>> as_lists({"key": (1, (2.0, None))})
        {'key': [1, [2.0, None]]}
    """
    if isinstance(tree, Mapping):
        return {name: as_lists(child) for name, child in tree.items()}
    if isinstance(tree, tuple | list):
        return [as_lists(child) for child in tree]
    return tree


def finite(tree: Any) -> bool:
    """Whether no leaf holds NaN or an infinity; leaves that are no numbers count as finite."""
    return all(map(_finite, (leaf for _, leaf in leaves(tree))))


def difference(first: Any, second: Any) -> str | None:
    """Return the name of the first leaf that differs between two trees, or None.

    A leaf differs if only one tree has it, or in dtype, shape or bits.

    Args:
        first: A tree.
        second: Another tree.
    """
    first_leaves, second_leaves = (
        {name: _bits(leaf) for name, leaf in leaves(tree)} for tree in (first, second)
    )
    return next(
        (
            name
            for name in {**first_leaves, **second_leaves}
            if first_leaves.get(name) != second_leaves.get(name)
        ),
        None,
    )


def _finite(leaf: Any) -> bool:
    """Whether a leaf is finite; torch is used only if it is imported already."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(leaf, torch.Tensor):
        if leaf.layout is torch.strided:
            values = leaf
        else:
            values = leaf.to_sparse_coo()._values()
        return bool(torch.isfinite(values).all())
    try:
        array = np.asarray(leaf)
    # An object of a user may be no array.
    except (TypeError, ValueError):
        return True
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def _bits(leaf: Any) -> tuple[Any, ...]:
    """The dtype, shape and bytes of a leaf."""
    array = np.asarray(leaf)
    return array.dtype, array.shape, array.tobytes()


def _children(tree: Any) -> Iterable[tuple[Any, Any]] | None:
    """The parts of a container, each with its field, key or position; None for a leaf."""
    if isinstance(tree, Mapping):
        return tree.items()
    if isinstance(tree, tuple | list):
        return zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True)
    return None


def _rebuild(like: Any, values: Iterator[Any]) -> Any:
    """A tree of the form of ``like`` that takes its leaves from ``values``."""
    if like is None:
        return None
    if (children := _children(like)) is None:
        return next(values)
    parts = {name: _rebuild(child, values) for name, child in children}
    if isinstance(like, Mapping):
        return parts
    if hasattr(like, "_fields"):
        return type(like)(*parts.values())
    return type(like)(parts.values())
