"""The action space of dispatch: which workers should be working."""

from typing import SupportsIndex

import numpy as np
from gymnasium.spaces import MultiDiscrete

from ata_gym.envs.spaces.allocation import CheckedSpace, Seed, integers
from ata_gym.typing import Bits
from ata_gym.utils.validation import whole_number

_INT8 = np.dtype(np.int8)


def checked_dispatch(action: object, shape: tuple[int, ...]) -> Bits:
    """The action as int8 zeros and ones of this shape, (n,) or (E, n).

    They may be of any dtype, as in ``MultiDiscrete``: Bernoulli policies give floats.

    Raises:
        ValueError: If the action is not legal; the message says what is wrong.
    """
    if type(action) is np.ndarray and action.dtype.kind in "bf" and np.isin(action, (0, 1)).all():
        action = action.astype(_INT8)
    array = integers(action, shape)
    # The bits above the lowest one are all 0 in 0 and 1 alone.
    if np.count_nonzero(array >> 1):
        index = tuple(int(i) for i in np.argwhere(array >> 1)[0])
        row_text = "".join(f" of row {row}" for row in index[:-1])
        raise ValueError(f"worker {index[-1]}{row_text} must have 0 or 1, not {array[index]}")
    return array.astype(_INT8, copy=False)


class Dispatch(CheckedSpace, MultiDiscrete):
    """A zero or a one for each of n workers, with a check that says what is wrong.

    An element has shape (n,), and every element is legal at any moment. Gymnasium's functions batch
    and flatten the space as they do ``MultiDiscrete``, so that RL libraries take it.

    Args:
        n_workers: The number of workers n.
        seed: The seed of ``sample``.

    Example:
        >>> space = Dispatch(3)
        >>> np.array([0, 1, 0]) in space, np.array([0.0, 1.0, 0.0]) in space
        (True, True)
        >>> np.array([0, 2, 0]) in space
        False
    """

    def __init__(self, n_workers: SupportsIndex, seed: Seed = None) -> None:
        self.n_workers = whole_number("n_workers", n_workers)
        super().__init__(np.full(self.n_workers, 2, np.int64), seed=seed)

    def check(self, action: object) -> Bits:
        return checked_dispatch(action, self.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_workers})"
