"""The action space of dispatch: which workers should be working, for one row or a batch."""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np
from gymnasium.spaces import MultiBinary

from ata_gym.envs.spaces.allocation import Checked, integers, leading_axes, of_row
from ata_gym.typing import Bits
from ata_gym.utils.validation import whole_number

__all__ = ["Dispatch"]

_INT8 = np.dtype(np.int8)


class Dispatch(Checked, MultiBinary):
    """A zero or a one for each worker: Gymnasium's ``MultiBinary`` with a check that says what is wrong.

    ``n``, ``rows`` and ``seed`` are those of ``Allocation``. An element has shape (n,), or (E, n) with ``rows=E``;
    samples are fair coins of dtype int8. Every element is legal at any moment. As in ``MultiBinary``, zeros and ones of
    any dtype are elements: Bernoulli policies give floats.

    Examples
    --------
    >>> space = Dispatch(3)
    >>> np.array([0, 1, 0]) in space, np.array([0.0, 1.0, 0.0]) in space, np.array([0, 2, 0]) in space
    (True, True, False)
    >>> space.check([0, 2, 0])
    Traceback (most recent call last):
        ...
    ValueError: worker 1 must have 0 or 1, not 2
    >>> Dispatch(3, rows=256).shape
    (256, 3)
    """

    def __init__(
        self,
        n: SupportsIndex,
        rows: SupportsIndex | tuple[SupportsIndex, ...] | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        workers = whole_number("n", n)
        leading = leading_axes(rows)
        super().__init__((*leading, workers) if leading else workers, seed)

    def check(self, action: object) -> Bits:
        """The action as int8; see ``Checked``."""
        if type(action) is np.ndarray and action.dtype.kind in "bf" and np.isin(action, (0, 1)).all():
            action = action.astype(_INT8)
        given = integers(action, self.shape)
        if np.count_nonzero(given >> 1):
            at = tuple(int(i) for i in np.argwhere(given >> 1)[0])
            raise ValueError(f"worker {at[-1]}{of_row(at[:-1])} must have 0 or 1, not {given[at]}")
        return given.astype(_INT8, copy=False)

    def __repr__(self) -> str:
        *rows, n = self.shape
        batch = "" if not rows else f", rows={rows[0] if len(rows) == 1 else tuple(rows)}"
        return f"{type(self).__name__}({n}{batch})"
