"""The action space of dispatch: which workers should be working."""

from typing import SupportsIndex

import numpy as np
from gymnasium.spaces import MultiDiscrete

from ata_gym.envs.spaces.allocation import Checked, Seed, integers
from ata_gym.typing import Bits
from ata_gym.utils.validation import whole_number

_INT8 = np.dtype(np.int8)


def checked_dispatch(action: object, shape: tuple[int, ...]) -> Bits:
    """The action as zeros and ones of this shape, (n,) or (E, n), as int8; ValueError that says what is wrong.

    They may be of any dtype, as in ``MultiDiscrete``: Bernoulli policies give floats.
    """
    if type(action) is np.ndarray and action.dtype.kind in "bf" and np.isin(action, (0, 1)).all():
        action = action.astype(_INT8)
    given = integers(action, shape)
    if np.count_nonzero(given >> 1):
        at = tuple(int(i) for i in np.argwhere(given >> 1)[0])
        where = "".join(f" of row {row}" for row in at[:-1])
        raise ValueError(f"worker {at[-1]}{where} must have 0 or 1, not {given[at]}")
    return given.astype(_INT8, copy=False)


class Dispatch(Checked, MultiDiscrete):
    """A zero or a one for each of n workers: Gymnasium's ``MultiDiscrete`` with a check that says what is wrong.

    ``n_workers`` is n. An element has shape (n,); every element is legal at any moment. Gymnasium's functions batch and
    flatten it as they do ``MultiDiscrete``, so that RL libraries take it.

    >>> space = Dispatch(3)
    >>> np.array([0, 1, 0]) in space, np.array([0.0, 1.0, 0.0]) in space, np.array([0, 2, 0]) in space
    (True, True, False)
    """

    def __init__(self, n_workers: SupportsIndex, seed: Seed = None) -> None:
        self.n_workers = whole_number("n_workers", n_workers)
        super().__init__(np.full(self.n_workers, 2, np.int64), seed=seed)

    def check(self, action: object) -> Bits:
        return checked_dispatch(action, self.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_workers})"
