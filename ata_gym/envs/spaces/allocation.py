"""The action spaces of rounds: integer vectors of tasks per worker, for one row or a batch."""

from collections.abc import Iterable
from itertools import accumulate
from typing import Any, ClassVar, SupportsIndex, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import kernel
from ata_gym.utils.validation import whole_number

_INT64 = np.dtype(np.int64)
_LARGEST_BUDGET = 2**62
"""The largest n and budget: their sum still fits in an int64."""

Seed: TypeAlias = int | np.random.Generator | None


@kernel("(n),(),()->()")
def _legal(action: Ints, budget: Ints, exact: Mask, out: Mask) -> None:
    """Whether an allocation is legal.

    It counts down from the budget, so that no sum can overflow.
    """
    remaining = budget[0]
    legal = True
    for tasks in action:
        if exact[0]:
            largest = remaining
        else:
            largest = budget[0]
        if tasks < 0 or tasks > largest:
            legal = False
            break
        remaining = max(remaining - tasks, 0)
    out[0] = legal and remaining == 0


@kernel("(m),(),(n)", writable=(2,))
def _deal(uniform: Floats, budget: Ints, out: Ints) -> None:
    """Draw an allocation by stars and bars.

    Each of n + budget - 1 places is a bar with probability (bars left) / (places left).
    """
    worker = 0
    bars = len(out) - 1
    places = bars + budget[0]
    out[:] = 0
    for place in range(places):
        if uniform[place] * (places - place) < bars:
            worker += 1
            bars -= 1
        else:
            out[worker] += 1


def checked_shape(action: object, shape: tuple[int, ...]) -> NDArray[Any]:
    """The action as an array.

    Raises:
        ValueError: Unless it has this shape.
    """
    try:
        array = np.asarray(action)
    except Exception as error:
        raise ValueError(f"the action must be an array of shape {shape}: {error}") from error
    if array.shape != shape:
        raise ValueError(f"the action must have shape {shape}, not {array.shape}")
    return array


def integers(action: object, shape: tuple[int, ...]) -> NDArray[np.integer[Any]]:
    """The action as an array of integers of this shape.

    Raises:
        ValueError: For another shape or dtype.
    """
    array = checked_shape(action, shape)
    if array.dtype.kind not in "iu":
        raise ValueError(f"the action must have an integer dtype such as int64, not {array.dtype}")
    return array


def checked_tasks(
    action: object,
    shape: tuple[int, ...],
    budget: int,
    exact: NDArray[np.bool_],
) -> Ints:
    """The action as int64 of this shape, not copied where it is such an array already.

    Args:
        action: The tasks of each worker.
        shape: The shape, (n,) or (E, n).
        budget: The budget: tasks are from 0 to the budget.
        exact: Whether the sum must be the budget; else it may be more.

    Raises:
        ValueError: If the action is not legal; the message says what is wrong.
    """
    if type(action) is np.ndarray and action.dtype is _INT64 and action.shape == shape:
        array = action
    else:
        integer_action = integers(action, shape)
        # A number beyond int64 must not wrap around: it stays above any budget.
        if integer_action.dtype.kind == "u":
            integer_action = np.minimum(integer_action, np.uint64(_LARGEST_BUDGET + 1))
        array = integer_action.astype(np.int64)
    legal = _legal(array, budget, exact)
    # The result for one row is a single truth value.
    if len(shape) > 1:
        all_legal = legal.all()
    else:
        all_legal = legal
    if not all_legal:
        raise ValueError(_complaint(np.asarray(action), np.asarray(legal), budget, bool(exact)))
    return array


def _complaint(action: NDArray[np.integer[Any]], legal: Mask, budget: int, exact: bool) -> str:
    """The message on the first row that is not legal."""
    # The index is () where there is one row only.
    row = tuple(np.argwhere(~legal)[0])
    tasks = action[row].tolist()
    row_text = "".join(f" of row {index}" for index in row)
    for worker, (count, total) in enumerate(zip(tasks, accumulate(tasks), strict=True)):
        if not 0 <= count <= budget:
            if count < 0:
                requirement = "0 or more tasks"
            else:
                requirement = f"at most {budget} tasks, the budget"
            return f"worker {worker}{row_text} must have {requirement}, not {count}"
        if exact and total > budget:
            break
    if exact:
        bound = "the budget"
    else:
        bound = "at least the budget"
    return f"the tasks{row_text} must sum to {bound} of {budget}, not to {sum(tasks)}"


class CheckedSpace:
    """A space with a check that says what is wrong."""

    def check(self, action: object) -> Any:
        """The action as an array of the space's shape and dtype.

        It is not copied where it is such an array already.

        Raises:
            ValueError: If it is no element of the space; the message says what is wrong.
        """
        raise NotImplementedError

    def contains(self, x: object) -> bool:
        """Whether ``check`` accepts ``x``."""
        try:
            self.check(x)
        except ValueError:
            return False
        return True


class Allocation(CheckedSpace, Space[Ints]):
    """Tasks per worker: non-negative integers that sum to the budget.

    An element has shape (n,), or (E, n) with ``rows=E``, and dtype int64; whole floats are no
    elements. A sample is uniform over the C(n + B - 1, B) compositions of B into n parts (stars and
    bars), each row independently, in O(n + B) per row.

    Args:
        n_workers: The number of workers n, at least 1. It is not called ``n``, as RL libraries
            recognise a ``Discrete`` by that name.
        budget: The budget B, at least 1.
        rows: The rows E of the batched space. Without it an element has no row axis.
        seed: The seed of ``sample``.

    Raises:
        ValueError: If a number is no whole number of at least 1.

    Example:
        >>> space = Allocation(3, budget=5, seed=0)
        >>> int(space.sample().sum())
        5
        >>> np.array([5, 0, 0]) in space, np.array([4, 0, 0]) in space
        (True, False)
        >>> np.array([5.0, 0.0, 0.0]) in space
        False
        >>> space.check([1, 1, 1])
        Traceback (most recent call last):
            ...
        ValueError: the tasks must sum to the budget of 5, not to 3
    """

    _shape: tuple[int, ...]
    is_np_flattenable = True
    exact: ClassVar[NDArray[np.bool_]] = np.asarray(True)
    """Whether the sum must be the budget, and no more."""

    def __init__(
        self,
        n_workers: SupportsIndex,
        budget: SupportsIndex,
        rows: SupportsIndex | None = None,
        seed: Seed = None,
    ) -> None:
        self.n_workers = whole_number("n_workers", n_workers)
        self.budget = whole_number("budget", budget)
        if rows is None:
            self.rows = None
        else:
            self.rows = whole_number("rows", rows)
        shape: tuple[int, ...]
        if self.rows is None:
            shape = (self.n_workers,)
        else:
            shape = (self.rows, self.n_workers)
        super().__init__(shape, np.int64, seed)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an element: (n,), or (E, n) for a batch."""
        return self._shape

    def sample(self, mask: None = None, probability: None = None) -> Ints:
        """Draw uniformly, each row independently.

        Raises:
            gymnasium.error.Error: If a mask or a probability is given.
        """
        for name, value in (("mask", mask), ("probability", probability)):
            if value is not None:
                raise gym.error.Error(
                    f"{type(self).__name__}.sample cannot be provided a {name}, actual value:"
                    f" {value}",
                )
        return self._draw()

    def _draw(self) -> Ints:
        out = np.empty(self._shape, dtype=np.int64)
        uniform = self.np_random.random((*self._shape[:-1], self.n_workers - 1 + self.budget))
        _deal(uniform, self.budget, out)
        return out

    def check(self, action: object) -> Ints:
        return checked_tasks(action, self._shape, self.budget, self.exact)

    def to_jsonable(self, sample_n: Iterable[Ints]) -> list[Any]:
        """Turn samples into nested lists of integers."""
        return [sample.tolist() for sample in sample_n]

    def from_jsonable(self, sample_n: Iterable[Any]) -> list[Ints]:
        """Turn nested lists of integers into samples.

        Raises:
            ValueError: For a list that is no element.
        """
        return [self.check(sample) for sample in sample_n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Allocation) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return type(self), self.n_workers, self.budget, self.rows

    def __repr__(self) -> str:
        if self.rows is None:
            rows = ""
        else:
            rows = f", rows={self.rows}"
        return f"{type(self).__name__}({self.n_workers}, {self.budget}{rows})"


class RaceAllocation(Allocation):
    """Tasks per worker in a race: integers from 0 to the budget that sum to at least the budget.

    Parameters, attributes, shapes and errors are the same as in `Allocation`. A sample is uniform,
    each row independently.

    Example:
        >>> space = RaceAllocation(3, budget=5)
        >>> np.array([5, 5, 5]) in space, np.array([5, 0, 0]) in space, np.array([6, 0, 0]) in space
        (True, True, False)
    """

    exact = np.asarray(False)

    def _draw(self) -> Ints:
        # With one worker there is only one element.
        if self.n_workers == 1:
            return np.full(self._shape, self.budget)
        out = self.np_random.integers(0, self.budget, self._shape, endpoint=True)
        # By the symmetry a -> B - a, a uniform vector of [0, B]^n sums to nB/2 >= B or more half of
        # the time.
        while not np.all(legal := _legal(out, self.budget, self.exact)):
            redrawn = self.np_random.integers(0, self.budget, self._shape, endpoint=True)
            out = np.where(np.asarray(legal)[..., None], out, redrawn)
        return out
