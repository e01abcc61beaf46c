"""One round, or one result, for a batch of rows: pure functions of arrays, with no Gymnasium in them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym import kernels
from ata_gym.changes.conditions import Hazards, calm
from ata_gym.kernels import Bits, Floats, Ints, Keys
from ata_gym.pools.laws import Laws

__all__ = [
    "Bits",
    "Completion",
    "Floats",
    "Hazards",
    "Ints",
    "Keys",
    "Outcome",
    "Underway",
    "allocation_round",
    "derive_keys",
    "dispatch_step",
    "race_round",
    "stream_keys",
    "task_times",
    "uniforms",
]


class Outcome(NamedTuple):
    """What a round of E rows gave, with n workers and budget B."""

    worker: Ints
    """(E, B) the worker of each result, ordered by worker, then by start."""
    time: Floats
    """(E, B) the task time of each result."""
    elapsed: Floats
    """(E, n) how long each worker's cancelled task had run, or 0."""
    started: Ints
    """(E, n) tasks that each worker has started in the episode so far."""
    round_time: Floats
    """(E,) when the B-th result was in."""
    worker_time: Floats
    """(E,) time that all workers were busy."""
    lost: Ints
    """(E,) tasks that were running when their worker died."""


class Underway(NamedTuple):
    """Where E rows are inside their rounds, with n workers."""

    missing: Ints
    """(E,) results that the round still needs; B: it has not begun."""
    tasks: Ints
    """(E, n) tasks that each worker has started in the round."""
    running: Bits
    """(E, n) 1 where a worker is running a task."""
    begun: Floats
    """(E, n) when each worker's latest task began, counted from the round's start."""
    lasts: Floats
    """(E, n) its task time."""
    due: Floats
    """(E, n) when it ends, or ended; 0 before the first."""
    idle: Floats
    """(E, n) how long the worker had been idle in the round before it."""
    now: Floats
    """(E,) time since the round's start."""
    spent: Floats
    """(E,) worker time since the round's start."""
    lost: Ints
    """(E,) tasks of the round, or of the last one where it has not begun, that were running when their worker died."""

    @classmethod
    def start(cls, rows: int, n: int, budget: int) -> Underway:
        """The start of a round: everybody is idle."""
        return cls(
            np.full(rows, budget),
            np.zeros((rows, n), np.int64),
            np.zeros((rows, n), np.int8),
            *np.zeros((4, rows, n)),
            *np.zeros((2, rows)),
            *np.zeros((1, rows), np.int64),
        )


class Completion(NamedTuple):
    """What E rows know at the next result."""

    worker: Ints
    """(E,) whose result came in."""
    time: Floats
    """(E,) its task time."""
    elapsed: Floats
    """(E, n) at the round's end, how long each worker's cancelled task had run; else 0."""
    age: Floats
    """(E, n) how long each running task has run."""
    round_over: NDArray[np.bool_]
    """(E,) whether this was the B-th result."""
    round_time: Floats
    """(E,) when it came in, counted from the round's start."""
    worker_time: Floats
    """(E,) time that all workers were busy, from the round's start until then."""
    started: Ints
    """(E, n) tasks that each worker has started in the episode so far."""
    underway: Underway
    """Where the rows are now; after the B-th result, at the start of the next round."""


def stream_keys(seed: int, rows: int = 1, stream: int = 0) -> Keys:
    """Keys of ``rows`` rows, shape (rows,); row e has the key of seed ``seed + e``, hashed, for the purpose ``stream``.

    >>> bool(stream_keys(3, rows=2)[1] == stream_keys(4)[0])
    True
    """
    hashes = [np.random.SeedSequence(seed + e, spawn_key=(stream,)) for e in range(rows)]
    return np.array([h.generate_state(1, np.uint64)[0] for h in hashes], np.uint64)


def derive_keys(keys: Keys, episode: Ints | int, index: Ints | int) -> Keys:
    """Fresh keys from ``keys``, one for each (episode, index); the three broadcast together."""
    fresh: Keys = kernels.derive_key(keys, np.asarray(episode, np.int64), np.asarray(index, np.int64))
    return fresh


def uniforms(keys: Keys, size: int) -> Floats:
    """The first ``size`` uniform numbers of each key, shape (..., size), strictly between 0 and 1.

    >>> uniforms(stream_keys(0, rows=2), 3).shape
    (2, 3)
    """
    numbers = np.empty((*np.shape(keys), size))
    kernels.fill_uniforms(keys, numbers)
    return numbers


def task_times(
    laws: Laws,
    keys: Keys,
    episode: Ints | int,
    round_index: Ints | int,
    worker: Ints | int,
    task: Ints | int,
    hazards: Hazards | None = None,
) -> Floats:
    """Times of single tasks, for methods that know no rounds; the arguments broadcast together.

    Parameters
    ----------
    laws
        The law of each worker's task times.
    keys, episode, round_index
        The row's key, and the episode and the round in which the task starts, both counted from 0.
    worker, task
        Whose task, and how many it started before in the episode.
    hazards
        What is in the round besides the laws; who dies in it does not matter here.

    Examples
    --------
    The very times that a round would have:

    >>> from ata_gym.pools import exponential
    >>> laws, keys, zero = exponential([1.0, 2.0]).laws, stream_keys(0), np.zeros(1, np.int64)
    >>> round = allocation_round(laws, keys, zero, zero, np.zeros((1, 2), np.int64), np.array([[1, 1]]), 2)
    >>> bool((task_times(laws, keys, 0, 0, np.array([0, 1]), 0) == round.time[0]).all())
    True
    """
    indices = [np.asarray(index, np.int64) for index in (episode, round_index, worker, task)]
    times: Floats = kernels.one_time(*laws[:7], (hazards or _none(laws)).noise, keys, *indices)
    return times


def allocation_round(
    laws: Laws,
    keys: Keys,
    episode: Ints,
    round_index: Ints,
    started: Ints,
    allocation: Ints,
    budget: int,
    hazards: Hazards | None = None,
) -> Outcome:
    """Run one round in which every task of ``allocation``, shape (E, n), each row summing to B, is run to its end.

    Parameters
    ----------
    laws
        The law of each worker's task times, alike in all rows or with a row axis.
    keys, episode, round_index
        (E,) each row's key, its episode and its round, both counted from 0.
    started
        (E, n) tasks that each worker has started in the episode before this round.
    allocation
        (E, n) tasks for each worker, already checked.
    budget
        Results B that the round needs.
    hazards
        What is in the round besides the laws: see ``race_round``, with which this agrees where somebody dies.
    """
    if hazards is None:
        hazards = _none(laws)
    elif np.isfinite(hazards.dies).any():
        return race_round(laws, keys, episode, round_index, started, allocation, budget, hazards)
    outcome = _empty(allocation, budget)
    kernels.run_allocation(
        *laws[:7], hazards.noise, keys, episode, round_index, started, allocation, *outcome[:6]
    )  # fmt: skip
    return outcome


def race_round(
    laws: Laws,
    keys: Keys,
    episode: Ints,
    round_index: Ints,
    started: Ints,
    allocation: Ints,
    budget: int,
    hazards: Hazards | None = None,
) -> Outcome:
    """Run one round in which only the first B results of ``allocation`` count and the rest is cancelled.

    Each worker starts its tasks one after the other. Of results at the same moment the lowest worker's comes first. The
    parameters are those of :func:`allocation_round`, but each row sums to B or more; with B, both give the same bits.

    Raises
    ------
    ValueError
        If all workers of a row die.

    Notes
    -----
    A worker that dies ends no task after that moment, and starts none from then on. The task it runs then is lost: its
    time so far counts as worker time and is the worker's ``elapsed``, as if it were cancelled, and there is no result.
    If those who live have too few tasks left for B results, the lacking ones are handed on from the deadline on, each
    as soon as somebody is idle: to the living worker that became idle first (of equals the lowest), as its next task.
    So a round gives exactly B results. What happens at one moment happens to the lowest worker first.

    Examples
    --------
    Worker 0 dies at 3 while it runs its second task, and worker 1, idle since 2.5, does both tasks that are left:

    >>> from ata_gym.pools import deterministic
    >>> laws, keys, zero = deterministic([2.0, 2.5]).laws, stream_keys(0), np.zeros(1, np.int64)
    >>> hazards = calm(2)._replace(dies=np.array([[3.0, np.inf]]))
    >>> round = race_round(laws, keys, zero, zero, np.zeros((1, 2), np.int64), np.array([[3, 1]]), 4, hazards)
    >>> round.worker, round.elapsed, round.round_time, round.worker_time, round.lost
    (array([[0, 1, 1, 1]]), array([[1., 0.]]), array([8.]), array([10.5]), array([1]))
    """
    noise, dies, deadline = _none(laws) if hazards is None else _checked(hazards)
    outcome = _empty(allocation, budget)
    kernels.run_race(
        *laws[:7], noise, keys, episode, round_index, started, allocation, dies, deadline, *outcome
    )  # fmt: skip
    return outcome


def dispatch_step(
    laws: Laws,
    keys: Keys,
    episode: Ints,
    round_index: Ints,
    started: Ints,
    underway: Underway,
    action: Bits,
    budget: int,
    hazards: Hazards | None = None,
) -> Completion:
    """Go on from one decision to the next result, of which the round needs B.

    Parameters
    ----------
    laws, keys, episode, round_index, started, budget
        As for :func:`allocation_round`, but ``started`` counts the tasks of this round too.
    underway
        Where the rows are inside their rounds.
    action
        (E, n) 1 for each worker that starts a task if it is idle, else 0. If nobody would be working, everybody starts.
    hazards
        What is in the round besides the laws, the same in all its steps.

    Raises
    ------
    ValueError
        If all workers of a row die.

    Notes
    -----
    A worker that dies is no longer running, and starts nothing; what it lost is its ``elapsed`` at the round's end. If
    the last one that is running dies, all who live start at that moment. Nothing is handed on: that is for the rule to
    decide.

    Of results at the same moment the lowest worker's comes first. A worker's time is its time since the round's start
    without its idle gaps, so that one which always restarts at once has the bits of :func:`race_round`.

    Examples
    --------
    >>> from ata_gym.pools import deterministic
    >>> laws, keys, zero = deterministic([2.0, 3.0]).laws, stream_keys(0), np.zeros(1, np.int64)
    >>> started, underway = np.zeros((1, 2), np.int64), Underway.start(rows=1, n=2, budget=2)
    >>> both = np.ones((1, 2), np.int8)
    >>> first = dispatch_step(laws, keys, zero, zero, started, underway, both, 2)
    >>> second = dispatch_step(laws, keys, zero, zero, first.started, first.underway, both, 2)
    >>> second.worker, second.round_time, second.elapsed, second.round_over
    (array([1]), array([3.]), array([[1., 0.]]), array([ True]))
    """
    noise, dies, _ = _none(laws) if hazards is None else _checked(hazards)
    rows, n = action.shape
    after = started.copy()
    there = Underway._make([part.copy() for part in underway])
    completion = Completion(
        worker=np.empty(rows, np.int64),
        time=np.empty(rows),
        elapsed=np.empty((rows, n)),
        age=np.empty((rows, n)),
        round_over=np.empty(rows, np.bool_),
        round_time=np.empty(rows),
        worker_time=np.empty(rows),
        started=after,
        underway=there,
    )
    kernels.run_dispatch(
        *laws[:7], noise, keys, episode, round_index, budget, action, dies, after, *there, *completion[:7],
    )  # fmt: skip
    return completion


def _none(laws: Laws) -> Hazards:
    return calm(laws.family.shape[-1])


def _checked(hazards: Hazards) -> Hazards:
    if not np.isinf(hazards.dies).any(axis=-1).all():
        raise ValueError("a row's workers all die: dies must be inf for one of them at least")
    return hazards


def _empty(allocation: Ints, budget: int) -> Outcome:
    rows, n = allocation.shape
    return Outcome(
        worker=np.empty((rows, budget), np.int64),
        time=np.empty((rows, budget)),
        elapsed=np.empty((rows, n)),
        started=np.empty((rows, n), np.int64),
        round_time=np.empty(rows),
        worker_time=np.empty(rows),
        lost=np.zeros(rows, np.int64),
    )
