"""The order of samples that a sampler of the user's own gives an epoch, alike on all ranks."""

import operator
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch

from ata_gym.models.seeds import generators_preserved, seed_generators
from ata_gym.simulation.keys import derive_keys
from ata_gym.typing import Ints, Keys
from ata_gym.utils.validation import short

_CURE = (
    "let it follow from the sampler's set_epoch(epoch), from its generator, or from torch's global"
    " generator"
)


def checked_length(sampler: Any, size: int, key: Keys) -> int:
    """The number of samples of an epoch of a sampler that can be followed.

    Args:
        sampler: A ``torch.utils.data.Sampler``, or another iterable of numbers of samples.
        size: The number of samples of the dataset.
        key: As for ``sampler_order``.

    Raises:
        ValueError: For a sampler without a length, and for one whose order of an epoch is another
            each time.
    """
    name = type(sampler).__name__
    if not isinstance(sampler, Sized) or not hasattr(sampler, "__iter__"):
        raise ValueError(
            f"sampler needs a length, which is an epoch, and a {name} has none: give it a"
            " __len__, or a list of the numbers of samples",
        )
    length = len(sampler)
    if length < 1:
        raise ValueError(f"sampler must give 1 sample or more in an epoch, and the {name} is empty")
    first, second = (sampler_order(sampler, 0, length, size, key) for _ in range(2))
    if not np.array_equal(first, second):
        raise ValueError(
            f"the {name} gave two different orders for the same epoch, so that training could not"
            f" go on in the middle of one: {_CURE}",
        )
    return length


def sampler_order(sampler: Any, epoch: int, length: int, size: int, key: Keys) -> Ints:
    """The numbers of the samples of an epoch, shape (length,).

    What the sampler draws follows from the epoch, and from its own seed where it has a generator.
    All generators have the states of before afterwards.

    Args:
        sampler: As for ``checked_length``.
        epoch: The epoch, counted from 0; a ``set_epoch`` of the sampler is called with it.
        length: The number of samples of an epoch.
        size: The number of samples of the dataset.
        key: The key of the seeds of the global generators, shape (1,).

    Raises:
        ValueError: If it gives another number of samples, or what is no number of a sample.
    """
    if callable(getattr(sampler, "set_epoch", None)):
        sampler.set_epoch(epoch)
    with generators_preserved(), _generator_seeded(sampler, epoch):
        seed_generators(int(derive_keys(key, epoch, 0)[0]) >> 1)
        # One sample more than fits: some samplers never end.
        given = list(islice(iter(sampler), length + 1))
    name = type(sampler).__name__
    if len(given) != length:
        number = "more" if len(given) > length else str(len(given))
        raise ValueError(
            f"the {name} gave {number} samples in epoch {epoch}, and its length was {length}: each"
            " epoch has as many samples as len(sampler) says at first",
        )
    try:
        order = np.array([operator.index(number) for number in given], np.int64)
    except TypeError:
        raise ValueError(
            f"the {name} must give numbers of samples, not {short(given[0])}; of a sampler of"
            " batches, give the sampler inside of it, and TaskSampler(samples=...)",
        ) from None
    wrong = order[(order < 0) | (order >= size)]
    if len(wrong):
        raise ValueError(
            f"the {name} gave the number {wrong[0]}, and the dataset has the samples 0 to"
            f" {size - 1}",
        )
    return order


@contextmanager
def _generator_seeded(sampler: Any, epoch: int) -> Iterator[None]:
    """Seed the generator of a sampler, if it has one, by its own seed and an epoch."""
    generator = getattr(sampler, "generator", None)
    if not isinstance(generator, torch.Generator):
        yield
        return
    state = generator.get_state()
    seed = np.array([generator.initial_seed() % 2**64], np.uint64)
    generator.manual_seed(int(derive_keys(seed, epoch, 0)[0]) >> 1)
    try:
        yield
    finally:
        generator.set_state(state)
