"""The ranges of the numbers in tuples of arrays, declared at the fields.

They are checked when a tuple comes from outside. The type of a field of a named tuple declares its
range: ``slot: Annotated[Ints, Within(-1, last_worker)]``, or one of the types below. A field
without a range may hold any value.
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
"""The largest finite number."""


class Size(NamedTuple):
    """The sizes on which bounds may depend."""

    n: int
    """The number of workers."""
    budget: int
    """The results B that a round needs."""


Bound: TypeAlias = (
    float | Sequence[float] | NDArray[Any] | Callable[[Size], float | Sequence[float]]
)
"""A number, numbers for the entries of the last axes, or a function that gives these."""


@dataclass(frozen=True)
class Within:
    """A range of numbers, from ``low`` to ``high``, both included.

    Example:
        >>> workers = np.array([[0, 1], [-1, 7]])
        >>> Within(-1, last_worker).check("worker", workers, Size(n=2, budget=5))
        Traceback (most recent call last):
            ...
        ValueError: worker must be from -1 to 1, and holds 7
    """

    low: Bound = 0.0
    """The least number."""
    high: Bound = LARGEST_COUNT
    """The largest number."""
    nan: bool = False
    """Whether the numbers may be NaN."""
    totals: Callable[[Size], Sequence[int]] | None = None
    """The allowed sums along the last axis; a worker that joins has 0."""

    def check(self, name: str, array: NDArray[Any], size: Size) -> None:
        """Check that an array is inside the range.

        Args:
            name: The name of the array, for the message.
            array: The array.
            size: The sizes on which the bounds depend.

        Raises:
            ValueError: If a number or a sum is outside.
        """
        bounds = []
        for bound in (self.low, self.high):
            if callable(bound):
                bounds.append(np.asarray(bound(size)))
            else:
                bounds.append(np.asarray(bound))
        low, high = bounds
        wrong = ~((array >= low) & (array <= high))
        if self.nan:
            wrong &= ~np.isnan(array)
        if wrong.any():
            lowest, highest = (
                np.broadcast_to(bound, wrong.shape)[wrong][0] for bound in (low, high)
            )
            raise ValueError(
                f"{name} must be from {lowest:.17g} to {highest:.17g}, and holds {array[wrong][0]}",
            )
        if self.totals is not None:
            allowed = self.totals(size)
            total = array.sum(axis=-1)
            if not np.isin(total, allowed).all():
                raise ValueError(
                    f"{name} must add up to {' or '.join(map(str, allowed))}, not to"
                    f" {total.tolist()}",
                )


def last_worker(size: Size) -> int:
    """The last of the workers 0 to n - 1."""
    return size.n - 1


def all_tasks(size: Size) -> int:
    """All tasks of a round: the budget."""
    return size.budget


Counts: TypeAlias = Annotated[Floats, Within()]
"""Numbers of tasks or rounds, which may be fractions."""
Times: TypeAlias = Annotated[Floats, Within(0.0, FINITE)]
"""Finite times."""
NonNegative: TypeAlias = Annotated[Floats, Within(0.0, math.inf)]
"""Numbers of at least 0, such as times and numbers of rounds, which may be infinite."""
Squares: TypeAlias = Annotated[Floats, Within(0.0, math.inf, nan=True)]
"""Squares of times, which may have overflowed."""
Reals: TypeAlias = Annotated[Floats, Within(-FINITE, FINITE)]
"""Finite numbers."""
Estimates: TypeAlias = Annotated[Floats, Within(0.0, FINITE, nan=True)]
"""Estimates of times or speeds; NaN where nothing is known."""
Numbers: TypeAlias = Annotated[Floats, Within(-math.inf, math.inf, nan=True)]
"""Any numbers."""
Fractions: TypeAlias = Annotated[Floats, Within(0.0, 1.0)]
"""Numbers from 0 to 1."""
Wholes: TypeAlias = Annotated[Ints, Within()]
"""Whole numbers of at least 0."""
Flags: TypeAlias = Annotated[Bits, Within(0, 1)]
"""Flags, 0 or 1."""
Tasks: TypeAlias = Annotated[Ints, Within(0, all_tasks)]
"""Tasks of workers in a round."""
Allocations: TypeAlias = Annotated[Ints, Within(0, all_tasks, totals=lambda size: (0, size.budget))]
"""Allocations of exactly B tasks, shape (..., n); 0 where there is none yet."""
WorkerOrNone: TypeAlias = Annotated[Ints, Within(-1, last_worker)]
"""The worker of each entry; -1 for none."""
Order: TypeAlias = Annotated[Ints, Within(0, last_worker)]
"""Workers in an order."""


def declared(
    tree: Any,
    name: str = "",
    within: Within | None = None,
) -> Iterator[tuple[str, Any, Within | None]]:
    """Yield each leaf of a tree of tuples with its name and the range that its field declares.

    Args:
        tree: The tree.
        name: The name of the tree; names of leaves are as for ``leaves``.
        within: The range of the tree where it is a leaf.
    """
    if not isinstance(tree, tuple):
        yield name, tree, within
        return
    ranges = _ranges(type(tree))
    fields = getattr(tree, "_fields", range(len(tree)))
    for part, child in zip(fields, tree, strict=True):
        yield from declared(child, f"{name}.{part}" if name else str(part), ranges.get(part))


@cache
def _ranges(kind: type[Any]) -> Mapping[Any, Within]:
    """The ranges of the fields of a class of tuples.

    There are none if its types cannot be read, as in some code of users.
    """
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, AttributeError, TypeError):
        return {}
    metadata_by_name = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {
        name: annotation
        for name, metadata in metadata_by_name.items()
        for annotation in metadata
        if isinstance(annotation, Within)
    }


def check_ranges(tree: Any, size: Size, name: str = "") -> None:
    """Check that the arrays of a tree are in the ranges of their fields.

    Args:
        tree: The tree of tuples.
        size: The sizes on which bounds depend.
        name: The name of the tree.

    Raises:
        ValueError: If a number is not; the message names the first such array.
    """
    for leaf_name, leaf, within in declared(tree, name):
        if within is not None:
            within.check(leaf_name, np.asarray(leaf), size)


def cast_like(name: str, value: Any, like: NDArray[Any]) -> NDArray[Any]:
    """Convert numbers to the type of an array.

    Args:
        name: The name of the numbers, for the message.
        value: The numbers.
        like: An array of the type and the shape that they must have.

    Raises:
        ValueError: For another shape, or if some numbers do not fit the type.
    """
    try:
        array = np.asarray(value)
    # Lists of unlike lengths, for example, are no array.
    except (ValueError, OverflowError):
        array = np.asarray(None)
    if array.dtype.kind in "biuf" and array.shape == like.shape:
        with np.errstate(invalid="ignore"):
            converted = array.astype(like.dtype)
        if np.array_equal(converted, array, equal_nan=True):
            return converted
    raise ValueError(f"{name} must hold {like.dtype} of shape {like.shape}")
