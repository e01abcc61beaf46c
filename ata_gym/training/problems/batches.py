"""The batches of a loader in a keyed order over all its epochs.

Reading may begin at any batch.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ata_gym.models.seeds import generators_preserved, seed_generators
from ata_gym.simulation.keys import derive_keys

# Purposes of keys.
_BATCH = 0
_EPOCH = 1


def keyed_batches(source: Any, key: int) -> "Batches":
    """The batches of a source over all its epochs, numbered t = 0, 1 and so on.

    A batch depends on the key and on t alone: what a shuffling sampler draws is keyed by the epoch,
    and what the dataset and the collate function draw, from torch, NumPy or ``random``, by t.
    Global generators stay as they are. The loader's worker processes, its pinned memory and its
    collate function are used. Of an ``IterableDataset``, or another iterable, the batches before t
    are read and dropped where t does not follow the batch that was asked for last.

    Args:
        source: A ``DataLoader``, a sequence, or an iterable that can be iterated again.
        key: Keys the order and the draws.

    Raises:
        TypeError: If ``source`` is anything else.
        ValueError: If a source has no batches.
    """
    if isinstance(source, DataLoader):
        if isinstance(source.dataset, IterableDataset):
            return _StreamBatches(source, key)
        return _LoaderBatches(source, key)
    if isinstance(source, Mapping | str) or not (
        hasattr(source, "__iter__") or hasattr(source, "__getitem__")
    ):
        raise TypeError(
            "batches must be a DataLoader, a sequence of batches or an iterable of them, not"
            f" {source!r}",
        )
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return _SequenceBatches(source, key)
    if isinstance(source, Iterator):
        raise TypeError(
            f"batches must give one epoch after the other, and one pass uses up {source!r}: give a"
            " list",
        )
    return _StreamBatches(source, key)


class _SequenceBatches:
    """A sequence, in its own order."""

    def __init__(self, source: Any, key: int) -> None:
        self._source = source
        self._key = key
        if len(source) == 0:
            raise _no_batches_error(source)

    def __getitem__(self, t: int) -> Any:
        # A list or a tuple draws nothing, so that no generator needs a seed.
        if isinstance(self._source, list | tuple):
            return self._source[t % len(self._source)]
        with generators_preserved():
            seed_generators(_derived_keys(self._key, _BATCH, t))
            return self._source[t % len(self._source)]


class _LoaderBatches:
    """A loader of a dataset with indices: the sampler's order is read at the start of an epoch."""

    def __init__(self, loader: DataLoader[Any], key: int) -> None:
        self._loader = loader
        self._key = key
        self._sampler: Any = (
            loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        )
        # For each epoch that was read so far, the number of batches up to its end.
        self._ends: list[int] = []
        # The epoch whose order was read last, and the indices of each of its batches.
        self._epoch = -1
        self._order = list[Any]()
        # The running iterator, and the number t of its next batch; -1 if it cannot be used.
        self._iterator: Iterator[Any] = iter(())
        self._next = -1

    def __getitem__(self, t: int) -> Any:
        with generators_preserved():
            if t != self._next or t in self._ends:
                self._iterator = self._from(t)
            # If reading fails, the next call begins a new iterator.
            self._next = -1
            batch = next(self._iterator)
        self._next = t + 1
        return batch

    def _from(self, t: int) -> Iterator[Any]:
        """The batches from t on to the end of its epoch."""
        while not self._ends or t >= self._ends[-1]:
            self._read_order(len(self._ends))
            start = 0
            if self._ends:
                start = self._ends[-1]
            self._ends.append(start + len(self._order))
        epoch = bisect_right(self._ends, t)
        if epoch != self._epoch:
            self._read_order(epoch)
        start = self._ends[epoch] - len(self._order)
        keys = _derived_keys(self._key, _BATCH, np.arange(t, self._ends[epoch]))
        keyed = list(zip(keys, self._order[t - start :], strict=True))
        loader = self._loader
        # The loader's worker processes are seeded from torch's default generator.
        seed_generators(_derived_keys(self._key, _EPOCH, epoch))
        epoch_loader = DataLoader(
            _KeyedLoading(loader),
            batch_size=None,
            sampler=keyed,
            collate_fn=_identity,
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            prefetch_factor=loader.prefetch_factor,
        )
        return iter(epoch_loader)

    def _read_order(self, epoch: int) -> None:
        """Read the indices of the batches of an epoch, with all generators seeded by its key."""
        key = _derived_keys(self._key, _EPOCH, epoch)
        samplers: tuple[Any, ...] = (
            self._sampler,
            self._loader.sampler,
            getattr(self._sampler, "sampler", None),
        )
        # A sampler may draw from a generator of its own, or of the loader: each is seeded, once.
        by_id = {
            id(part): part
            for part in (getattr(owner, "generator", None) for owner in (self._loader, *samplers))
        }
        generators = [part for part in by_id.values() if isinstance(part, torch.Generator)]
        states = [part.get_state() for part in generators]
        for sampler in samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        try:
            seed_generators(key)
            for part in generators:
                part.manual_seed(key)
            order: list[Any] = list(self._sampler)
        finally:
            for part, state in zip(generators, states, strict=True):
                part.set_state(state)
        if not order:
            raise _no_batches_error(self._loader)
        self._epoch = epoch
        self._order = order


class _KeyedLoading(Dataset[Any]):
    """A dataset of batches, whose items are (key, indices).

    An item is loaded with all generators seeded by its key.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._dataset: Any = loader.dataset
        self._collate = loader.collate_fn
        self._is_batched = loader.batch_sampler is not None

    def __getitem__(self, item: tuple[int, Any]) -> Any:
        key, indices = item
        seed_generators(key)
        # The dataset of a loader with batch_size=None gives batches.
        if not self._is_batched:
            return self._collate(self._dataset[indices])
        if hasattr(self._dataset, "__getitems__"):
            return self._collate(self._dataset.__getitems__(indices))
        return self._collate([self._dataset[index] for index in indices])


class _StreamBatches:
    """An iterable that is read from its start: its epochs may have no length, or no end."""

    def __init__(self, source: Any, key: int) -> None:
        self._source = source
        self._key = key
        self._restart()

    def _restart(self) -> None:
        self._iterator: Iterator[Any] = iter(())
        self._epoch = self._next = 0

    def __getitem__(self, t: int) -> Any:
        if t < self._next:
            self._restart()
        with generators_preserved():
            try:
                while True:
                    batch = self._read()
                    self._next += 1
                    if self._next > t:
                        return batch
            except BaseException:
                # The place of the iterator is unknown.
                self._restart()
                raise

    def _read(self) -> Any:
        """The next batch, if need be of a new epoch."""
        for fresh in (False, True):
            if fresh:
                seed_generators(_derived_keys(self._key, _EPOCH, self._epoch))
                self._iterator = iter(self._source)
                self._epoch += 1
            seed_generators(_derived_keys(self._key, _BATCH, self._next))
            for batch in self._iterator:
                return batch
        raise _no_batches_error(self._source)


def _derived_keys(key: int, purpose: int, index: Any) -> Any:
    return derive_keys(np.uint64(key), purpose, index).tolist()  # type: ignore[arg-type]


def _identity(batch: Any) -> Any:
    return batch


def _no_batches_error(source: Any) -> ValueError:
    return ValueError(
        f"batches must give at least one batch in each epoch, but {source!r} gives none",
    )


Batches = _SequenceBatches | _LoaderBatches | _StreamBatches
