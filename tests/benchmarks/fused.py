"""The bare arithmetic of ATA on shifted exponential times, fused by hand, to measure the env and
the policy against.

It keeps no promises: numba's own generator, so no pairing; no feedback recorded; no checks; one
family; one row after the other.
"""

import math

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit
def run(mean: NDArray[np.float64], budget: int, rounds: int, absolute: float, seed: int) -> float:
    """Play ``rounds`` rounds of ATA with radius ``absolute`` f, and return the runtime."""
    np.random.seed(seed)  # noqa: NPY002 - numba's generator
    n = len(mean)
    counts = np.zeros(n)
    totals = np.zeros(n)
    scores = np.zeros(n)
    allocation = np.zeros(n, np.int64)
    order = np.arange(n)
    runtime = 0.0
    for k in range(1, rounds + 1):
        level = math.log(2.0 * k * k)
        zeros = 0
        for i in range(n):
            scores[i] = 0.0
            if counts[i] > 0:
                ratio = level / counts[i]
                scores[i] = max(totals[i] / counts[i] - absolute * (math.sqrt(ratio) + ratio), 0.0)
            zeros += scores[i] == 0.0
            allocation[i] = 0
        if zeros == n:
            for b in range(budget):
                other = b + np.random.randint(n - b)  # noqa: NPY002
                order[b], order[other] = order[other], order[b]
                allocation[order[b]] = 1
        else:
            for _ in range(budget):
                best = 0
                for i in range(1, n):
                    if (allocation[i] + 1) * scores[i] < (allocation[best] + 1) * scores[best]:
                        best = i
                allocation[best] += 1
        longest = 0.0
        for i in range(n):
            busy = 0.0
            for _ in range(allocation[i]):
                x = 0.5 * mean[i] * (1.0 - math.log(1.0 - np.random.random()))  # noqa: NPY002
                busy += x
                counts[i] += 1.0
                totals[i] += x
            longest = max(longest, busy)
        runtime += longest
    return runtime
