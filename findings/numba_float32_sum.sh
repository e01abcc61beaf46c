#!/usr/bin/env bash
# numba 0.68.1, numpy 2.4.6
#
# In compiled code x.sum() and x.mean() of float32 add up one number after the other in float32, where numpy adds in pairs.
# From 2**24 on a one is lost in the sum: the mean of 2**25 ones is a half, without a warning.
# It concerns who moves a loop over float32 (losses, features, pixels) from numpy into numba: give dtype or sum in float64.
. "$(dirname "$0")/fresh.bash"
install numba==0.68.1 numpy==2.4.6

expect "numpy: sum 33554432, mean 1.0
numba: sum 16777216, mean 0.5" <<'PY'
import numba
import numpy as np


@numba.njit
def compiled(x):
    return x.sum(), x.mean()


ones = np.ones(2**25, np.float32)
print(f"numpy: sum {ones.sum():.0f}, mean {ones.mean()}")
total, mean = compiled(ones)
print(f"numba: sum {total:.0f}, mean {mean}")
PY
