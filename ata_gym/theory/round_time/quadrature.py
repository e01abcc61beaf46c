"""Adaptive quadrature of several monotone functions at once on common nodes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.polynomial import legendre

from ata_gym.typing import Floats

_ORDER = 8  # nodes of a panel
_MOST_HALVINGS = 60  # times that a panel is halved at most
_INSIDE_UNITS = 16  # units in the last place by which the outer nodes are inside their panel


def _lobatto(nodes: int) -> tuple[Floats, Floats]:
    """Nodes and weights of the Gauss-Lobatto rule on [-1, 1]; both ends are nodes."""
    polynomial = legendre.Legendre.basis(nodes - 1)
    inner = np.sort(polynomial.deriv().roots().real)
    places = np.concatenate([[-1.0], inner, [1.0]])
    return places, 2.0 / (nodes * (nodes - 1) * polynomial(places) ** 2)


_NODES, _WEIGHTS = _lobatto(_ORDER)
_LAST_COEFFICIENTS = np.ascontiguousarray(
    np.linalg.inv(legendre.legvander(_NODES, _ORDER - 1))[-2:].T
)
"""The map from values at the nodes to the last two Legendre coefficients, shape (nodes, 2)."""
_ROUGHNESS_FACTOR = 10.0
"""The factor on the error that these coefficients show.

With 3, 18 of 110,000 ramps pass whose error is 10 times the aim.
"""


class Rule(NamedTuple):
    """Weights of the q nodes of a quadrature, and the values of m functions there."""

    weights: Floats
    """The weights of the nodes, shape (q,)."""
    values: Floats
    """The values of the functions at the nodes, shape (m, q)."""
    changes: Floats
    """The change of each function's integral over each panel when it was halved.

    The shape is (m, panels).
    """

    @property
    def integrals(self) -> Floats:
        """The integral of each function, shape (m,)."""
        return np.asarray(self.values @ self.weights)

    @property
    def errors(self) -> Floats:
        """An estimate of the error of each integral, shape (m,): the sum of its changes."""
        return np.asarray(self.changes.sum(axis=1))

    @property
    def error(self) -> float:
        """An estimate of the error of any of the functions: the sum of the largest changes."""
        return float(self.changes.max(axis=0).sum())


def adaptive_rule(
    functions: Callable[[Floats], Floats],
    edges: Floats,
    tolerance: float,
    max_nodes: int = 10**6,
) -> Rule:
    """Gauss-Lobatto quadrature whose panels are halved until it is right for every function.

    The ends and the middle of a panel are nodes. A rule without them, such as Gauss-Legendre, does
    not see a step next to them, since the integrals of the panel and of its halves are wrong by the
    same amount.

    Args:
        functions: Maps times (k,) to values (m, k), each monotone in time; they may have kinks and
            jumps at the ``edges``.
        edges: Edges of the first panels, increasing.
        tolerance: A panel is kept when no integral over it changes by more when it is halved.
        max_nodes: A panel is kept, too, when to halve it would make more nodes than this.
    """
    left = edges[:-1]
    right = edges[1:]
    panel_integrals = _values(functions, left, right)[0]
    finished: list[tuple[Floats, Floats, Floats]] = []
    node_count = 0
    for level in range(_MOST_HALVINGS):
        middle = (left + right) / 2
        lefts = np.stack([left, middle], 1)
        rights = np.stack([middle, right], 1)
        integrals, weights, values = _values(functions, lefts.ravel(), rights.ravel())
        halves = integrals.reshape(len(panel_integrals), -1, 2)
        changes = np.abs(halves.sum(axis=2) - panel_integrals) + _roughness(values, right - left)
        good = changes.max(axis=0) <= tolerance
        # Each panel that is not good would get four halves of halves in the next pass.
        further_nodes = 4 * _ORDER * int(np.sum(~good))
        if level == _MOST_HALVINGS - 1 or node_count + further_nodes > max_nodes:
            good[:] = True
        good_nodes = np.repeat(good, 2 * _ORDER)
        finished.append((weights[good_nodes], values[:, good_nodes], changes[:, good]))
        node_count += int(good_nodes.sum())
        if good.all():
            break
        left = lefts[~good].ravel()
        right = rights[~good].ravel()
        panel_integrals = halves[:, ~good].reshape(len(panel_integrals), -1)
    return Rule(*(np.concatenate(part, axis=-1) for part in zip(*finished, strict=True)))


def _roughness(values: Floats, width: Floats) -> Floats:
    """The error in the halves of panels, shape (m, panels), by the last Legendre coefficients.

    Coefficients of smooth functions fall as a power, and the error of the rule is about the square
    of the last ones. A panel and its halves may agree on a wrong integral by chance, where a step
    or a kink is in one of them; the last coefficients are large then. ``width`` is the width of the
    panels.
    """
    node = values.reshape(-1, _ORDER)
    coefficients = node @ _LAST_COEFFICIENTS
    square = coefficients[:, 0] ** 2 + coefficients[:, 1] ** 2
    rise = np.abs(node[:, -1] - node[:, 0])
    # Where all values are equal the error is 0, and not 0 / 0.
    error = square / np.maximum(rise, np.sqrt(square) + np.finfo(float).tiny)
    halves = error.reshape(len(values), -1, 2)
    both = halves[..., 0] + halves[..., 1]
    return np.asarray(both * (_ROUGHNESS_FACTOR / 4.0 * width))


def _values(
    functions: Callable[[Floats], Floats],
    left: Floats,
    right: Floats,
) -> tuple[Floats, Floats, Floats]:
    """The integrals over some panels, (m, panels), and the weights and values at their nodes."""
    half = (right - left) / 2
    # Where a function jumps at an edge, the value at the end of a panel is the limit from inside,
    # so the outer nodes are a little inside the panel.
    reach = np.maximum(half - _INSIDE_UNITS * np.spacing(right), 0.0)
    nodes = ((left + right) / 2)[:, None] + reach[:, None] * _NODES
    weights = (half[:, None] * _WEIGHTS).ravel()
    values = functions(nodes.ravel())
    integrals = (values * weights).reshape(len(values), -1, _ORDER).sum(axis=2)
    return integrals, weights, values
