"""Memories that forget: one drops what is old, in the other it counts less.

Garivier and Moulines, "On upper-confidence bound policies for switching bandit problems", ALT 2011 (sliding-window and
discounted UCB; formulas recalled). A worker of which nothing is left counts as never tried, so it is explored again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc
from ata_gym.utils.validation import real, whole_number
from ata_policies.beliefs.memory import Memory
from ata_policies.beliefs.moments import Moments, never_finished


class WindowMoments(NamedTuple):
    """Moments of each worker's last W tasks, or of the last W rounds.

    Kept as sums over k blocks; the oldest is dropped as a whole when a new one begins. So the window holds between
    W - W / k and W tasks (or rounds), and the state has 3 (k + 1) numbers per worker, whatever W.
    """

    counts: Floats  # (E, n) tasks in the window
    totals: Floats  # (E, n) their times added up
    squares: Floats  # (E, n) the squares of their times added up
    blocks: Floats  # (E, n, k, 3) counts, totals and squares of each block
    clock: Floats  # (E, n) the worker's tasks, or the rounds, so far
    length: Floats  # (E,) W / k, tasks or rounds in a block
    by_task: Mask  # (E,) whether W counts tasks of the worker, else rounds

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> WindowMoments:
        """Return the belief after a round; the arguments are those of ``Belief.observe``."""
        del elapsed
        blocks, clock = _slide(self.blocks, self.clock, self.length, self.by_task, worker, duration)
        counts, totals, squares = np.moveaxis(blocks.sum(axis=2), -1, 0)
        return WindowMoments(counts, totals, squares, blocks, clock, self.length, self.by_task)

    def untried(self) -> Mask:
        """Which workers have no task in the window, shape (E, n)."""
        return never_finished(self)

    def rounds(self, round: Ints) -> Floats:
        """The smaller of the rounds and of W, shape (E,)."""
        counting: Floats = np.minimum(round, self.length * self.blocks.shape[2])
        return counting


@gufunc(
    "void(float64[:,:,:], float64[:], float64[:], boolean[:], int64[:], float64[:], float64[:,:,:], float64[:])",
    "(n,k,m),(n),(),(),(b),(b)->(n,k,m),(n)",
)
def _slide(
    blocks: Floats, clock: Floats, length: Floats, by_task: Mask, worker: Ints, duration: Floats,
    new_blocks: Floats, new_clock: Floats,
) -> None:  # fmt: skip
    n, k, _ = blocks.shape
    new_blocks[:], new_clock[:] = blocks, clock
    if worker[0] >= 0 and not by_task[0]:  # there is no round before the first
        for i in range(n):
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
            raise ValueError(f"blocks must divide the window of {self.window} in equal parts; {self.blocks} does not")
        if self.of not in ("tasks", "rounds"):
            raise ValueError(f'of must be "tasks" (each worker\'s last ones) or "rounds", not {self.of!r}')

    def start(self, rows: int, n: int, squares: bool) -> WindowMoments:
        """Nothing seen yet."""
        del squares
        length, by_task = np.full(rows, self.window / self.blocks), np.full(rows, self.of == "tasks")
        none, no_blocks = np.zeros((rows, n)), np.zeros((rows, n, self.blocks, 3))
        return WindowMoments(none, none, none, no_blocks, none, length, by_task)


class DiscountedMoments(NamedTuple):
    """Moments in which a task counts ``discount`` times as much with each round that passes."""

    counts: Floats  # (E, n) tasks seen, discounted
    totals: Floats  # (E, n) their times added up, discounted
    squares: Floats  # (E, n) the squares of their times added up, discounted
    discount: Floats  # (E,) the discount per round

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> DiscountedMoments:
        """Return the belief after a round; the arguments are those of ``Belief.observe``.

        What is worth less than half a task is forgotten: such a worker has never been tried.
        """
        del elapsed
        discount = self.discount[:, None]
        kept = np.where(discount * self.counts >= 0.5, discount, 0.0)
        moments = Moments(kept * self.counts, kept * self.totals, kept * self.squares).observe(worker, duration)
        return DiscountedMoments(*moments, self.discount)

    def untried(self) -> Mask:
        """Which workers have never finished a task, or long ago, shape (E, n)."""
        return never_finished(self)

    def rounds(self, round: Ints) -> Floats:
        """Rounds that are remembered in round k, (1 - discount^k) / (1 - discount), shape (E,)."""
        return (1.0 - self.discount**round) / (1.0 - self.discount)


@dataclass(frozen=True)
class Discount(Memory):
    """A task counts ``discount`` times as much with each round that passes, above 0 and below 1.

    What is worth less than half a task is forgotten, so that a worker is tried again: else its draws would drift away
    and it never would be.
    """

    discount: float = 0.999

    nonstationary = True
    constants = "discount 0.999"

    def __post_init__(self) -> None:
        if real("discount", self.discount) >= 1.0:
            raise ValueError(f"discount must be below 1, what a task counts after a round, not {self.discount!r}")

    def start(self, rows: int, n: int, squares: bool) -> DiscountedMoments:
        """Nothing seen yet."""
        del squares
        none = np.zeros((rows, n))
        return DiscountedMoments(none, none, none, np.full(rows, self.discount))
