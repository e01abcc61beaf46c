"""Aliases for arrays by dtype, whose shapes functions give in their docstrings, and for the names of workers."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bits: TypeAlias = NDArray[np.int8]
Mask: TypeAlias = NDArray[np.bool_]
Keys: TypeAlias = NDArray[np.uint64]  # keys of a counter-based random generator
Index: TypeAlias = Ints | int  # of an episode, a round, a worker or a task
Worker: TypeAlias = str | int
"""The name of a worker."""
