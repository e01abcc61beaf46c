"""The ranges of the numbers in tuples of arrays, declared at the fields, and checked when a tuple comes from outside.

The type of a field of a named tuple declares its range: ``slot: Annotated[Ints, Within(-1, last_worker)]``, or one of
the types below. A field without a range may hold anything.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeAlias, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ata_gym.typing import Bits, Floats, Ints
from ata_gym.utils.validation import LARGEST_COUNT

FINITE = float(np.finfo(np.float64).max)


class Size(NamedTuple):
    """The sizes on which bounds may depend."""

    n: int  # workers
    budget: int  # results that a round needs


Bound: TypeAlias = float | Sequence[float] | NDArray[Any] | Callable[[Size], float | Sequence[float]]
"""A number, numbers for the entries of the last axes, or a function that gives these."""


@dataclass(frozen=True)
class Within:
    """A range of numbers, from ``low`` to ``high``, both included.

    >>> Within(-1, last_worker).check("worker", np.array([[0, 1], [-1, 7]]), Size(n=2, budget=5))
    Traceback (most recent call last):
        ...
    ValueError: worker must be from -1 to 1, and holds 7
    """

    low: Bound = 0.0
    high: Bound = LARGEST_COUNT
    nan: bool = False  # whether the numbers may be NaN
    totals: Callable[[Size], Sequence[int]] | None = None  # allowed sums along the last axis; a worker that joins has 0

    def check(self, name: str, array: NDArray[Any], size: Size) -> None:
        """Raise ValueError, which says what is wrong, for an array of this name that is outside the range."""
        low, high = (np.asarray(bound(size) if callable(bound) else bound) for bound in (self.low, self.high))
        wrong = ~((array >= low) & (array <= high))
        if self.nan:
            wrong &= ~np.isnan(array)
        if wrong.any():
            least, most = (np.broadcast_to(bound, wrong.shape)[wrong][0] for bound in (low, high))
            raise ValueError(f"{name} must be from {least:.17g} to {most:.17g}, and holds {array[wrong][0]}")
        if self.totals is not None:
            allowed, total = self.totals(size), array.sum(axis=-1)
            if not np.isin(total, allowed).all():
                raise ValueError(f"{name} must add up to {' or '.join(map(str, allowed))}, not to {total.tolist()}")


def last_worker(size: Size) -> int:
    """The last of the workers 0 to n - 1."""
    return size.n - 1


def all_tasks(size: Size) -> int:
    """The budget."""
    return size.budget


Counts: TypeAlias = Annotated[Floats, Within()]  # numbers of tasks or rounds, which may be fractions
Times: TypeAlias = Annotated[Floats, Within(0.0, FINITE)]  # finite times
Unending: TypeAlias = Annotated[Floats, Within(0.0, math.inf)]  # times and numbers of rounds that may be infinite
Squares: TypeAlias = Annotated[Floats, Within(0.0, math.inf, nan=True)]  # squares of times, which may have overflowed
Reals: TypeAlias = Annotated[Floats, Within(-FINITE, FINITE)]  # finite numbers
Estimates: TypeAlias = Annotated[Floats, Within(0.0, FINITE, nan=True)]  # of times or speeds; NaN: nothing is known
Numbers: TypeAlias = Annotated[Floats, Within(-math.inf, math.inf, nan=True)]  # any numbers
Shares: TypeAlias = Annotated[Floats, Within(0.0, 1.0)]  # numbers from 0 to 1
Wholes: TypeAlias = Annotated[Ints, Within()]  # whole numbers of at least 0
Flags: TypeAlias = Annotated[Bits, Within(0, 1)]  # 0 or 1
Tasks: TypeAlias = Annotated[Ints, Within(0, all_tasks)]  # of workers in a round
Allocations: TypeAlias = Annotated[Ints, Within(0, all_tasks, totals=lambda size: (0, size.budget))]
"""Allocations of exactly B tasks, (..., n); 0 where there is none yet."""
Whose: TypeAlias = Annotated[Ints, Within(-1, last_worker)]  # the worker to which something belongs; -1: none
Order: TypeAlias = Annotated[Ints, Within(0, last_worker)]  # workers in an order


def declared(tree: Any, name: str = "", within: Within | None = None) -> Iterator[tuple[str, Any, Within | None]]:
    """Yield each leaf of a tree of tuples with its name, as ``leaves`` does, and the range that its field declares."""
    if not isinstance(tree, tuple):
        yield name, tree, within
        return
    ranges, fields = _ranges(type(tree)), getattr(tree, "_fields", range(len(tree)))
    for part, child in zip(fields, tree, strict=True):
        yield from declared(child, f"{name}.{part}" if name else str(part), ranges.get(part))


@cache
def _ranges(kind: type[Any]) -> Mapping[Any, Within]:
    """The ranges of the fields of a class of tuples; none if its types cannot be read, as in some code of users."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, AttributeError, TypeError):
        return {}
    marks = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {name: mark for name, found in marks.items() for mark in found if isinstance(mark, Within)}


def check_ranges(tree: Any, size: Size, name: str = "") -> None:
    """Raise ValueError, which names the first array of a tree with numbers that its field does not allow."""
    for leaf_name, leaf, within in declared(tree, name):
        if within is not None:
            within.check(leaf_name, np.asarray(leaf), size)


def fitted(name: str, given: Any, like: NDArray[Any]) -> NDArray[Any]:
    """Convert numbers to the type of an array; ValueError for another shape, or if some numbers do not fit."""
    try:
        value = np.asarray(given)
    except (ValueError, OverflowError):  # such as lists of unlike lengths
        value = np.asarray(None)
    if value.dtype.kind in "biuf" and value.shape == like.shape:
        with np.errstate(invalid="ignore"):
            array = value.astype(like.dtype)
        if np.array_equal(array, value, equal_nan=True):
            return array
    raise ValueError(f"{name} must hold {like.dtype} of shape {like.shape}")
