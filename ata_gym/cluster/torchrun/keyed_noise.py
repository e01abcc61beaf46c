"""Noise of tasks that does not depend on which rank computes them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from ata_gym.models.seeds import seeded
from ata_gym.simulation.keys import derive_keys, stream_keys

_STREAM = 6
"""The stream of keys for the noise of tasks."""


class KeyedNoise:
    """The seeds of torch's generators for each batch, by a seed, the round and the task.

    Args:
        seed: The seed; with None the generators go on as they are.
    """

    def __init__(self, seed: int | None) -> None:
        self._key = None if seed is None else stream_keys(seed, stream=_STREAM)[0]

    def of_round(
        self, rounds: int, device: torch.device
    ) -> Callable[[int], AbstractContextManager[object]]:
        """What gives the context in which a batch of a round is computed.

        Args:
            rounds: The number of rounds before.
            device: Where the model computes.

        Returns:
            A function of the number of the batch's first task in the round.
        """
        key = self._key
        if key is None:
            return nullcontext
        return lambda number: seeded(int(derive_keys(key, rounds, number)) >> 1, device)
