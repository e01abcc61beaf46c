"""Branch and bound over allocations, on a table of what every number of tasks does to every worker."""

import heapq
from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from ata_gym.theory.optimal.table import SLACK, Table
from ata_gym.typing import Floats, Ints

NODES = 50_000  # nodes of the search tree that are opened at most
_LARGEST = 2**25  # numbers in the table of bounds: 256 MiB
_MOST_WORK = 5 * 10**9  # numbers that are computed for the bounds; with more, nothing is searched
_DONORS = 10  # workers that give a task in a local search: those that delay most
_TRIALS = 3  # workers to which the first of two tasks is given: those where it costs least


class Proof(NamedTuple):
    """What a search found: no allocation is better than ``lower`` by more than ``SLACK`` times ``value``."""

    allocation: Ints
    value: float
    lower: float


class _Node(NamedTuple):
    """The first workers are decided; nodes are ordered by bound, then the deepest first."""

    bound: float
    depth: int  # the negative number of workers decided
    serial: int
    before: tuple[int, ...]  # tasks of the workers decided before the last; shared by the nodes that differ in that one
    tasks: int
    left: int  # tasks of the worker decided last, and those for the workers that are not decided


def improve(table: Table, allocation: Ints) -> Ints:
    """Local search: move one task, or two where one does not help, while the round time falls."""
    best, value, size = allocation, table.value(allocation), 1
    while size <= 2:
        move = _best_move(table, best, size)
        if move is not None and move[0] < value * (1 - SLACK):
            (value, best), size = move, 1
        else:
            size += 1
    return best


def _best_move(table: Table, allocation: Ints, size: int) -> tuple[float, Ints] | None:
    removed = _each(table, allocation, -1)
    donors = np.argsort(removed, kind="stable")[: min(_DONORS // size, int(np.isfinite(removed).sum()))]
    groups = combinations_with_replacement(donors.tolist(), size)
    reduced = (allocation - np.bincount(group, minlength=allocation.size) for group in groups)
    moves = (move for rest in reduced if rest.min() >= 0 for move in _give(table, rest, size))
    return min(moves, key=lambda move: move[0], default=None)


def _give(table: Table, allocation: Ints, size: int) -> Iterator[tuple[float, Ints]]:
    added = _each(table, allocation, 1)
    for j in np.argsort(added, kind="stable")[: _TRIALS if size > 1 else 1]:
        if np.isfinite(added[j]):
            more = allocation + np.bincount([j], minlength=allocation.size)
            if size == 1:
                yield float(added[j]), more
            else:
                yield from _give(table, more, size - 1)


def _each(table: Table, allocation: Ints, change: int) -> Floats:
    """Round times when one worker's tasks change, shape (m,); inf where they cannot."""
    rows = table.places(allocation)
    busy = np.flatnonzero(allocation)
    own, blank = table.rows[rows[busy]], np.full((1, table.weights.size), table.unit)
    before = table.combine.accumulate(np.concatenate([blank, own]))
    after = table.combine.accumulate(np.concatenate([blank, own[:0:-1]]))[::-1]
    apart = np.tile(before[-1], (allocation.size, 1))
    apart[busy] = table.combine(before[:-1], after)
    changed = allocation + change
    possible = (changed >= 0) & (changed <= table.most)
    new = table.places(np.where(possible, changed, allocation))
    others = table.tails[rows].sum() - table.tails[rows]
    values = table.values(table.combine(apart, table.rows[new]), others + table.tails[new])
    return np.where(possible, values, np.inf)


def branch_and_bound(table: Table, budget: int, start: Ints) -> Proof:
    """Find the allocation of ``budget`` tasks with the least round time, or a bound on it.

    Workers are decided one after the other, the node of the least bound first. The bound of a node: at every time (or
    in every round) of the table, the tasks that are left may have the allocation that is best there, found by dynamic
    programming. Where the table of these would be too large, only the bound of the root is found, or none.
    """
    best, value = start, table.value(start)
    work = int(table.most.sum()) * budget * table.weights.size
    if work > _MOST_WORK:
        return Proof(best, value, 0.0)
    keep = (table.most.size + 1) * (budget + 1) * table.weights.size <= _LARGEST
    bounds = _bounds(table, budget, keep)
    root = float(table.values(bounds[0][0][-1], bounds[0][1][-1]))
    heap = [_Node(root, 0, 0, (), 0, budget)]
    nodes, made = 0, 0
    while heap and heap[0].bound < value * (1 - SLACK) and nodes < NODES and keep:
        node = heapq.heappop(heap)
        nodes += 1
        left, k = node.left, -node.depth
        decided = (*node.before, node.tasks)[:k]  # none in the root
        most = int(min(left, table.most[k]))
        if table.same[k]:
            most = min(most, decided[-1])
        rows = [table.row(i, a) for i, a in enumerate(decided) if a] or [0]
        choice = [table.row(k, a) for a in range(most + 1)]
        rest, tails = (part[left - most : left + 1][::-1] for part in bounds[k + 1])
        combined = table.combine(table.combine.reduce(table.rows[rows]), table.rows[choice])
        children = table.values(table.combine(combined, rest), table.tails[rows].sum() + table.tails[choice] + tails)
        for a, bound in enumerate(children.tolist()):
            if bound >= value * (1 - SLACK):
                continue
            if a == left:
                best = np.zeros_like(start)
                best[: k + 1] = [*decided, a]
                value = bound
            elif k + 1 < table.most.size:
                made += 1
                heapq.heappush(heap, _Node(bound, node.depth - 1, made, decided, a, left - a))
    return Proof(best, value, min(value, heap[0].bound) if heap else value)


def _bounds(table: Table, budget: int, keep: bool) -> list[tuple[Floats, Floats]]:
    """For the workers from k on and b tasks: the best of all combined rows, node by node, and the least sum of tails.

    Entry k, for k = 0, ..., m, has shapes (budget + 1, q) and (budget + 1,); without ``keep`` only k = 0 is there.
    """
    combined = np.full((budget + 1, table.weights.size), table.unit - 1.0 if table.unit else -np.inf)
    tails = np.full(budget + 1, np.inf)
    combined[0], tails[0] = table.unit, 0.0
    result = [(combined, tails)]
    for k in range(table.most.size - 1, -1, -1):
        later, later_tails = result[0]
        combined, tails = later.copy(), later_tails.copy()
        for a in range(1, int(min(table.most[k], budget)) + 1):
            row = table.row(k, a)
            np.maximum(combined[a:], table.combine(table.rows[row], later[: budget + 1 - a]), out=combined[a:])
            np.minimum(tails[a:], table.tails[row] + later_tails[: budget + 1 - a], out=tails[a:])
        result = [(combined, tails), *(result if keep else [])]
    return result
