"""Adaptive quadrature of several functions at once on common nodes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.polynomial import legendre

from ata_gym.typing import Floats

_NODES, _WEIGHTS = legendre.leggauss(8)
_LEVELS = 60


class Rule(NamedTuple):
    """Weights of the nodes of a quadrature, and the functions there."""

    weights: Floats  # (q,)
    values: Floats  # (m, q)
    error: float  # sum over the panels of the largest difference between a panel's integral and that of its halves


def adaptive_rule(functions: Callable[[Floats], Floats], edges: Floats, tolerance: float, most: int = 10**6) -> Rule:
    """Gauss-Legendre quadrature whose panels are halved until it is right for every function.

    ``functions`` maps times (k,) to values (m, k), and may have kinks and jumps at the ``edges`` of the first panels. A
    panel is kept when no integral over it changes by more than ``tolerance`` when it is halved, or when that would make
    more than ``most`` nodes.
    """
    left, right = edges[:-1], edges[1:]
    whole = _values(functions, left, right)[0]
    done: list[tuple[Floats, Floats]] = []
    kept, error = 0, 0.0
    for level in range(_LEVELS):
        middle = (left + right) / 2
        lefts, rights = np.stack([left, middle], 1), np.stack([middle, right], 1)
        integrals, weights, values = _values(functions, lefts.ravel(), rights.ravel())
        halves = integrals.reshape(len(whole), -1, 2)
        change = np.abs(halves.sum(axis=2) - whole).max(axis=0)
        good = change <= tolerance
        if level == _LEVELS - 1 or kept + 4 * _NODES.size * int(np.sum(~good)) > most:
            good[:] = True
        mine = np.repeat(good, 2 * _NODES.size)
        done.append((weights[mine], values[:, mine]))
        kept += int(mine.sum())
        error += float(change[good].sum())
        if good.all():
            break
        left, right = lefts[~good].ravel(), rights[~good].ravel()
        whole = halves[:, ~good].reshape(len(whole), -1)
    all_weights, all_values = (np.concatenate(part, axis=-1) for part in zip(*done, strict=True))
    return Rule(all_weights, all_values, error)


def _values(functions: Callable[[Floats], Floats], left: Floats, right: Floats) -> tuple[Floats, Floats, Floats]:
    half = ((right - left) / 2)[:, None]
    nodes = (left[:, None] + half * (1.0 + _NODES)).ravel()
    weights = (half * _WEIGHTS).ravel()
    values = functions(nodes)
    integrals = (values * weights).reshape(len(values), -1, _NODES.size).sum(axis=2)
    return integrals, weights, values
