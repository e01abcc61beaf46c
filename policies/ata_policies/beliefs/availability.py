"""Which workers are available where workers come and go: a worker that owes results is not.

Ours.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ata_gym.typing import Bits, Floats, Ints, Mask
from ata_gym.utils.ranges import Tasks, Wholes
from ata_policies.beliefs.moments import Totals

FIRST_PAUSE = 8
"""The rounds in which a worker that is away gets nothing, at first."""
LONGEST_PAUSE = 64
"""The rounds in which a worker that is away gets nothing, at most."""
_NEVER = 2**40
"""The rounds until a worker that has left is probed."""


def results_of(worker: Ints, n: int) -> Floats:
    """Return how many results each worker has in a round, (E, n).

    Args:
        worker: (E, R) whose result each one is; -1 means no result.
        n: Workers.
    """
    return Totals.empty(len(worker), n).observe(worker, np.zeros(worker.shape)).counts


def counted(observation: Mapping[str, NDArray[Any]]) -> tuple[Ints, Floats, Floats]:
    """Return what a belief learns from: the worker and duration of each result, and elapsed times.

    Workers in ``warm_up`` have answered, and so they are there, but nothing is learned from the
    times of their results and of their cancelled tasks. As in a round of fewer results, the results
    that count come first.

    Args:
        observation: A checked observation, with a row axis.

    Example:
        >>> round = {"worker": np.array([[0, 1]]), "duration": np.array([[9.0, 2.0]])}
        >>> round |= {"elapsed": np.zeros((1, 2)), "warm_up": np.array([[True, False]])}
        >>> counted(round)[:2]
        (array([[ 1, -1]]), array([[2., 0.]]))
    """
    worker = observation["worker"]
    duration = observation["duration"]
    elapsed = observation["elapsed"]
    if "warm_up" not in observation:
        return worker, duration, elapsed
    warm_up: Mask = observation["warm_up"]
    counts = (worker >= 0) & ~np.take_along_axis(warm_up, np.maximum(worker, 0), 1)
    order = np.argsort(~counts, axis=1, kind="stable")
    worker, duration = (
        np.take_along_axis(np.where(counts, part, empty), order, 1)
        for part, empty in ((worker, -1), (duration, 0.0))
    )
    return worker, duration, np.where(warm_up, 0.0, elapsed)


def signs_of_life(worker: Ints, elapsed: Floats, running: Bits | None = None) -> Mask:
    """Return which workers showed a sign of life in the last step, (E, n).

    The signs are a result, a cancelled task, and a running task. In a race a worker with tasks, and
    in dispatch a worker that was to start a task, shows one of these at the next step, unless it is
    away or dies. The arguments are parts of the observation.

    Args:
        worker: (E, R) whose result each one is; -1 means no result.
        elapsed: (E, n) how long each worker's cancelled task had run; 0 where none was cancelled.
        running: (E, n) whether each worker is running a task; None where that is not observed.

    Example:
        >>> signs_of_life(np.array([[0, 0]]), np.array([[0.0, 2.0, 0.0]]))
        array([[ True,  True, False]])
    """
    signs = (elapsed > 0.0) | (results_of(worker, elapsed.shape[1]) > 0.0)
    if running is None:
        return signs
    return signs | (running > 0)


class Availability(NamedTuple):
    """Which workers are away: they gave fewer results than they had tasks.

    A worker is away until it gives all its results again. It is probed after ``pause`` rounds. Each
    probe without a result delays the round until the deadline, so the pause doubles then, up to
    ``longest``. If all workers seem to be away, all count as there.

    Where results are known d rounds late, the answer to a probe is waited for before the next one,
    and tasks that a worker had got before it was known to be away are no probes.
    """

    allocation: Tasks
    """(E, n) tasks of the last allocation; of the round of the results that come next, if known."""
    away: Mask
    """(E, n) whether the worker owes results of the last allocation in which it had a task."""
    pause: Wholes
    """(E, n) rounds between two probes."""
    wait: Wholes
    """(E, n) rounds until the next probe."""

    @classmethod
    def full(cls, rows: int, n: int, pause: int) -> Self:
        """Return the availability in which all workers are there."""
        zeros = np.zeros((rows, n), np.int64)
        return cls(zeros, zeros > 0, np.full_like(zeros, pause), zeros)

    def updated(
        self, results: Floats | Mask, pause: int, longest: int, delay: int = 0
    ) -> "Availability":
        """Return the availability after a round.

        Args:
            results: (E, n) how many results each worker gave, or whether it gave a sign of life.
            pause: The rounds without tasks at first.
            longest: The rounds without tasks at most.
            delay: How many rounds later than before the next round results are known.
        """
        owing = results < self.allocation
        returned = (self.allocation > 0) & ~owing
        away = (self.away & ~returned) | owing
        unanswered = self.away & owing
        if delay > 0:
            # a probe is answered in the last round of a wait; what is known before is of tasks that
            # the worker had got before it was known to be away
            late = unanswered & (self.wait > 1)
            owing = owing & ~late
            unanswered = unanswered & ~late
        longer_pauses = np.where(unanswered, np.minimum(2 * self.pause, longest), self.pause)
        pauses = np.where(returned, pause, longer_pauses)
        # at 0 a probe is sent, and the next one waits for its answer
        next_wait = np.where(self.wait > 0, self.wait - 1, delay)
        wait = np.where(owing, pauses + delay * ~unanswered, next_wait)
        return Availability(self.allocation, away & ~away.all(axis=1, keepdims=True), pauses, wait)

    def note_absences(self, absent: Mask, back: Mask) -> "Availability":
        """Return the availability after workers have left or come back.

        Args:
            absent: (n,) which workers have left.
            back: (n,) which workers have come back; they are probed in the next round.
        """
        away = self.away | absent | back
        wait = np.where(absent, _NEVER, np.where(back, 1, self.wait))
        return Availability(np.where(absent | back, 0, self.allocation), away, self.pause, wait)

    def available(self) -> Mask:
        """Return which workers may get tasks, (E, n): they are there, or are to be probed."""
        return ~(self.away & (self.wait > 0))


@runtime_checkable
class PlanWithAvailability(Protocol):
    """A plan that holds who is away: a named tuple of arrays, one of whose fields is this.

    ``Policy.away`` tells it, and ``Policy.note_absences`` changes it.
    """

    @property
    def availability(self) -> Availability | tuple[()]:
        """Which workers are away; an empty tuple where that is not watched."""

    def _replace(self, *, availability: Availability) -> Self:
        """Return the plan with another availability."""
