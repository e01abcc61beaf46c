"""Seeding: the generators of torch, ``numpy.random`` and ``random``, within a block."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


class seeded:  # noqa: N801
    """Seed torch's default generators with a key, within a block.

    Afterwards they have the states that they had before. A class takes a third of the time that a
    context made of a generator takes.
    """

    def __init__(self, key: int, device: torch.device) -> None:
        self._key = key
        self._generators = [torch.default_generator]
        if device.type == "cuda":
            # Before the initialisation torch has no CUDA generators.
            torch.cuda.init()  # type: ignore[no-untyped-call]
            self._generators.append(torch.cuda.default_generators[device.index])

    def __enter__(self) -> None:
        self._states = [generator.get_state() for generator in self._generators]
        for generator in self._generators:
            generator.manual_seed(self._key)

    def __exit__(self, *_error: object) -> None:
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_state(state)


def seed_generators(key: int) -> None:
    """Seed the global generators of torch on the CPU, ``random`` and ``numpy.random``.

    Datasets of users draw from any of them.

    Args:
        key: A key of up to 64 bits.
    """
    torch.default_generator.manual_seed(key)
    random.seed(key)
    # NumPy takes seeds of 32 bits.
    np.random.seed(key % 2**32)  # noqa: NPY002


@contextmanager
def generators_preserved() -> Iterator[None]:
    """Give the generators of ``seed_generators`` their states back after a block."""
    torch_state = torch.default_generator.get_state()
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        torch.default_generator.set_state(torch_state)
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
