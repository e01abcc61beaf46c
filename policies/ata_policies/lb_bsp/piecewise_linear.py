"""The time max(t, a + b x) that a worker takes for x tasks: fitted to measured times, and balanced in integers.

The time of a GPU over the batch is piecewise linear (Chen et al., LB-BSP poster, SoCC 2018): flat until the device is
full, then rising. The fit and the integer optimum are ours.
"""

import numpy as np

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import helper, kernel

_GAIN = 0.5  # a flat part must halve the squared error of the line alone


@helper()
def _fill(flat: Floats, intercept: Floats, slope: Floats, most: Ints, level: float, out: Ints) -> int:
    """Set ``out`` to the most tasks that each worker does within ``level``, and return their sum."""
    total = 0
    for i in range(len(out)):
        out[i] = 0
        if level >= flat[i] and level >= intercept[i] + slope[i]:
            x = np.int64(min((level - intercept[i]) / slope[i], float(most[i])))
            while x > 0 and intercept[i] + slope[i] * x > level:
                x -= 1
            while x < most[i] and intercept[i] + slope[i] * (x + 1) <= level:
                x += 1
            out[i] = x
        total += out[i]
    return total


@kernel("(n),(n),(n),(n),()->(n)")
def balanced(flat: Floats, intercept: Floats, slope: Floats, most: Ints, budget: Ints, out: Ints) -> None:
    """The integers x that minimise the longest max(t_i, a_i + b_i x_i) of those with x_i > 0, and sum to the budget.

    The level of time is found by bisection; the tasks that are left then go, one at a time, to the worker that would
    finish first. x_i = 0 takes no time. t, a, b > 0 and ``most``, bounds of x that together hold the budget, have shape
    (..., n).
    """
    low, high = 0.0, 0.0
    for i in range(len(out)):
        high = max(high, flat[i], intercept[i] + slope[i] * most[i])
    level = 0.5 * high
    while low < level < high:
        if _fill(flat, intercept, slope, most, level, out) <= budget[0]:
            low = level
        else:
            high = level
        level = 0.5 * (low + high)
    left = budget[0] - _fill(flat, intercept, slope, most, low, out)
    while left > 0:
        first, soonest = -1, np.inf
        for i in range(len(out)):
            ready = max(flat[i], intercept[i] + slope[i] * (out[i] + 1))
            if out[i] < most[i] and ready < soonest:
                first, soonest = i, ready
        out[first] += 1
        left -= 1


def fitted(sizes: Floats, times: Floats, rounds: Floats) -> tuple[Floats, Floats, Floats]:
    """Fit max(t, a + b x) by least squares to m measured points of each worker: t, a and b, of shape (..., n).

    A line with a >= 0, or a flat part over the smallest sizes and a line over the others, if that halves the squared
    error. A worker that was never measured counts as the mean of the others. The sizes and times of a point are added
    up over its ``rounds``, shape (..., n, m).
    """
    number = np.maximum(rounds, 1.0)
    x, y = sizes / number, times / number
    order = np.argsort(np.where(rounds > 0, x, np.inf), axis=-1, kind="stable")
    x, y = np.take_along_axis(x, order, -1), np.take_along_axis(y, order, -1)
    t, a, b = _fit(x, y, (rounds > 0).sum(axis=-1))
    known = b > 0.0
    mean = b.sum(axis=-1, keepdims=True) / np.maximum(known.sum(axis=-1, keepdims=True), 1)
    return t, a, np.where(known, b, np.where(mean > 0.0, mean, 1.0))


@kernel("(m),(m),()->(),(),()")
def _fit(x: Floats, y: Floats, points: Ints, t: Floats, a: Floats, b: Floats) -> None:
    m = points[0]
    t[0], a[0], b[0] = 0.0, 0.0, 0.0
    square, product = 0.0, 0.0
    for k in range(m):
        square += x[k] * x[k]
        product += x[k] * y[k]
    if m == 0 or product <= 0.0:
        return
    origin = product / square  # where no line rises
    best = np.inf
    for flat in range(max(m - 1, 1)):  # points of the flat part
        level, mean_x, mean_y, spread, slope = 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range(flat):
            level += y[k] / flat
        for k in range(flat, m):
            mean_x += x[k] / (m - flat)
            mean_y += y[k] / (m - flat)
        for k in range(flat, m):
            spread += (x[k] - mean_x) ** 2
            slope += (x[k] - mean_x) * (y[k] - mean_y)
        rises = slope > 0.0
        if rises:
            slope /= spread
        intercept = mean_y - slope * mean_x
        if flat == 0 and (intercept < 0.0 or not rises):
            slope, intercept = origin, 0.0
        elif not rises:
            continue
        error = 0.0
        for k in range(m):
            error += (y[k] - max(level, intercept + slope * x[k])) ** 2
        if error < best:
            best = error * (_GAIN if flat == 0 else 1.0)
            t[0], a[0], b[0] = level, intercept, slope
