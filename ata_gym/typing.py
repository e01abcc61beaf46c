"""Aliases for arrays by dtype, and for the names of workers.

The docstring of a function gives the shapes of its arrays.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
"""An array of float64."""
Floats32: TypeAlias = NDArray[np.float32]
"""An array of float32."""
Ints: TypeAlias = NDArray[np.int64]
"""An array of int64."""
Ints32: TypeAlias = NDArray[np.int32]
"""An array of int32."""
Bits: TypeAlias = NDArray[np.int8]
"""An array of int8."""
Mask: TypeAlias = NDArray[np.bool_]
"""An array of bool."""
Keys: TypeAlias = NDArray[np.uint64]
"""An array of keys of a counter-based random generator, uint64."""

DTYPES: Mapping[Any, np.dtype[Any]] = {
    Floats: np.dtype(np.float64),
    Floats32: np.dtype(np.float32),
    Ints: np.dtype(np.int64),
    Ints32: np.dtype(np.int32),
    Bits: np.dtype(np.int8),
    Mask: np.dtype(np.bool_),
    Keys: np.dtype(np.uint64),
}
"""The dtype that each alias above stands for.

No alias is taken apart to find it, since what is inside an alias depends on the version of numpy.
"""

Index: TypeAlias = Ints | int
"""The number of an episode, a round, a worker or a task, or an array of them."""
Worker: TypeAlias = str | int
"""The name of a worker."""
