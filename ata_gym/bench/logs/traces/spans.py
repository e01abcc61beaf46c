"""Spans of time as arrays: which points they cover, and how long some of them overlap."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats


class Spans(NamedTuple):
    """Spans of time; they may overlap."""

    starts: Floats
    """(K,)"""
    ends: Floats
    """(K,)"""

    def merged(self) -> "Spans":
        """Return the spans of all times that are in some of these; none touch, all in order.

        Example:
            >>> merged = Spans(np.array([5.0, 0.0, 1.0]), np.array([6.0, 2.0, 3.0])).merged()
            >>> merged.starts.tolist(), merged.ends.tolist()
            ([0.0, 5.0], [3.0, 6.0])
        """
        order = np.argsort(self.starts, kind="stable")
        starts = self.starts[order]
        ends: Any = np.maximum.accumulate(self.ends[order])
        first = np.ones(len(starts), dtype=bool)
        first[1:] = starts[1:] > ends[:-1]
        last = np.append(first[1:], True)[: len(starts)]
        return Spans(starts[first], ends[last])

    def cover(self, points: Floats) -> Any:
        """Return whether each point, (P,), is inside a span.

        Example:
            >>> spans = Spans(np.array([0.0, 5.0]), np.array([2.0, 6.0]))
            >>> spans.cover(np.array([1.0, 3.0])).tolist()
            [True, False]
        """
        # more spans have begun before it than have ended
        begun = np.searchsorted(np.sort(self.starts), points, side="right")
        return begun > np.searchsorted(np.sort(self.ends), points, side="right")


def joined(parts: Sequence[Spans]) -> Spans:
    """Return the spans of all parts together."""
    starts = np.concatenate([part.starts for part in parts])
    return Spans(starts, np.concatenate([part.ends for part in parts]))


def overlap_until(points: Floats, inside: Sequence[Spans], outside: Spans) -> Floats:
    """Return how long, before each point, the times are that are in all spans but not in others.

    Args:
        points: (P,)
        inside: The spans that such a time is in, each.
        outside: The spans that it is not in.

    Example:
        >>> early = Spans(np.array([0.0]), np.array([9.0]))
        >>> late = Spans(np.array([4.0]), np.array([20.0]))
        >>> outside = Spans(np.array([6.0]), np.array([7.0]))
        >>> overlap_until(np.array([3.0, 5.0, 30.0]), [early, late], outside).tolist()
        [0.0, 1.0, 4.0]
    """
    every = joined([*inside, outside])
    edges = np.unique(np.concatenate([every.starts, every.ends, points]))
    if len(edges) == 0:
        return np.zeros(0)
    # between two edges nothing begins or ends: the middle stands for all of it
    middles = (edges[1:] + edges[:-1]) / 2
    counts = ~outside.cover(middles)
    for spans in inside:
        counts &= spans.cover(middles)
    lengths = np.concatenate([[0.0], np.cumsum(np.diff(edges) * counts)])
    return lengths[np.searchsorted(edges, points)]
