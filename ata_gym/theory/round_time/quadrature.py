"""Adaptive quadrature of several monotone functions at once on common nodes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.polynomial import legendre

from ata_gym.typing import Floats

_ORDER = 8  # nodes of a panel
_LEVELS = 60
_INSIDE = 16  # units in the last place by which the outer nodes are inside their panel


def _lobatto(nodes: int) -> tuple[Floats, Floats]:
    """Nodes and weights of the Gauss-Lobatto rule on [-1, 1], which has both ends among its nodes."""
    polynomial = legendre.Legendre.basis(nodes - 1)
    inner = np.sort(polynomial.deriv().roots().real)
    places = np.concatenate([[-1.0], inner, [1.0]])
    return places, 2.0 / (nodes * (nodes - 1) * polynomial(places) ** 2)


_NODES, _WEIGHTS = _lobatto(_ORDER)
_LAST = np.ascontiguousarray(np.linalg.inv(legendre.legvander(_NODES, _ORDER - 1))[-2:].T)
"""(nodes, 2) From values at the nodes to the last two Legendre coefficients."""
_ROUGH = 10.0  # times the error that these coefficients show; with 3, 18 of 110,000 ramps pass whose error is 10 aims


class Rule(NamedTuple):
    """Weights of the nodes of a quadrature, and the functions there."""

    weights: Floats
    """(q,)"""
    values: Floats
    """(m, q)"""
    changes: Floats
    """(m, panels) By how much the integral of each function over each panel changed when the panel was halved."""

    @property
    def integrals(self) -> Floats:
        """The integral of each function, (m,)."""
        return np.asarray(self.values @ self.weights)

    @property
    def errors(self) -> Floats:
        """An estimate of the error of each function's integral, (m,): its changes added up."""
        return np.asarray(self.changes.sum(axis=1))

    @property
    def error(self) -> float:
        """An estimate of the error of any function of these: the largest changes added up."""
        return float(self.changes.max(axis=0).sum())


def adaptive_rule(functions: Callable[[Floats], Floats], edges: Floats, tolerance: float, most: int = 10**6) -> Rule:
    """Gauss-Lobatto quadrature whose panels are halved until it is right for every function.

    ``functions`` maps times (k,) to values (m, k), each monotone in time, and may have kinks and jumps at the ``edges``
    of the first panels. A panel is kept when no integral over it changes by more than ``tolerance`` when it is halved,
    or when that would make more than ``most`` nodes. The ends and the middle of a panel are nodes: a rule without them,
    such as that of Gauss, does not see a step next to them, since the integrals of the panel and of its halves are
    wrong by the same amount.
    """
    left, right = edges[:-1], edges[1:]
    whole = _values(functions, left, right)[0]
    done: list[tuple[Floats, Floats, Floats]] = []
    kept = 0
    for level in range(_LEVELS):
        middle = (left + right) / 2
        lefts, rights = np.stack([left, middle], 1), np.stack([middle, right], 1)
        integrals, weights, values = _values(functions, lefts.ravel(), rights.ravel())
        halves = integrals.reshape(len(whole), -1, 2)
        changes = np.abs(halves.sum(axis=2) - whole) + _roughness(values, right - left)
        good = changes.max(axis=0) <= tolerance
        if level == _LEVELS - 1 or kept + 4 * _ORDER * int(np.sum(~good)) > most:
            good[:] = True
        mine = np.repeat(good, 2 * _ORDER)
        done.append((weights[mine], values[:, mine], changes[:, good]))
        kept += int(mine.sum())
        if good.all():
            break
        left, right = lefts[~good].ravel(), rights[~good].ravel()
        whole = halves[:, ~good].reshape(len(whole), -1)
    return Rule(*(np.concatenate(part, axis=-1) for part in zip(*done, strict=True)))


def _roughness(values: Floats, width: Floats) -> Floats:
    """The error in the halves of panels of this width, (m, panels), by the last Legendre coefficients there.

    Coefficients of smooth functions fall as a power, and the error of the rule is about the square of the last ones. A
    panel and its halves may agree on a wrong integral by chance, where a step or a kink is in one of them; the last
    coefficients are large then.
    """
    node = values.reshape(-1, _ORDER)
    last = node @ _LAST
    square = last[:, 0] ** 2 + last[:, 1] ** 2
    error = square / np.maximum(np.abs(node[:, -1] - node[:, 0]), np.sqrt(square) + np.finfo(float).tiny)
    halves = error.reshape(len(values), -1, 2)
    return np.asarray((halves[..., 0] + halves[..., 1]) * (_ROUGH / 4.0 * width))


def _values(functions: Callable[[Floats], Floats], left: Floats, right: Floats) -> tuple[Floats, Floats, Floats]:
    half = (right - left) / 2
    # where a function jumps at an edge, its value at the end of a panel is the limit from inside
    reach = np.maximum(half - _INSIDE * np.spacing(right), 0.0)
    nodes = ((left + right) / 2)[:, None] + reach[:, None] * _NODES
    weights = (half[:, None] * _WEIGHTS).ravel()
    values = functions(nodes.ravel())
    integrals = (values * weights).reshape(len(values), -1, _ORDER).sum(axis=2)
    return integrals, weights, values
