#!/usr/bin/env bash
# numpy 2.4.6 and 2.5.5, Python 3.12 or newer (2.5.5 has no wheel for 3.11)
#
# What is inside the public alias numpy.typing.NDArray[np.int64] differs: get_args gives the shape and a dtype in 2.4, the
# scalar type alone in 2.5. Code that reads dtypes out of annotations in this way, as validators and compilers do, fails with
# IndexError from 2.5 on; a table from the alias itself to its dtype works in both, since equal aliases are equal keys.
. "$(dirname "$0")/fresh.bash"
program='
from typing import get_args

import numpy as np
from numpy.typing import NDArray

table = {NDArray[np.int64]: "int64"}
print(np.__version__, get_args(NDArray[np.int64]), table[NDArray[np.int64]])
'
install numpy==2.4.6
expect "2.4.6 (tuple[typing.Any, ...], numpy.dtype[numpy.int64]) int64" <<< "$program"
install numpy==2.5.5
expect "2.5.5 (<class 'numpy.int64'>,) int64" <<< "$program"
