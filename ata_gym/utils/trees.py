"""Trees of arrays: arrays and numbers nested in tuples, named tuples, lists and mappings.

None is a tree without leaves. Any other object that is not a container is a leaf.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each leaf with its name: the fields, keys and positions that lead to it, joined by dots after ``name``.

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
    """Return a tree of the form of ``like`` whose leaves are ``values``, in the order of :func:`leaves`.

    A mapping becomes a dict, other containers keep their type. ValueError for more or fewer values than leaves.
    """
    rest = iter(values)
    try:
        tree = _rebuild(like, rest)
    except StopIteration:
        raise ValueError("there are fewer values than leaves") from None
    if next(rest, rest) is not rest:
        raise ValueError("there are more values than leaves")
    return tree


def map_leaves(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return a tree of the form of ``tree`` whose leaves are ``function`` of its leaves and those of the ``others``.

    ValueError if the trees differ in their number of leaves.
    """
    columns = [[leaf for _, leaf in leaves(one)] for one in (tree, *others)]
    return rebuild(tree, (function(*row) for row in zip(*columns, strict=True)))


def choose_rows(rows: ArrayLike, first: Any, second: Any) -> Any:
    """Return the rows of ``first`` where ``rows`` (E,) is true, and those of ``second`` elsewhere.

    Both are trees of one form; each leaf is an array with a leading axis of size E.
    """
    mask = np.asarray(rows, np.bool_)
    return map_leaves(lambda a, b: np.where(mask.reshape(-1, *(1,) * (np.ndim(a) - 1)), a, b), first, second)


def as_lists(tree: Any) -> Any:
    """Return a tree of the same form with lists in place of tuples, as JSON gives it back.

    >>> as_lists({"key": (1, (2.0, None))})
    {'key': [1, [2.0, None]]}
    """
    if isinstance(tree, Mapping):
        return {name: as_lists(child) for name, child in tree.items()}
    return [as_lists(child) for child in tree] if isinstance(tree, tuple | list) else tree


def finite(tree: Any) -> bool:
    """Whether no leaf holds NaN or an infinity; only numbers, arrays and tensors are looked at."""
    return all(map(_finite, (leaf for _, leaf in leaves(tree))))


def difference(first: Any, second: Any) -> str | None:
    """Return the name of the first leaf that only one tree has, or that differs in dtype, shape or bits; or None."""
    one, other = ({name: _bits(leaf) for name, leaf in leaves(tree)} for tree in (first, second))
    return next((name for name in {**one, **other} if one.get(name) != other.get(name)), None)


def _finite(leaf: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(leaf, torch.Tensor):
        values = leaf if leaf.layout is torch.strided else leaf.to_sparse_coo()._values()
        return bool(torch.isfinite(values).all())
    try:
        array = np.asarray(leaf)
    except (TypeError, ValueError):  # an object of the user that is no array
        return True
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def _bits(leaf: Any) -> tuple[Any, ...]:
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
    if like is None:
        return None
    if (children := _children(like)) is None:
        return next(values)
    parts = {name: _rebuild(child, values) for name, child in children}
    if isinstance(like, Mapping):
        return parts
    return type(like)(*parts.values()) if hasattr(like, "_fields") else type(like)(parts.values())
