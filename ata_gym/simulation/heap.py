"""A binary heap of workers inside kernels: the worker of the least key is at the top, of equal keys the lowest one."""

from typing import NamedTuple

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import inlined, phase


class Heap(NamedTuple):
    """Workers and their keys, position by position; how many of the positions are in use is known to the caller."""

    key: Floats
    worker: Ints


@inlined
def comes_first(key: float, worker: int, other_key: float, other: int) -> bool:
    """Whether a worker comes before another one: the order of events in a round."""
    return key < other_key or (key == other_key and worker < other)


@phase
def sift_down(heap: Heap, size: int, at: int) -> None:
    """Restore the heap below position ``at``."""
    key, worker = heap.key[at], heap.worker[at]
    while True:  # down the levels
        child = 2 * at + 1
        if child >= size:
            break
        right = child + 1
        if right < size and comes_first(heap.key[right], heap.worker[right], heap.key[child], heap.worker[child]):
            child = right
        if comes_first(key, worker, heap.key[child], heap.worker[child]):
            break
        heap.key[at], heap.worker[at] = heap.key[child], heap.worker[child]
        at = child
    heap.key[at], heap.worker[at] = key, worker


@phase
def build_heap(heap: Heap, size: int) -> None:
    """Order the first ``size`` workers as a heap."""
    for at in range(size // 2 - 1, -1, -1):
        sift_down(heap, size, at)


@phase
def put_on_top(heap: Heap, size: int, worker: int) -> None:
    """Add a worker to a heap of ``size`` at the top; its key is still to be set, and the heap to be restored."""
    at = size
    while at > 0:  # up the levels
        above = (at - 1) // 2
        heap.key[at], heap.worker[at] = heap.key[above], heap.worker[above]
        at = above
    heap.worker[0] = worker


@phase
def take_off_top(heap: Heap, size: int) -> int:
    """Put the last worker in the place of the one at the top; return the size. The heap is still to be restored."""
    heap.key[0], heap.worker[0] = heap.key[size - 1], heap.worker[size - 1]
    return size - 1
