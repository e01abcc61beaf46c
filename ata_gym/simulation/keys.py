"""Random numbers by key: keys for each row and purpose, fresh keys derived from them, and uniform numbers.

The generator is Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), which computes
a number from a key and a counter. A number depends on nothing else: not on the policy, the batch or the process.
"""

from typing import Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Index, Ints, Keys
from ata_gym.utils.compiled import inlined, kernel

Word = Any  # an unsigned integer of 32 or 64 bits, whose arithmetic wraps


class NoiseKeys(NamedTuple):
    """What the noise of the coming tasks of E rows depends on, with n workers, beside the worker of each task."""

    keys: Keys  # (E,) the key of each row
    episode: Ints  # (E,) its episode, counted from 0
    round_index: Ints  # (E,) its round, counted from 0; only task times that are replayed by round depend on it
    started: Ints  # (E, n) tasks that each worker has started in the episode so far


@inlined
def philox(key: Word, task: int, worker: int, episode: int) -> tuple[Word, Word]:
    """Two 32-bit words of Philox-4x32-10 for a 64-bit key and a (64, 32, 32)-bit counter."""
    k0, k1 = np.uint32(key), np.uint32(key >> np.uint64(32))
    c0, c1 = np.uint32(task), np.uint32(np.uint64(task) >> np.uint64(32))
    c2, c3 = np.uint32(worker), np.uint32(episode)
    for _ in range(10):
        low, high = np.uint64(0xD2511F53) * np.uint64(c0), np.uint64(0xCD9E8D57) * np.uint64(c2)
        c0 = np.uint32(np.uint32(high >> np.uint64(32)) ^ c1 ^ k0)
        c2 = np.uint32(np.uint32(low >> np.uint64(32)) ^ c3 ^ k1)
        c1, c3 = np.uint32(high), np.uint32(low)
        k0 = np.uint32(k0 + np.uint32(0x9E3779B9))
        k1 = np.uint32(k1 + np.uint32(0xBB67AE85))
    return c0, c1


@inlined
def uniform(key: Word, task: int, worker: int, episode: int) -> float:
    """A number of 52 bits, symmetric within (0, 1), so that u and 1 - u are both exact and neither is 0."""
    high, low = philox(key, task, worker, episode)
    return (np.float64((np.uint64(high) << np.uint64(20)) | np.uint64(low >> np.uint32(12))) + 0.5) * 2.0**-52


@kernel("(),(),()->()")
def _derive_key(key: Keys, episode: Ints, index: Ints, out: Keys) -> None:
    high, low = philox(key[0], index[0], 0, episode[0])
    out[0] = (np.uint64(high) << np.uint64(32)) | np.uint64(low)


@kernel("(),(),(k)", (2,))
def _fill_uniforms(key: Keys, task: Ints, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = uniform(key[0], task[0], i, 0)


def stream_keys(seed: int, rows: int = 1, stream: int = 0) -> Keys:
    """Keys of rows for the purpose ``stream``, shape (rows,); row e has the key of seed ``seed + e``, hashed."""
    hashes = [np.random.SeedSequence(seed + e, spawn_key=(stream,)) for e in range(rows)]
    return np.array([h.generate_state(1, np.uint64)[0] for h in hashes], np.uint64)


def derive_keys(keys: Keys, episode: Index, index: Index) -> Keys:
    """Fresh keys from ``keys``, one for each (episode, index); the three broadcast together."""
    fresh: Keys = _derive_key(keys, np.asarray(episode, np.int64), np.asarray(index, np.int64))
    return fresh


def permutations(stream: int, number: int, size: int, group: int = 0) -> Ints:
    """Random orders of ``size`` things, shape (number, size), the same in each call; those of each group differ."""
    keys = derive_keys(stream_keys(0, stream=stream), group, np.arange(number))
    return np.argsort(uniforms(keys, size), axis=1)


def uniforms(keys: Keys, size: int) -> Floats:
    """The first ``size`` uniform numbers of each key, shape (..., size), strictly between 0 and 1.

    >>> uniforms(stream_keys(0, rows=2), 3).shape
    (2, 3)
    """
    numbers = np.empty((*np.shape(keys), size))
    _fill_uniforms(keys, np.int64(0), numbers)
    return numbers


def uniforms_of_round(keys: Keys, episode: Ints, round_index: Ints, place: int, size: int) -> Floats:
    """Uniform numbers of a round for the change at ``place`` in the list of changes, shape (E, size).

    ``keys``, ``episode`` and ``round_index`` have shape (E,). No task has the same noise.
    """
    numbers = np.empty((len(keys), size))
    _fill_uniforms(derive_keys(keys, episode, -1 - place), round_index, numbers)  # of no task: its number is negative
    return numbers
