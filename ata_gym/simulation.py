"""One round for a batch of rows: pure functions of arrays, with no Gymnasium in them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym import kernels
from ata_gym.compiled import Gufunc
from ata_gym.kernels import Floats, Ints, Keys
from ata_gym.pools.laws import Laws

__all__ = [
    "Floats",
    "Ints",
    "Keys",
    "Outcome",
    "allocation_round",
    "derive_keys",
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
    laws: Laws, keys: Keys, episode: Ints | int, round_index: Ints | int, worker: Ints | int, task: Ints | int
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
    times: Floats = kernels.one_time(
        laws.family, laws.shift, laws.scale, laws.shape, laws.table, laws.first, laws.length, keys, *indices
    )
    return times


def allocation_round(
    laws: Laws, keys: Keys, episode: Ints, round_index: Ints, started: Ints, allocation: Ints, budget: int
) -> Outcome:
    """Run one round in which every task of ``allocation``, shape (E, n), each row summing to B, is run to its end.

    Parameters
    ----------
    laws
        The law of each worker's task times.
    keys, episode, round_index
        (E,) each row's key, its episode and its round, both counted from 0.
    started
        (E, n) tasks that each worker has started in the episode before this round.
    allocation
        (E, n) tasks for each worker, already checked.
    budget
        Results B that the round needs.
    """
    return _run(kernels.run_allocation, laws, keys, episode, round_index, started, allocation, budget)


def race_round(
    laws: Laws, keys: Keys, episode: Ints, round_index: Ints, started: Ints, allocation: Ints, budget: int
) -> Outcome:
    """Run one round in which only the first B results of ``allocation`` count and the rest is cancelled.

    Each worker starts its tasks one after the other. Of results at the same moment the lowest worker's comes first. The
    parameters are those of :func:`allocation_round`, but each row sums to B or more; with B, both give the same bits.
    """
    return _run(kernels.run_race, laws, keys, episode, round_index, started, allocation, budget)


def _run(
    kernel: Gufunc,
    laws: Laws,
    keys: Keys,
    episode: Ints,
    round_index: Ints,
    started: Ints,
    allocation: Ints,
    budget: int,
) -> Outcome:
    rows, n = allocation.shape
    outcome = Outcome(
        worker=np.empty((rows, budget), np.int64),
        time=np.empty((rows, budget)),
        elapsed=np.empty((rows, n)),
        started=np.empty((rows, n), np.int64),
        round_time=np.empty(rows),
        worker_time=np.empty(rows),
    )
    kernel(
        laws.family, laws.shift, laws.scale, laws.shape, laws.table, laws.first, laws.length,
        keys, episode, round_index, started, allocation, *outcome,
    )  # fmt: skip
    return outcome
