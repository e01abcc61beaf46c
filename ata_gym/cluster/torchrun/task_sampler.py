"""Which samples each rank computes: every sample once in an epoch, whatever the allocations."""

import zlib
from collections.abc import Iterator, MutableMapping, Sized
from typing import Any, Protocol

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, Sampler

from ata_gym.simulation.keys import derive_keys, stream_keys, uniforms
from ata_gym.typing import Ints
from ata_gym.utils.validation import flag, whole_number

_ORDER = 3  # the stream of keys for the orders of epochs
_END = object()


class _Allocated(Protocol):
    """What a ``TaskSampler`` asks of a ``TorchAllocator``."""

    @property
    def budget(self) -> int: ...

    @property
    def rounds(self) -> int: ...

    @property
    def share(self) -> Any: ...


class TaskSampler(Sampler[list[int]]):
    """The ``batch_sampler`` of a ``DataLoader`` whose batches are the tasks of a rank's share.

    All ranks follow one order of samples. Task t of the whole training, t = k B + b for task b of round k, has
    ``samples`` samples of it, from place t ``samples`` on, and the allocation says which rank computes it. So the
    gradient is that of one process with the same B, whatever the allocation and the number of ranks. The order is one
    epoch after the other, each with every sample once; a round in which an epoch ends goes on in the next one, without
    the samples that it had already, as long as two rounds fit into an epoch. The sampler has no state of its own.

    - ``allocator``: its rounds are followed: each ``iter`` of the loader belongs to the one that is open, and begins
      after the tasks that are done. With worker processes, let the loader keep them (``persistent_workers=True``).
    - ``dataset``: the dataset that the loader reads, which finds samples by number, or its number of samples.
    - ``samples``: samples of a task.
    - ``together``: tasks that are computed in one pass, a batch of up to ``together * samples`` samples. Only their sum
      of times is known then, and each task counts as an equal part.
    - ``shuffle``, ``seed``: whether each epoch has an order of its own, and the seed of these.

    ValueError is raised for a number below 1, or a dataset whose samples have no numbers, such as an
    ``IterableDataset``.

    >>> from types import SimpleNamespace
    >>> share = SimpleNamespace(tasks=2, first=1, done=0, orders=[])
    >>> allocator = SimpleNamespace(budget=3, rounds=1, share=share)  # as in round 1
    >>> list(TaskSampler(allocator, 10, samples=2, shuffle=False)), list(TaskSampler(allocator, 10, together=2))
    ([[8, 9], [0, 1]], [[0, 7]])
    """

    def __init__(
        self,
        allocator: _Allocated,
        dataset: Sized | int,
        *,
        samples: int = 1,
        together: int = 1,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        self._allocator = allocator
        self._size = whole_number("the number of samples", dataset if isinstance(dataset, int) else _size_of(dataset))
        self._samples, self.together = whole_number("samples", samples), whole_number("together", together)
        self._shuffle, self._key = flag("shuffle", shuffle), stream_keys(whole_number("seed", seed, 0), stream=_ORDER)
        self._of_round = allocator.budget * self._samples
        self._orders: dict[int, Ints] = {}
        followed = f"{self._size} {self._samples} {shuffle} {seed}"
        self.checksum = zlib.crc32(followed.encode()) & 0xFFFFFF or 1  # of what the order follows from; never 0
        self.given = 0  # batches since the last ``iter``

    def __iter__(self) -> Iterator[list[int]]:
        """The samples of this rank's batches in the round that is open, after those of the tasks that are done."""
        share = self._allocator.share
        share.orders.append(self.checksum)
        self.given = 0
        start = self._allocator.rounds * self._of_round + (share.first + share.done) * self._samples
        own = self.samples_from(start, (share.tasks - share.done) * self._samples)
        step = self.together * self._samples
        for begin in range(0, len(own), step):
            self.given += 1
            yield own[begin : begin + step]

    def samples_from(self, start: int, number: int) -> list[int]:
        """``number`` samples of the order of the whole training, from place ``start`` on."""
        places = np.arange(start, start + number)
        epochs = places // self._size
        parts = [self._order(epoch)[places[epochs == epoch] % self._size] for epoch in np.unique(epochs).tolist()]
        return [sample for part in parts for sample in part.tolist()]

    def _order(self, epoch: int) -> Ints:
        if epoch not in self._orders:
            order = self._shuffled(epoch)
            had = epoch * self._size % self._of_round  # samples of the epoch before, in the round where this one begins
            if had and self._shuffle and self._size >= 2 * self._of_round:
                head = order[: self._of_round]  # which does not reach the end, where the next epoch looks
                again = np.isin(head, self._shuffled(epoch - 1)[-had:])
                order[: self._of_round] = np.concatenate([head[~again], head[again]])
            self._orders = {known: self._orders[known] for known in self._orders if known >= epoch - 1}
            self._orders[epoch] = order
        return self._orders[epoch]

    def _shuffled(self, epoch: int) -> Ints:
        if not self._shuffle:
            return np.arange(self._size)
        numbers = uniforms(derive_keys(self._key, epoch, 0), self._size)[0]
        return np.argsort(numbers, kind="stable")


def batches(loader: Any, share: Any, left_off: MutableMapping[Any, Iterator[Any]]) -> Iterator[tuple[Any, int]]:
    """Yield the batches of a loader, and the number of tasks of each; ValueError as of ``Share.take``.

    ``left_off`` holds the iterators of loaders without a ``TaskSampler``, which go on in the next round.
    """
    sampler = _sampler_of(loader)
    if sampler is None:
        yield from ((batch, 1) for batch in _endless(loader, share, left_off))
        return
    sampler.given, left = 0, share.tasks - share.done
    for number, batch in enumerate(loader):
        if sampler.given <= number:
            break
        tasks = min(sampler.together, left)
        left -= tasks
        yield batch, tasks
    raise _not_understood(loader)


def _sampler_of(loader: Any) -> TaskSampler | None:
    """The ``TaskSampler`` that says which batches a loader reads; None if there is none.

    Samplers around it that have it as their ``batch_sampler``, as those of accelerate have, choose among its batches by
    rank or by place. The allocation has chosen already, so they are taken out of the loader.
    """
    around: list[Any] = []
    sampler = _outer(loader)
    while sampler is not None and not isinstance(sampler, TaskSampler):
        around.append(sampler)
        sampler = getattr(sampler, "batch_sampler", None)
    if sampler is not None and around:
        home = getattr(loader, "base_dataloader", loader)  # of accelerate
        if not isinstance(home, DataLoader) or any(getattr(one, "split_batches", False) for one in around):
            raise _not_understood(loader)
        vars(home).update(batch_sampler=sampler, _iterator=None)  # a DataLoader refuses to be told by assignment
    return sampler if isinstance(sampler, TaskSampler) else None


def _endless(loader: Any, share: Any, left_off: MutableMapping[Any, Iterator[Any]]) -> Iterator[Any]:
    """Yield the batches of a loader without a ``TaskSampler``, from where the last round stopped, again and again."""
    asked, new = len(share.orders), False
    while True:
        if loader not in left_off:
            left_off[loader], new = iter(loader), True
        batch = next(left_off[loader], _END)
        if len(share.orders) > asked:
            del left_off[loader]
            raise _not_understood(loader)
        if batch is not _END:
            new = False
            yield batch
            continue
        del left_off[loader]
        if new:
            raise ValueError(f"the {type(loader).__name__} has no batches")


def _outer(loader: Any) -> Any:
    """The sampler of a ``DataLoader``, of batches if it has one; None for anything else."""
    sampler = getattr(loader, "batch_sampler", None)
    return getattr(loader, "sampler", None) if sampler is None else sampler


def _not_understood(loader: Any) -> ValueError:
    sampler = _outer(loader)
    within = "" if sampler is None or isinstance(sampler, TaskSampler) else f" with a {type(sampler).__name__}"
    return ValueError(
        f"the {type(loader).__name__}{within} holds a TaskSampler and does not give its batches one for one: give "
        "share.take(...) a DataLoader with batch_sampler=TaskSampler(...)"
    )


def _size_of(dataset: Any) -> int:
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
        raise ValueError(  # noqa: TRY004 - a bad argument, as all others
            f"TaskSampler finds samples by their numbers, and a {type(dataset).__name__} gives them in an order of its "
            "own, or does not know how many it has: leave TaskSampler out, and each batch of the loader is a task"
        )
    return len(dataset)
