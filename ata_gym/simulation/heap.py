"""A binary heap of workers inside kernels: the worker of the least key is at the top, of equal keys the lowest one."""

from __future__ import annotations

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import inlined


@inlined
def comes_first(key: float, worker: int, other_key: float, other: int) -> bool:
    """Whether a worker comes before another one: the order of results in a round."""
    return key < other_key or (key == other_key and worker < other)


@inlined
def sift_down(heap: Ints, size: int, at: int, key: Floats) -> None:
    """Restore the heap below position ``at``; worker i has ``key[i]``."""
    moved = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size:
            left, right = heap[child], heap[child + 1]
            if comes_first(key[right], right, key[left], left):
                child += 1
        other = heap[child]
        if comes_first(key[moved], moved, key[other], other):
            break
        heap[at] = other
        at = child
    heap[at] = moved


@inlined
def build_heap(heap: Ints, size: int, key: Floats) -> None:
    """Order the first ``size`` workers as a heap."""
    for at in range(size // 2 - 1, -1, -1):
        sift_down(heap, size, at, key)


@inlined
def put_on_top(heap: Ints, size: int, worker: int) -> None:
    """Add a worker that comes before all others to a heap of ``size``."""
    at = size
    while at > 0:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[0] = worker
