"""Whether loaders without a ``TaskSampler`` give two ranks the same samples."""

import pickle
import weakref
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ata_gym.cluster.torchrun.ranks.parts import RankPart
from ata_gym.typing import Floats

_COMPARED = 2
"""The batches that are compared: two checksums of 24 bits, since of 10,000 ranks two are likely to
have an equal one by accident."""


class LoaderBatches:
    """The batches of a loader without a ``TaskSampler``, which go on from round to round.

    Args:
        place: The number of the loaders before it, the same on all ranks.
    """

    def __init__(self, place: int) -> None:
        self._place = place
        self.iterator: Any = None
        """The iterator of the loader; None where it starts over."""
        self.checksums: list[int] = []
        """The checksums of the first batches of the loader, and of its place."""
        self.compared = False
        """Whether the checksums were compared with the checksums of the other ranks."""

    def record(self, batch: Any) -> None:
        """Take the checksum of a batch, if it is one of the first."""
        if len(self.checksums) < _COMPARED:
            self.checksums.append(checksum([self._place, batch]))


class OpenLoaders(weakref.WeakKeyDictionary[Any, Any]):
    """What is kept of each loader between rounds, and the first batches of all ranks.

    The values are ``LoaderBatches``, or what ``load_ahead`` has begun.
    """

    def __init__(self) -> None:
        super().__init__()
        self._opened = 0
        # The checksums that each rank sent last.
        self._sent: dict[str, list[float]] = {}

    def batches_of(self, loader: Any) -> LoaderBatches:
        """The batches of a loader without a ``TaskSampler``."""
        batches = self.get(loader)
        if batches is None:
            batches = LoaderBatches(self._opened)
            self._opened += 1
            self[loader] = batches
        return batches

    def next_checksums(self, loaders: list[Any]) -> tuple[int, int]:
        """What this rank sends in a round, about one loader; 0 where nothing is to be compared.

        Args:
            loaders: The loaders of the round; those after the first are compared in later rounds.
        """
        batches = self._not_compared(loaders)
        if batches is None:
            return 0, 0
        first, second = (*batches.checksums, 0, 0)[:_COMPARED]
        return first, second

    def compare(
        self, number: int, names: Sequence[str], parts: RankPart[Floats], loaders: list[Any]
    ) -> None:
        """Raise the same ``RuntimeError`` on all ranks, if two of them took the same batches.

        Args:
            number: The number of the round.
            names: The names of all ranks.
            parts: The parts of all ranks.
            loaders: As for ``next_checksums``.
        """
        if parts.first_batch.any():
            self._compare_sent(number, names, parts)
        batches = self._not_compared(loaders)
        if batches is not None:
            batches.compared = True

    def _compare_sent(self, number: int, names: Sequence[str], parts: RankPart[Floats]) -> None:
        """Compare what ranks have sent in this round with what each of them has sent so far."""
        checksums = np.stack([parts.first_batch, parts.second_batch], axis=1).tolist()
        # A rank that has no tasks at first is compared later, with what the others sent before.
        new = {name: pair for name, pair in zip(names, checksums, strict=True) if pair[0] > 0}
        sent = self._sent | new
        by_first: dict[float, list[str]] = {}
        for name, pair in sent.items():
            by_first.setdefault(pair[0], []).append(name)
        for name, pair in new.items():
            for other in by_first[pair[0]]:
                if other != name and _alike(pair, sent[other]):
                    one, two = sorted([name, other], key=list(sent).index)
                    raise RuntimeError(
                        f"round {number}: {one} and {two} computed the same batches, which the"
                        f" loader of each of them gave first. {_CURE}",
                    )
        self._sent = sent

    def _not_compared(self, loaders: list[Any]) -> LoaderBatches | None:
        for loader in loaders:
            batches = self.get(loader)
            if isinstance(batches, LoaderBatches) and batches.checksums and not batches.compared:
                return batches
        return None


def _alike(pair: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the second checksums agree; a rank that had one task so far has no second batch."""
    return pair[1] == other[1] or pair[1] == 0 or other[1] == 0


_CURE = (
    "The step is not taken. Share the samples out: with DataLoader(dataset,"
    " batch_sampler=TaskSampler(allocator, dataset)), which also takes sampler=..., or with"
    " TaskStream(allocator, loader) where samples have no numbers. Where ranks shall compute the"
    " same, give the batches by `with share.timed():` in place of share.take"
)


def checksum(batch: Any, length: int | None = None) -> int:
    """A checksum, of 24 bits, of what a batch holds; 0 if that cannot be read.

    Args:
        batch: Tensors, arrays and other objects, in mappings and sequences.
        length: The number of elements of each tensor that count, from its start; None for all.

    Example:
        >>> ones = {"x": torch.ones(3), "names": ["a", "b"]}
        >>> alike = {"x": torch.ones(3), "names": ["a", "b"]}
        >>> other = {"x": torch.ones(3), "names": ["a", "c"]}
        >>> checksum(ones) == checksum(alike), checksum(ones) == checksum(other)
        (True, False)
    """
    try:
        return _added(batch, 0, length) & 0xFFFFFF or 1
    except (AttributeError, RuntimeError, TypeError, ValueError, pickle.PicklingError):
        return 0


def _added(part: Any, total: int, length: int | None) -> int:
    """The checksum of a part of a batch, from the checksum of what is before it on.

    Equal parts have equal ones in all processes, which is not true of what ``pickle`` makes of
    tensors, sets, and objects that hold them.
    """
    if isinstance(part, Tensor):
        if part.is_sparse:
            # Equal sparse tensors may hold their entries in other orders.
            part = part.coalesce()
            return _added([tuple(part.shape), part.indices(), part.values()], total, length)
        total = zlib.crc32(f"{tuple(part.shape)} {part.dtype}".encode(), total)
        elements = part.detach().flatten()[:length].cpu().contiguous()
        return zlib.crc32(elements.view(torch.uint8).numpy().tobytes(), total)
    if hasattr(part, "__array__"):
        array = np.asarray(part)
        total = zlib.crc32(f"{array.shape} {array.dtype}".encode(), total)
        if array.dtype.hasobject:
            return _added(array.ravel()[:length].tolist(), total, length)
        return zlib.crc32(array.ravel()[:length].tobytes(), total)
    if isinstance(part, Mapping):
        part = [member for item in part.items() for member in item]
    elif isinstance(part, set | frozenset):
        # The order of a set differs from process to process.
        part = sorted(_added(member, 0, length) for member in part)
    elif isinstance(part, weakref.ref):
        part = "a weak reference"
    elif callable(part):
        raise TypeError
    elif hasattr(part, "__dict__") and not isinstance(part, list | tuple):
        part = [type(part).__name__, vars(part)]
    if isinstance(part, list | tuple):
        total = zlib.crc32(f"{len(part)} parts".encode(), total)
        for member in part:
            total = _added(member, total, length)
        return total
    return zlib.crc32(pickle.dumps(part), total)
