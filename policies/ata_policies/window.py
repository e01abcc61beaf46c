"""Learners that forget what is old: a window in the place of all that was ever seen.

Garivier and Moulines, "On upper-confidence bound policies for switching bandit problems", ALT 2011 (sliding-window
UCB; formulas recalled). What is forgotten altogether counts as never tried, so it is explored again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.checks import whole_number
from ata_gym.compiled import gufunc
from ata_gym.simulation import Floats, Ints
from ata_policies.ata import AtaEmpiricalIcml, AtaIcml
from ata_policies.forgetting import RecentBound
from ata_policies.policy import AllocationPolicy, Setting
from ata_policies.thompson import Thompson, ThompsonGamma


class Window(NamedTuple):
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
    by_task: NDArray[np.bool_]
    """(E,) whether W counts tasks of the worker, else rounds."""

    @classmethod
    def empty(cls, rows: int, n: int, window: int, blocks: int, by_task: bool) -> Window:
        """Nothing seen yet; ``blocks`` must divide ``window``."""
        counts, totals, squares, clock = np.zeros((4, rows, n))
        length, unit = np.full(rows, window / blocks), np.full(rows, by_task)
        return cls(counts, totals, squares, np.zeros((rows, n, blocks, 3)), clock, length, unit)

    def observe(self, worker: Ints, time: Floats, elapsed: Floats | None = None) -> Window:
        """Return the belief after a round; the arguments are those of ``Belief.observe``.

        >>> last_two = Window.empty(1, 1, window=2, blocks=2, by_task=True)
        >>> last_two.observe(np.array([[0, 0, 0]]), np.array([[1.0, 2.0, 4.0]])).totals
        array([[6.]])
        """
        del elapsed
        slid = _slide(self.blocks, self.clock, self.length, self.by_task, worker, time)
        counts, totals, squares, parts, clock = slid
        return Window(counts, totals, squares, parts, clock, self.length, self.by_task)

    def untried(self) -> NDArray[np.bool_]:
        """Which workers have no task in the window, shape (E, n)."""
        never: NDArray[np.bool_] = self.counts == 0
        return never

    def recent(self, round: Ints) -> Floats:
        """The smaller of the rounds and of W, shape (E,)."""
        rounds: Floats = np.minimum(round, self.length * self.blocks.shape[2])
        return rounds


@gufunc(
    "void(float64[:,:,:], float64[:], float64[:], boolean[:], int64[:], float64[:],"
    " float64[:], float64[:], float64[:], float64[:,:,:], float64[:])",
    "(n,k,m),(n),(),(),(b),(b)->(n),(n),(n),(n,k,m),(n)",
)
def _slide(
    blocks: Floats,
    clock: Floats,
    length: Floats,
    by_task: NDArray[np.bool_],
    worker: Ints,
    time: Floats,
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
        new_blocks[i, j, 1] += time[b]
        new_blocks[i, j, 2] += time[b] * time[b]
    for i in range(n):
        new_count[i] = new_total[i] = new_square[i] = 0.0
        for j in range(k):
            new_count[i] += new_blocks[i, j, 0]
            new_total[i] += new_blocks[i, j, 1]
            new_square[i] += new_blocks[i, j, 2]


class _Windowed(AllocationPolicy):
    """What a learner with a window needs beside its rule."""

    follows = True

    def __init__(
        self,
        setting: Setting,
        *,
        window: int = 300,
        of: str = "tasks",
        blocks: int = 6,
        seed: int = 0,
        **others: Any,
    ) -> None:
        super().__init__(setting, seed=seed, **others)
        self.window, self.blocks = whole_number("window", window), whole_number("blocks", blocks)
        if self.window % self.blocks:
            raise ValueError(f"blocks must divide the window of {self.window}, so that all are of a length: {blocks}")
        if of not in ("tasks", "rounds"):
            raise ValueError(f'of must be "tasks" (each worker\'s last ones) or "rounds", not {of!r}')
        self.by_task = of == "tasks"

    def first_belief(self, rows: int) -> Any:
        """Nothing seen yet."""
        return Window.empty(rows, self.setting.n, self.window, self.blocks, self.by_task)


class WindowAta(RecentBound, _Windowed, AtaIcml):
    """ATA (ICML) on a window: (m - 2 alpha f)+ of each worker's last tasks, or of the last rounds.

    m and K of f = sqrt(L / K) + L / K are those of the window, and L = ln(2 k^2) takes for k at most its length. A
    worker without a task in the window has never been tried; a window of tasks never runs empty. Ours, after
    sliding-window UCB.

    Parameters
    ----------
    window, of
        The length W, in "tasks" of each worker or in "rounds".
    blocks
        Blocks k that the window is kept in, which must divide W; the oldest is dropped as a whole.
    alpha
        As for ATA.
    """

    source = "ours, after Garivier and Moulines, ALT 2011, and Maranjyan et al., ICML 2025"
    constants = "300 tasks in 6 blocks; 2 alpha, alpha >= psi1 norm of X - mean"


class WindowAtaEmpirical(RecentBound, _Windowed, AtaEmpiricalIcml):
    """ATA-Empirical (ICML) on a window: m (1 - 2 eta f)+ of each worker's last tasks, or of the last rounds.

    As WindowAta, with eta for alpha. Ours, after sliding-window UCB.
    """

    source = "ours, after Garivier and Moulines, ALT 2011, and Maranjyan et al., ICML 2025"
    constants = "300 tasks in 6 blocks; 2 eta, eta >= psi1 norm of (X - mean) / mean"


class WindowThompson(_Windowed, Thompson):
    """Thompson sampling on a window: lambda ~ Gamma(c K, rate c S) of each worker's last tasks, or of the last rounds.

    A worker without a task in the window has never been tried; a window of tasks never runs empty. Recalled.

    Parameters
    ----------
    window, of
        The length W, in "tasks" of each worker or in "rounds".
    blocks
        Blocks k that the window is kept in, which must divide W; the oldest is dropped as a whole.
    shape
        As for Thompson.
    """

    source = "Trovò et al., Sliding-Window Thompson Sampling for Non-Stationary Settings, JAIR 2020; Thompson, 1933"
    constants = "300 tasks in 6 blocks; shape 1"


class WindowThompsonGamma(_Windowed, ThompsonGamma):
    """Thompson sampling on a window, with shapes learned from its second moments.

    As WindowThompson and ThompsonGamma. Ours.
    """

    constants = "300 tasks in 6 blocks; weight 5"
