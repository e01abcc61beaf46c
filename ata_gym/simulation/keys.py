"""Random numbers by key: keys for each row and purpose, derived keys, and uniform numbers.

The generator is Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
2011), which computes a number from a key and a counter. A number depends on nothing else: not on
the policy, the batch or the process.
"""

from typing import Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Index, Ints, Keys
from ata_gym.utils.compiled import inlined, kernel

Word = Any
"""An unsigned integer of 32 or 64 bits, whose arithmetic wraps."""


class NoiseKeys(NamedTuple):
    """The keys and counters of the noise of the coming tasks, for E rows of n workers.

    The noise of a task depends on these and on the worker alone.
    """

    keys: Keys
    """The key of each row, shape (E,)."""
    episode: Ints
    """The episode of each row, counted from 0, shape (E,)."""
    round_index: Ints
    """The round of each row, counted from 0, shape (E,).

    Only task times that are replayed by round depend on it.
    """
    started: Ints
    """The tasks that each worker has started in the episode so far, shape (E, n)."""


@inlined
def philox(key: Word, task: int, worker: int, episode: int) -> tuple[Word, Word]:
    """Two 32-bit words of Philox-4x32-10 for a 64-bit key and a (64, 32, 32)-bit counter.

    The constants are the multipliers and the key increments of the paper.
    """
    k0 = np.uint32(key)
    k1 = np.uint32(key >> np.uint64(32))
    c0 = np.uint32(task)
    c1 = np.uint32(np.uint64(task) >> np.uint64(32))
    c2 = np.uint32(worker)
    c3 = np.uint32(episode)
    for _ in range(10):
        low = np.uint64(0xD2511F53) * np.uint64(c0)
        high = np.uint64(0xCD9E8D57) * np.uint64(c2)
        c0 = np.uint32(np.uint32(high >> np.uint64(32)) ^ c1 ^ k0)
        c2 = np.uint32(np.uint32(low >> np.uint64(32)) ^ c3 ^ k1)
        c1 = np.uint32(high)
        c3 = np.uint32(low)
        k0 = np.uint32(k0 + np.uint32(0x9E3779B9))
        k1 = np.uint32(k1 + np.uint32(0xBB67AE85))
    return c0, c1


@inlined
def uniform(key: Word, task: int, worker: int, episode: int) -> float:
    """A number of 52 bits, symmetric within (0, 1).

    Both u and 1 - u are exact, and neither is 0.
    """
    high, low = philox(key, task, worker, episode)
    bits = (np.uint64(high) << np.uint64(20)) | np.uint64(low >> np.uint32(12))
    return (np.float64(bits) + 0.5) * 2.0**-52


@kernel("(),(),()->()")
def _derive_key(key: Keys, episode: Ints, index: Ints, out: Keys) -> None:
    high, low = philox(key[0], index[0], 0, episode[0])
    out[0] = (np.uint64(high) << np.uint64(32)) | np.uint64(low)


@kernel("(),(),(k)", (2,))
def _fill_uniforms(key: Keys, task: Ints, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = uniform(key[0], task[0], i, 0)


def stream_keys(seed: int, rows: int = 1, stream: int = 0) -> Keys:
    """Keys of rows for one purpose, shape (rows,).

    Args:
        seed: Row e has the hashed key of seed ``seed + e``.
        rows: The number of rows.
        stream: The number of the purpose.
    """
    hashes = [np.random.SeedSequence(seed + e, spawn_key=(stream,)) for e in range(rows)]
    return np.array([h.generate_state(1, np.uint64)[0] for h in hashes], np.uint64)


def derive_keys(keys: Keys, episode: Index, index: Index) -> Keys:
    """Fresh keys from ``keys``, one for each (episode, index).

    The three arguments broadcast together.
    """
    derived: Keys = _derive_key(keys, np.asarray(episode, np.int64), np.asarray(index, np.int64))
    return derived


def permutations(stream: int, number: int, size: int, group: int = 0) -> Ints:
    """Random orders of ``size`` things, shape (number, size), the same in each call.

    Each group and each stream has other orders.
    """
    keys = derive_keys(stream_keys(0, stream=stream), group, np.arange(number))
    return np.argsort(uniforms(keys, size), axis=1)


def uniforms(keys: Keys, size: int) -> Floats:
    """The first ``size`` uniform numbers of each key, shape (..., size).

    They are strictly between 0 and 1.

    Example:
        >>> uniforms(stream_keys(0, rows=2), 3).shape
        (2, 3)
    """
    numbers = np.empty((*np.shape(keys), size))
    _fill_uniforms(keys, np.int64(0), numbers)
    return numbers


def uniforms_of_round(
    keys: Keys,
    episode: Ints,
    round_index: Ints,
    place: int,
    size: int,
) -> Floats:
    """Uniform numbers of a round for one change, shape (E, size).

    No task has the same noise.

    Args:
        keys: The key of each row, shape (E,).
        episode: The episode of each row, shape (E,).
        round_index: The round of each row, shape (E,).
        place: The index of the change in the list of changes.
        size: How many numbers each row gets.
    """
    numbers = np.empty((len(keys), size))
    _fill_uniforms(keys_of_change(keys, episode, place), round_index, numbers)
    return numbers


def keys_of_change(keys: Keys, episode: Ints, place: int) -> Keys:
    """The keys of the noise of one change, shape (E,), whose counter is the round.

    Args:
        keys: The key of each row, shape (E,).
        episode: The episode of each row, shape (E,).
        place: The index of the change in the list of changes.
    """
    # The index is negative, which no task's number is.
    return derive_keys(keys, episode, -1 - place)
