"""How much the times of each worker vary: the shape that gamma times of their mean and variance have."""

from __future__ import annotations

from ata_gym.compiled import gufunc
from ata_gym.simulation import Floats
from ata_policies.beliefs import Moments


def learn_shapes(belief: Moments, weight: float) -> Floats:
    """Estimate the shape of each worker's times, shape (E, n): 1 / (coefficient of variation)^2, shrunk to the others'.

    With K_i tasks of mean m_i and q_i their summed squared deviations from m_i, over m_i^2:

        common = (1 + sum_i q_i) / (1 + sum_i (K_i - 1)),
        shape_i = (w + K_i - 1) / (w common + q_i),

    where the sums are over workers with at least one task. So one pseudo-task says "exponential" (shape 1), and
    ``weight`` w pseudo-tasks say "like the others". Ours; the method of moments.

    >>> import numpy as np
    >>> belief = Moments.empty(1, 2).observe(np.array([[0, 0, 0]]), np.array([[1.0, 2.0, 3.0]]))
    >>> learn_shapes(belief, 1.0)  # q = 0.5, common = 1.5 / 3
    array([[3., 2.]])
    """
    shapes: Floats = _shapes(belief.counts, belief.totals, belief.squares, weight)
    return shapes


@gufunc("void(float64[:], float64[:], float64[:], float64[:], float64[:])", "(n),(n),(n),()->(n)")
def _shapes(count: Floats, total: Floats, square: Floats, weight: Floats, out: Floats) -> None:
    spread, tasks = 1.0, 1.0
    for i in range(len(count)):
        some = total[i] > 0.0
        ratio = count[i] / (total[i] if some else 1.0)
        out[i] = max(ratio * ratio * square[i] - count[i], 0.0) if some else 0.0
        spread += out[i]
        tasks += max(count[i] - 1.0, 0.0)
    common = spread / tasks
    for i in range(len(count)):
        out[i] = (weight[0] + max(count[i] - 1.0, 0.0)) / (weight[0] * common + out[i])
