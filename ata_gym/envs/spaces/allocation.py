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
_LARGEST = 2**62  # the largest n and budget: their sum still fits in an int64

Seed: TypeAlias = int | np.random.Generator | None


@kernel("(n),(),()->()")
def _legal(action: Ints, budget: Ints, exact: Mask, out: Mask) -> None:
    """Whether an allocation is legal. It counts down from the budget, so that no sum can overflow."""
    left, legal = budget[0], True
    for tasks in action:
        if tasks < 0 or tasks > (left if exact[0] else budget[0]):
            legal = False
            break
        left = max(left - tasks, 0)
    out[0] = legal and left == 0


@kernel("(m),(),(n)", writable=(2,))
def _deal(uniform: Floats, budget: Ints, out: Ints) -> None:
    """Stars and bars: each of n + budget - 1 places is a bar with probability (bars left) / (places left)."""
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


def of_shape(action: object, shape: tuple[int, ...]) -> NDArray[Any]:
    """The action as an array; ValueError unless it has this shape."""
    try:
        given = np.asarray(action)
    except Exception as error:
        raise ValueError(f"the action must be an array of shape {shape}: {error}") from error
    if given.shape != shape:
        raise ValueError(f"the action must have shape {shape}, not {given.shape}")
    return given


def integers(action: object, shape: tuple[int, ...]) -> NDArray[np.integer[Any]]:
    """The action as an array of integers of this shape; ValueError if it is none."""
    given = of_shape(action, shape)
    if given.dtype.kind not in "iu":
        raise ValueError(f"the action must have an integer dtype such as int64, not {given.dtype}")
    return given


def checked_tasks(action: object, shape: tuple[int, ...], budget: int, exact: NDArray[np.bool_]) -> Ints:
    """The action as int64 of this shape, (n,) or (E, n), not copied where it is that already.

    ValueError, which says what is wrong, unless tasks are from 0 to the budget and sum to it, or to more if not exact.
    """
    if type(action) is np.ndarray and action.dtype is _INT64 and action.shape == shape:
        array = action
    else:
        given = integers(action, shape)
        if given.dtype.kind == "u":  # a number beyond int64 must not wrap around: it stays above any budget
            given = np.minimum(given, np.uint64(_LARGEST + 1))
        array = given.astype(np.int64)
    legal = _legal(array, budget, exact)
    if not (legal.all() if len(shape) > 1 else legal):
        raise ValueError(_complaint(np.asarray(action), np.asarray(legal), budget, bool(exact)))
    return array


def _complaint(action: NDArray[np.integer[Any]], legal: Mask, budget: int, exact: bool) -> str:
    row = tuple(np.argwhere(~legal)[0])  # () where there is one row only
    tasks, where = action[row].tolist(), "".join(f" of row {one}" for one in row)
    for worker, (own, total) in enumerate(zip(tasks, accumulate(tasks), strict=True)):
        if not 0 <= own <= budget:
            right = "0 or more tasks" if own < 0 else f"at most {budget} tasks, the budget"
            return f"worker {worker}{where} must have {right}, not {own}"
        if exact and total > budget:
            break
    return f"the tasks{where} must sum to {'' if exact else 'at least '}the budget of {budget}, not to {sum(tasks)}"


class Checked:
    """A space with a check that says what is wrong."""

    def check(self, action: object) -> Any:
        """The action as an array of the space's shape and dtype, not copied where it is one already.

        ValueError if it is no element of the space; the message says what is wrong.
        """
        raise NotImplementedError

    def contains(self, x: object) -> bool:
        """Whether ``check`` accepts ``x``."""
        try:
            self.check(x)
        except ValueError:
            return False
        return True


class Allocation(Checked, Space[Ints]):
    """Tasks per worker: non-negative integers that sum to the budget.

    - ``n_workers``, ``budget``: how many workers n, and the budget B, whole numbers of at least 1. Their number is not
      called ``n``, as that is how RL libraries recognise a ``Discrete``.
    - ``rows``: rows E of the batched space. Without it an element has no row axis.
    - ``seed``: seeds ``sample``.

    An element has shape (n,), or (E, n) with ``rows=E``, and dtype int64; whole floats are no elements. A sample is
    uniform over the C(n + B - 1, B) compositions of B into n parts (stars and bars), each row independently, in
    O(n + B) per row.

    >>> space = Allocation(3, budget=5, seed=0)
    >>> int(space.sample().sum())
    5
    >>> np.array([5, 0, 0]) in space, np.array([5.0, 0.0, 0.0]) in space, np.array([4, 0, 0]) in space
    (True, False, False)
    >>> space.check([1, 1, 1])
    Traceback (most recent call last):
        ...
    ValueError: the tasks must sum to the budget of 5, not to 3
    """

    _shape: tuple[int, ...]
    is_np_flattenable = True
    exact: ClassVar[NDArray[np.bool_]] = np.asarray(True)  # whether the sum must be the budget, and no more

    def __init__(
        self, n_workers: SupportsIndex, budget: SupportsIndex, rows: SupportsIndex | None = None, seed: Seed = None
    ) -> None:
        self.n_workers, self.budget = whole_number("n_workers", n_workers), whole_number("budget", budget)
        self.rows = None if rows is None else whole_number("rows", rows)
        shape = (self.n_workers,) if self.rows is None else (self.rows, self.n_workers)
        super().__init__(shape, np.int64, seed)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an element: (n,), or (E, n) for a batch."""
        return self._shape

    def sample(self, mask: None = None, probability: None = None) -> Ints:
        """Draw uniformly, each row independently; gymnasium.error.Error if a mask or a probability is given."""
        for name, value in (("mask", mask), ("probability", probability)):
            if value is not None:
                raise gym.error.Error(
                    f"{type(self).__name__}.sample cannot be provided a {name}, actual value: {value}"
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
        """Turn nested lists of integers into samples; a list that is no element raises ValueError."""
        return [self.check(sample) for sample in sample_n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Allocation) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return type(self), self.n_workers, self.budget, self.rows

    def __repr__(self) -> str:
        rows = "" if self.rows is None else f", rows={self.rows}"
        return f"{type(self).__name__}({self.n_workers}, {self.budget}{rows})"


class RaceAllocation(Allocation):
    """Tasks per worker in a race: integers from 0 to the budget that sum to at least the budget.

    Parameters, attributes, shapes and errors are those of `Allocation`. A sample is uniform, each row independently.

    >>> space = RaceAllocation(3, budget=5)
    >>> np.array([5, 5, 5]) in space, np.array([5, 0, 0]) in space, np.array([6, 0, 0]) in space
    (True, True, False)
    """

    exact = np.asarray(False)

    def _draw(self) -> Ints:
        if self.n_workers == 1:  # the only element
            return np.full(self._shape, self.budget)
        out = self.np_random.integers(0, self.budget, self._shape, endpoint=True)
        # By the symmetry a -> B - a, a uniform vector of [0, B]^n sums to nB/2 >= B or more half of the time.
        while not np.all(legal := _legal(out, self.budget, self.exact)):
            again = self.np_random.integers(0, self.budget, self._shape, endpoint=True)
            out = np.where(np.asarray(legal)[..., None], out, again)
        return out
