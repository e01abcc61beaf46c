"""Memories: what counts of the task times that a policy has seen.

All times count, or a window of them, or less with age, or since a change. Garivier and Moulines,
"On upper-confidence bound policies for switching bandit problems", ALT 2011 (sliding-window and
discounted UCB; formulas recalled). A worker without results that count is treated as never tried,
so it is explored again.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Generic, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import copy, copy_rows, kernel
from ata_gym.utils.ranges import Counts, Squares, Times, Within
from ata_gym.utils.validation import real, whole_number
from ata_policies.beliefs.belief import CountedT
from ata_policies.beliefs.detectors import Cusum, Glr, MonitoredMoments, PageHinkley
from ata_policies.beliefs.moments import Moments, Totals
from ata_policies.facts import Described


class Memory(Described, ABC, Generic[CountedT]):
    """Hyperparameters of a memory; what it remembers of E rows is a belief.

    The belief is a named tuple of arrays. It has ``counts`` and ``totals``, and ``deviations``
    where they were asked for (see ``Moments``).
    """

    availability: ClassVar[bool] = False
    """Whether workers that owe results are left out by default (``Availability``)."""

    @abstractmethod
    def start(self, rows: int, n: int, deviations: bool) -> CountedT:
        """Return the belief of rows that have seen nothing.

        Args:
            rows: Rows E.
            n: Workers.
            deviations: Whether squared deviations are needed.
        """

    def recall(self, belief: CountedT) -> tuple[CountedT, Mask]:
        """Return what counts of a belief, and which workers count as never tried, (E, n)."""
        return belief, np.equal(belief.counts, 0)

    def rounds(self, belief: CountedT, round: Ints) -> Ints | Floats:
        """Return how many rounds count in round k, (E,): by default all of them."""
        return round


@dataclass(frozen=True)
class Everything(Memory[Totals | Moments]):
    """All task times count, however old they are."""

    def start(self, rows: int, n: int, deviations: bool) -> Totals | Moments:
        if deviations:
            return Moments.empty(rows, n)
        return Totals.empty(rows, n)


class WindowMoments(NamedTuple):
    """Moments of each worker's last W tasks, or of the last W rounds.

    The sums are kept for k blocks; the oldest block is dropped as a whole when a new one begins. So
    the window holds between W - W / k and W tasks (or rounds), and the state has 3 (k + 1)
    numbers for each worker, whatever W is.
    """

    counts: Counts
    """(E, n) tasks in the window."""
    totals: Times
    """(E, n) their times added up."""
    deviations: Squares
    """(E, n) their squared deviations from their mean added up."""
    blocks: Moments
    """(E, n, k) the moments of each block."""
    clock: Counts
    """(E, n) the worker's tasks, or the rounds, so far."""
    length: Annotated[Floats, Within(1.0)]
    """(E,) W / k, tasks or rounds in a block."""
    by_task: Mask
    """(E,) whether W counts tasks of the worker, else rounds."""

    def observe(
        self,
        worker: Ints,
        duration: Floats,
        elapsed: Floats | None = None,
    ) -> "WindowMoments":
        *new_parts, clock, place = _slide(
            *self.blocks,
            self.clock,
            self.length,
            self.by_task,
            worker,
        )
        # each block counts as a worker of its own, so that the update of plain moments serves
        moments = Moments(*(part.reshape(len(part), -1) for part in new_parts))
        new_moments = moments.observe(place, duration)
        blocks = Moments(*(part.reshape(self.blocks.counts.shape) for part in new_moments))
        return WindowMoments(*blocks.merged(), blocks, clock, self.length, self.by_task)


@kernel("(n,k),(n,k),(n,k),(n),(),(),(b)->(n,k),(n,k),(n,k),(n),(b)")
def _slide(
    counts: Floats,
    totals: Floats,
    deviations: Floats,
    clock: Floats,
    length: Floats,
    by_task: Mask,
    worker: Ints,
    new_counts: Floats,
    new_totals: Floats,
    new_deviations: Floats,
    new_clock: Floats,
    place: Ints,
) -> None:
    """Empty the blocks that begin in this round, and find the place of each result.

    The place is i k + j for worker i's block j. It is -1 where there is no result, or its worker
    has so many in this round that the window is past it.
    """
    n, k = counts.shape
    copy_rows(counts, new_counts)
    copy_rows(totals, new_totals)
    copy_rows(deviations, new_deviations)
    copy(clock, new_clock)
    # an observation without results is from a reset: there is no round before the first
    if worker[0] >= 0 and not by_task[0]:
        new_clock += 1.0
    # the place of each result is, for now, the number of whole blocks before it
    for b in range(len(worker)):
        place[b] = -1
        i = worker[b]
        if i >= 0:
            place[b] = np.int64((new_clock[i] if by_task[0] else clock[i]) / length[0])
            if by_task[0]:
                new_clock[i] += 1.0
    # blocks are kept in a ring of k: block number ``block`` is at ``block % k``
    for i in range(n):
        if new_clock[i] > clock[i]:
            begun = np.int64(math.ceil(clock[i] / length[0]))
            end = np.int64(math.ceil(new_clock[i] / length[0]))
            for block in range(max(begun, end - k), end):
                new_counts[i, block % k] = 0.0
                new_totals[i, block % k] = 0.0
                new_deviations[i, block % k] = 0.0
    # results in blocks that the round itself has pushed out of the window do not count
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            newest = np.int64(math.ceil(new_clock[i] / length[0])) - 1
            if place[b] > newest - k:
                place[b] = i * k + place[b] % k
            else:
                place[b] = -1


@dataclass(frozen=True)
class Window(Memory[WindowMoments]):
    """Only each worker's last tasks count, or the tasks of the last rounds.

    The window is kept in blocks, of which the oldest is dropped as a whole. A worker without a task
    in the window counts as never tried; a window of tasks never becomes empty.

    Args:
        window: The length W of the window.
        unit: What W counts: "tasks" of each worker, or "rounds".
        blocks: The number k of blocks in which the window is kept; it must divide W.
    """

    window: int = 300
    unit: str = "tasks"
    blocks: int = 6

    nonstationary = True
    source = "Garivier and Moulines, ALT 2011"
    constants = "a window of 300 tasks in 6 blocks (ours)"

    def __post_init__(self) -> None:
        whole_number("window", self.window)
        whole_number("blocks", self.blocks)
        if self.window % self.blocks:
            raise ValueError(
                f"blocks must divide the window of {self.window} in equal parts; {self.blocks}"
                " does not",
            )
        if self.unit not in ("tasks", "rounds"):
            raise ValueError(
                f'unit must be "tasks" (each worker\'s last ones) or "rounds", not {self.unit!r}',
            )

    def start(self, rows: int, n: int, deviations: bool) -> WindowMoments:
        length = np.full(rows, self.window / self.blocks)
        by_task = np.full(rows, self.unit == "tasks")
        blocks = Moments(*np.zeros((3, rows, n, self.blocks)))
        zeros = np.zeros((rows, n))
        return WindowMoments(zeros, zeros, zeros, blocks, zeros, length, by_task)

    def rounds(self, belief: WindowMoments, round: Ints) -> Floats:
        return np.asarray(np.minimum(round, belief.length * belief.blocks.counts.shape[2]))


class DiscountedMoments(NamedTuple):
    """Moments in which a task counts ``discount`` times as much with each round that passes."""

    counts: Counts
    """(E, n) tasks seen, discounted."""
    totals: Times
    """(E, n) their times added up, discounted."""
    deviations: Squares
    """(E, n) their squared deviations from their mean added up, discounted."""
    discount: Annotated[Floats, Within(0.0, math.nextafter(1.0, 0.0))]
    """(E,) the discount per round."""

    def observe(
        self,
        worker: Ints,
        duration: Floats,
        elapsed: Floats | None = None,
    ) -> "DiscountedMoments":
        """Return the belief after a round, see ``Belief.observe``.

        A worker whose tasks count for less than half a task is forgotten.
        """
        discount = self.discount[:, None]
        share = np.where(discount * self.counts >= 0.5, discount, 0.0)
        moments = Moments(self.counts, self.totals, self.deviations)
        moments = moments.scaled(share).observe(worker, duration)
        return DiscountedMoments(*moments, self.discount)


@dataclass(frozen=True)
class Discount(Memory[DiscountedMoments]):
    """A task counts ``discount`` times as much with each round that passes.

    A worker whose tasks count for less than half a task is forgotten, so that it is tried again:
    otherwise its draws would drift away, and it would never be tried.

    Args:
        discount: The discount per round, above 0 and below 1.
    """

    discount: float = 0.999

    nonstationary = True
    source = "Garivier and Moulines, ALT 2011"
    constants = "a discount of 0.999 (ours)"

    def __post_init__(self) -> None:
        if real("discount", self.discount) >= 1.0:
            raise ValueError(
                "discount must be below 1, what a task counts after a round, not"
                f" {self.discount!r}",
            )

    def start(self, rows: int, n: int, deviations: bool) -> DiscountedMoments:
        zeros = np.zeros((rows, n))
        return DiscountedMoments(zeros, zeros, zeros, np.full(rows, self.discount))

    def rounds(self, belief: DiscountedMoments, round: Ints) -> Floats:
        """Return the weights of the rounds added up, (1 - discount^k) / (1 - discount), (E,)."""
        return (1.0 - belief.discount**round) / (1.0 - belief.discount)


DETECTORS: dict[str, type[MonitoredMoments]] = {
    "page-hinkley": PageHinkley,
    "cusum": Cusum,
    "glr": Glr,
}
_SHARES = {"all": 0.0, "many": 1 / 3, "worker": math.inf}
"""The share of workers whose alarms make all workers start anew, by ``restart``."""


@dataclass(frozen=True)
class Restarts(Memory[MonitoredMoments]):
    """Task times that were seen before a detected change do not count.

    After Liu, Lee and Shroff, AAAI 2018; the choice of who starts anew and the refresh are ours.
    Workers that owe results are left out, but for probes (``Availability``).

    Args:
        detector: "page-hinkley", "cusum" or "glr": see ``detectors``.
        restart: Who starts anew at an alarm: the "worker" that raised it; "all" workers; or with
            "many" this worker alone, but all once more than a third of the workers with a
            task have raised one within 10 rounds.
        effective_tasks: A worker's task counts 1 - 1 / effective_tasks times as much with each
            later one, so that slow changes are followed without an alarm; at least 40, or None: all
            tasks count alike until an alarm.
        refresh: Every so many rounds, workers without a task for half as many get one, all
            together; None: never. Without it a worker out of use that becomes fast is not noticed.
        threshold: The statistic at which an alarm is raised, above 0; by default the detector's
            own.
    """

    detector: str = "page-hinkley"
    restart: str = "many"
    effective_tasks: float | None = 200.0
    refresh: float | None = 2000.0
    threshold: float | None = None

    nonstationary = True
    availability = True
    source = "Liu, Lee and Shroff, AAAI 2018"
    assumes = "workers that change seldom"
    constants = (
        "Page-Hinkley, 48 / shape, drift 0.5 up and 0.25 down; refresh 2000; 200 effective tasks"
    )

    def __post_init__(self) -> None:
        for name, value, options in (
            ("detector", self.detector, DETECTORS),
            ("restart", self.restart, _SHARES),
        ):
            if value not in options:
                raise ValueError(f"{name} must be {' or '.join(map(repr, options))}, not {value!r}")
        tasks = self.effective_tasks
        if tasks is not None and not 40.0 <= tasks < math.inf:
            raise ValueError(
                f"effective_tasks must be a finite number of at least 40, or None, not {tasks!r}",
            )
        if self.refresh is not None:
            real("refresh", self.refresh)
        if self.threshold is not None:
            real("threshold", self.threshold)

    def start(self, rows: int, n: int, deviations: bool) -> MonitoredMoments:
        options = {
            "memory": self.effective_tasks,
            "refresh": self.refresh,
            "threshold": self.threshold,
        }
        constants = {name: float(value) for name, value in options.items() if value is not None}
        return DETECTORS[self.detector].empty(rows, n, share=_SHARES[self.restart], **constants)

    def recall(self, belief: MonitoredMoments) -> tuple[MonitoredMoments, Mask]:
        untried = belief.untried()
        return belief.forgetting(untried), untried

    def rounds(self, belief: MonitoredMoments, round: Ints) -> Floats:
        return belief.rounds_since + 1.0
