"""A binary heap of workers inside kernels.

The worker of the least key is at the top, of equal keys the lowest one.
"""

from typing import NamedTuple

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import inlined, phase


class Heap(NamedTuple):
    """Workers and their keys, position by position.

    The caller knows how many of the positions are in use.
    """

    key: Floats
    """The key at each position, shape (n,)."""
    worker: Ints
    """The worker at each position, shape (n,)."""


@inlined
def comes_first(key: float, worker: int, other_key: float, other_worker: int) -> bool:
    """Whether a worker comes before another one in the order of events in a round."""
    return key < other_key or (key == other_key and worker < other_worker)


@phase
def sift_down(heap: Heap, size: int, position: int) -> None:
    """Restore the heap below a position."""
    key = heap.key[position]
    worker = heap.worker[position]
    # Each pass goes one level down.
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        right = child + 1
        if right < size and comes_first(
            heap.key[right],
            heap.worker[right],
            heap.key[child],
            heap.worker[child],
        ):
            child = right
        if comes_first(key, worker, heap.key[child], heap.worker[child]):
            break
        heap.key[position], heap.worker[position] = heap.key[child], heap.worker[child]
        position = child
    heap.key[position] = key
    heap.worker[position] = worker


@phase
def build_heap(heap: Heap, size: int) -> None:
    """Order the first ``size`` workers as a heap."""
    for position in range(size // 2 - 1, -1, -1):
        sift_down(heap, size, position)


@phase
def put_on_top(heap: Heap, size: int, worker: int) -> None:
    """Add a worker at the top of a heap of ``size``.

    The caller sets its key and restores the heap.
    """
    # The positions on the way from the first free one to the top move one level down.
    position = size
    while position > 0:
        parent = (position - 1) // 2
        heap.key[position], heap.worker[position] = heap.key[parent], heap.worker[parent]
        position = parent
    heap.worker[0] = worker


@phase
def take_off_top(heap: Heap, size: int) -> int:
    """Replace the worker at the top by the last one, and return the new size.

    The caller restores the heap.
    """
    heap.key[0], heap.worker[0] = heap.key[size - 1], heap.worker[size - 1]
    return size - 1
