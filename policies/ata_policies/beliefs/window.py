"""A memory that drops what is old.

Garivier and Moulines, "On upper-confidence bound policies for switching bandit problems", ALT 2011 (sliding-window
UCB; formulas recalled). A worker of which nothing is left counts as never tried, so it is explored again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc
from ata_gym.utils.validation import whole_number
from ata_policies.beliefs.memory import Memory
from ata_policies.beliefs.moments import never_finished


class WindowMoments(NamedTuple):
    """Moments of each worker's last W tasks, or of the last W rounds.

    Kept as sums over k blocks; the oldest is dropped as a whole when a new one begins. So the window holds between
    W - W / k and W tasks (or rounds), and the state has 3 (k + 1) numbers per worker, whatever W.
    """

    counts: Floats
    """(E, n) tasks in the window."""
    totals: Floats
    """(E, n) their times added up."""
    squares: Floats
    """(E, n) the squares of their times added up."""
    blocks: Floats
    """(E, n, k, 3) counts, totals and squares of each block."""
    clock: Floats
    """(E, n) the worker's tasks, or the rounds, so far."""
    length: Floats
    """(E,) W / k, tasks or rounds in a block."""
    by_task: Mask
    """(E,) whether W counts tasks of the worker, else rounds."""

    @classmethod
    def empty(cls, rows: int, n: int, window: int, blocks: int, by_task: bool) -> WindowMoments:
        """Nothing seen yet; ``blocks`` must divide ``window``."""
        counts, totals, squares, clock = np.zeros((4, rows, n))
        length, unit = np.full(rows, window / blocks), np.full(rows, by_task)
        return cls(counts, totals, squares, np.zeros((rows, n, blocks, 3)), clock, length, unit)

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> WindowMoments:
        """Return the belief after a round; the arguments are those of ``Belief.observe``.

        >>> last_two = WindowMoments.empty(1, 1, window=2, blocks=2, by_task=True)
        >>> last_two.observe(np.array([[0, 0, 0]]), np.array([[1.0, 2.0, 4.0]])).totals
        array([[6.]])
        """
        del elapsed
        slid = _slide(self.blocks, self.clock, self.length, self.by_task, worker, duration)
        counts, totals, squares, parts, clock = slid
        return WindowMoments(counts, totals, squares, parts, clock, self.length, self.by_task)

    def untried(self) -> Mask:
        """Which workers have no task in the window, shape (E, n)."""
        return never_finished(self)

    def rounds(self, round: Ints) -> Floats:
        """The smaller of the rounds and of W, shape (E,)."""
        counting: Floats = np.minimum(round, self.length * self.blocks.shape[2])
        return counting


@gufunc(
    "void(float64[:,:,:], float64[:], float64[:], boolean[:], int64[:], float64[:],"
    " float64[:], float64[:], float64[:], float64[:,:,:], float64[:])",
    "(n,k,m),(n),(),(),(b),(b)->(n),(n),(n),(n,k,m),(n)",
)
def _slide(
    blocks: Floats,
    clock: Floats,
    length: Floats,
    by_task: Mask,
    worker: Ints,
    duration: Floats,
    new_count: Floats,
    new_total: Floats,
    new_square: Floats,
    new_blocks: Floats,
    new_clock: Floats,
) -> None:
    n, k, m = blocks.shape
    played = worker[0] >= 0  # there is no round before the first
    for i in range(n):
        new_clock[i] = clock[i]
        for j in range(k):
            for part in range(m):
                new_blocks[i, j, part] = blocks[i, j, part]
        if played and not by_task[0]:
            if clock[i] % length[0] == 0.0:
                new_blocks[i, np.int64(clock[i] / length[0]) % k] = 0.0
            new_clock[i] += 1.0
    for b in range(len(worker)):
        i = worker[b]
        if i < 0:
            continue
        before = new_clock[i] if by_task[0] else clock[i]
        j = np.int64(before / length[0]) % k
        if by_task[0]:
            if before % length[0] == 0.0:
                new_blocks[i, j] = 0.0
            new_clock[i] = before + 1.0
        new_blocks[i, j, 0] += 1.0
        new_blocks[i, j, 1] += duration[b]
        new_blocks[i, j, 2] += duration[b] * duration[b]
    for i in range(n):
        new_count[i] = new_total[i] = new_square[i] = 0.0
        for j in range(k):
            new_count[i] += new_blocks[i, j, 0]
            new_total[i] += new_blocks[i, j, 1]
            new_square[i] += new_blocks[i, j, 2]


@dataclass(frozen=True)
class Window(Memory):
    """Only each worker's last tasks count, or the tasks of the last rounds; the oldest block is dropped as a whole.

    A worker without a task in the window has never been tried; a window of tasks never runs empty.

    Parameters
    ----------
    window, of
        The length W, in "tasks" of each worker or in "rounds".
    blocks
        Blocks k that the window is kept in, which must divide W.
    """

    window: int = 300
    of: str = "tasks"
    blocks: int = 6

    nonstationary = True
    constants = "300 tasks in 6 blocks"

    def __post_init__(self) -> None:
        whole_number("window", self.window)
        whole_number("blocks", self.blocks)
        if self.window % self.blocks:
            raise ValueError(
                f"blocks must divide the window of {self.window}, so that all have the same length, and {self.blocks} "
                "does not"
            )
        if self.of not in ("tasks", "rounds"):
            raise ValueError(f'of must be "tasks" (each worker\'s last ones) or "rounds", not {self.of!r}')

    def start(self, rows: int, n: int, squares: bool) -> WindowMoments:
        """Nothing seen yet."""
        del squares
        return WindowMoments.empty(rows, n, self.window, self.blocks, self.of == "tasks")
