"""Which workers are available where workers come and go: a worker that owes results is not.

Ours.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import lambertw

from ata_gym.typing import Bits, Floats, Ints, Mask
from ata_gym.utils.ranges import Counts, Tasks, Times, Wholes
from ata_policies.beliefs.moments import Exposure, Totals

_LATE_ROUNDS = 2.0
"""How many rounds a deadline counts for where it is not known."""
_MOST_ROUNDS = 1e6
"""How many rounds it counts for at most."""
_RATIOS = (1e-6, 600.0)
"""The least and the largest ratio of a cost to a spell for which the best pause is computed.

At 0 Lambert's function is at its branch point, and soon after 600 exp(-ratio) is 0.
"""
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
    # The results that count come first, in their order, and no others.
    order = np.argsort(~counts, axis=1, kind="stable")
    worker, duration = (
        np.take_along_axis(np.where(counts, part, empty), order, 1)
        for part, empty in ((worker, -1), (duration, 0.0))
    )
    return worker, duration, np.where(warm_up, 0.0, elapsed)


def feedback_totals(observation: Mapping[str, NDArray[Any]]) -> Exposure:
    """Return each worker's results in a round, and for how long it was busy, with its latency.

    A worker that is warming up has its results, and was busy for 0.

    Args:
        observation: A checked observation, with a row axis.

    Example:
        >>> round = {"worker": np.array([[0, 0, 1]]), "duration": np.array([[1.0, 2.0, 5.0]])}
        >>> feedback_totals(round | {"elapsed": np.array([[0.0, 0.0, 4.0]])})
        Exposure(counts=array([[2., 1., 0.]]), busy=array([[3., 5., 4.]]))
    """
    worker, duration, elapsed = (observation[name] for name in ("worker", "duration", "elapsed"))
    counts, busy = Exposure.empty(*elapsed.shape).observe(worker, duration, elapsed)
    if "latency" in observation:
        busy = busy + observation["latency"]
    if "warm_up" in observation:
        busy = np.where(observation["warm_up"], 0.0, busy)
    return Exposure(counts, busy)


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


def best_pause(cost: Floats, spell: Floats) -> Ints:
    """Return after how many rounds to probe a worker that is away, at least 1.

    A probe in vain costs as much as ``cost`` rounds without the worker, and the worker stays away
    for an exponential time of mean ``spell``. With probes every x spells, the expected cost in
    units of rounds without the worker is spell * ((cost / spell + x) / (1 - exp(-x))) and a
    constant, which is least at exp(x) = 1 + x + cost / spell.

    Args:
        cost: (...,) what a probe in vain costs each worker, in rounds without the worker.
        spell: (...,) mean rounds for which each worker stays away.

    Example:
        >>> best_pause(np.array([0.0, 10.0, 100.0]), np.array([50.0, 50.0, 50.0]))
        array([ 1, 29, 76])
    """
    ratio = 1.0 + np.clip(cost / spell, *_RATIOS)
    spells = -ratio - lambertw(-np.exp(-ratio), -1).real
    return np.clip(np.ceil(spell * spells), 1.0, _NEVER).astype(np.int64)


class Availability(NamedTuple):
    """Which workers are away: they gave fewer results than they had tasks.

    A worker is away until it gives all its results again, and is probed at intervals. Each probe
    in vain delays the round until the deadline, and each round without the worker takes longer than
    with it, so that there is a best time between two probes (``best_pause``):

    * Without worker i, which had a_i of the B tasks, the others compute its tasks, so that a round
      takes B / (B - a_i) times as long. Where it had all tasks, the others count for one task.
    * A late round takes longer by the deadline and by one task, a round over a_i.
    * A spell of absence lasts as long as those that have ended did on average, or as this one has
      lasted already, whichever is longer. Before the first has ended, a mean of half as many rounds
      as a probe in vain costs counts as one spell.

    If all workers seem to be away, all count as there.

    Where results are known d rounds late, the answer to a probe is waited for before the next one,
    and tasks that a worker had got before it was known to be away are no probes.
    """

    allocation: Tasks
    """(E, n) tasks of the last allocation; of the round of the results that come next, if known."""
    away: Mask
    """(E, n) whether the worker owes results of the last allocation in which it had a task."""
    wait: Wholes
    """(E, n) rounds until the next probe."""
    pause: Wholes
    """(E, n) rounds between the last probe, or the first late round, and the next probe."""
    absence: Wholes
    """(E, n) rounds since a worker that is away owed results for the first time."""
    share: Tasks
    """(E, n) the tasks that it had in that round."""
    spells: Wholes
    """(E,) how many spells of absence have ended."""
    spell_rounds: Counts
    """(E,) rounds of these in all; the last pause of each counts half."""
    rounds: Wholes
    """(E,) rounds in which nobody owed a result, and whose time is known."""
    time: Times
    """(E,) the time of these in all, by the results of the worker that was busy the longest."""

    @classmethod
    def full(cls, rows: int, n: int) -> Self:
        """Return the availability in which all workers are there."""
        zeros = np.zeros((rows, n), np.int64)
        none = zeros[:, 0]
        none_real = np.zeros(rows)
        return cls(zeros, zeros > 0, zeros, zeros, zeros, zeros, none, none_real, none, none_real)

    def observed(
        self, observation: Mapping[str, NDArray[Any]], deadline: float | None, delay: int
    ) -> "Availability":
        """Return the availability after a round, by its feedback.

        Args:
            observation: A checked observation, with a row axis.
            deadline: As for ``updated``.
            delay: As for ``updated``.
        """
        results, busy = feedback_totals(observation)
        return self.updated(results, busy.max(axis=1), deadline, delay)

    def updated(
        self,
        results: Floats | Mask,
        time: Floats,
        deadline: float | None = None,
        delay: int = 0,
    ) -> "Availability":
        """Return the availability after a round.

        Args:
            results: (E, n) how many results each worker gave, or whether it gave a sign of life.
            time: (E,) for how long the worker was busy that was busy the longest; 0 counts as not
                known.
            deadline: The time of a round from which tasks of silent workers are handed on; None
                where it is not known: it then counts as the time of two rounds.
            delay: How many rounds later than before the next round results are known.
        """
        owing = results < self.allocation
        # at 0 a probe is sent, and the next one waits for its answer
        next_wait = np.where(self.wait > 0, self.wait - 1, delay)
        if not (owing.any() or self.away.any()):
            return self._replace(
                wait=next_wait,
                absence=np.zeros_like(self.absence),
                rounds=self.rounds + (time > 0.0),
                time=self.time + time,
            )
        returned = (self.allocation > 0) & ~owing
        away = (self.away & ~returned) | owing
        whole = ~owing.any(axis=1) & (time > 0.0)
        unanswered = self.away & owing
        if delay > 0:
            # a probe is answered in the last round of a wait; what is known before is of tasks that
            # the worker had got before it was known to be away
            late = unanswered & (self.wait > 1)
            owing = owing & ~late
            unanswered = unanswered & ~late
        share = np.where(owing & ~self.away, self.allocation, self.share)
        # a worker of whose absence a loop has told was not probed
        ended = returned & self.away & (self.pause > 0)
        # with a delay, results of earlier tasks may end a spell before its first pause has passed
        length = np.where(ended, self.absence - np.minimum(self.pause, self.absence) / 2.0, 0.0)
        known = self._replace(
            away=away & ~away.all(axis=1, keepdims=True),
            absence=np.where(away, self.absence + 1, 0),
            share=share,
            spells=self.spells + ended.sum(axis=1),
            spell_rounds=self.spell_rounds + length.sum(axis=1),
            rounds=self.rounds + whole,
            time=self.time + np.where(whole, time, 0.0),
        )
        pause = self.pause.copy()
        pause[owing] = known.next_pause(owing, deadline)
        wait = np.where(owing, pause + delay * ~unanswered, next_wait)
        return known._replace(pause=pause, wait=wait)

    def next_pause(self, owing: Mask, deadline: float | None) -> Ints:
        """Return after how many rounds each worker that owes results is to be probed, (k,).

        Args:
            owing: (E, n) these workers, of whom there are k.
            deadline: The time of a round from which tasks of silent workers are handed on, or None.
        """
        until_deadline = np.full(len(self.rounds), _LATE_ROUNDS)
        if deadline is not None:
            timed = self.time > 0.0
            mean = self.time[timed] / self.rounds[timed]
            until_deadline[timed] = np.minimum(deadline / mean, _MOST_ROUNDS)
        row = np.nonzero(owing)[0]
        share = np.maximum(self.share[owing], 1)
        # others that had no task count for one: without them a probe in vain would cost nothing
        others = np.maximum(self.allocation.sum(axis=1)[row] - share, 1)
        late_rounds = until_deadline[row] + 1.0 / share
        cost = late_rounds * others / share
        spell = (self.spell_rounds[row] + cost / 2.0) / (self.spells[row] + 1)
        return best_pause(cost, np.maximum(spell, np.maximum(self.absence[owing], 1)))

    def note_absences(self, absent: Mask, back: Mask) -> "Availability":
        """Return the availability after workers have left or come back.

        Args:
            absent: (n,) which workers have left.
            back: (n,) which workers have come back; they are probed in the next round.
        """
        away = self.away | absent | back
        wait = np.where(absent, _NEVER, np.where(back, 1, self.wait))
        pause = np.where(absent | back, 0, self.pause)
        allocation = np.where(absent | back, 0, self.allocation)
        # rounds in which it was known to be away tell nothing of a silence
        absence = np.where(absent | back, 0, self.absence)
        return self._replace(
            allocation=allocation, away=away, wait=wait, pause=pause, absence=absence
        )

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
