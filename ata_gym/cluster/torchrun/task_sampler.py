"""Which samples each rank computes: every sample once in an epoch, whatever the allocations."""

import zlib
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sized
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.utils.data import DataLoader, IterableDataset, Sampler

from ata_gym.cluster.torchrun.keyed_samples import KeyedIndex, KeyedSamples
from ata_gym.models.seeds import generators_preserved, seed_generators
from ata_gym.simulation.keys import derive_keys, stream_keys, uniforms
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import flag, short, whole_number

_ORDER_STREAM = 3
"""The stream of keys for the orders of epochs."""
_NOISE_STREAM = 7
"""The stream of keys for the noise of ``KeyedSamples``."""
_END_OF_BATCHES = object()


class BatchCost(NamedTuple):
    """The work in a batch."""

    tasks: int
    """The number of its tasks."""
    cost: float
    """The mean cost of its samples, relative to the mean of all samples."""


class _TaskRange(Protocol):
    """What a ``TaskSampler`` asks of a ``Share``."""

    @property
    def tasks(self) -> int: ...

    @property
    def first(self) -> int: ...

    @property
    def done(self) -> int: ...

    @property
    def orders(self) -> list[int]: ...


@dataclass(frozen=True)
class _NextShare:
    """The share of the next round, none of whose tasks is done."""

    tasks: int
    first: int
    done: int = 0
    orders: list[int] = field(default_factory=list)


class _OpenRounds(Protocol):
    """What a ``TaskSampler`` asks of a ``TorchAllocator``."""

    @property
    def budget(self) -> int: ...

    @property
    def rounds(self) -> int: ...

    @property
    def share(self) -> _TaskRange: ...


class TaskSampler(Sampler[list[int]]):
    """The ``batch_sampler`` of a ``DataLoader`` whose batches are the tasks of a rank's share.

    All ranks follow one order of samples. Task t of the whole training, t = k B + b for task b of
    round k, has ``samples`` samples of it, from place t ``samples`` on, and the allocation says
    which rank computes it. So one process with the same B has the same gradient, whatever the
    allocation and the number of ranks. The order is one epoch after the other, each with every
    sample once. A round in which an epoch ends goes on in the next epoch, without the samples that
    it had already, as long as two rounds fit into an epoch. The sampler has no state of its own.

    Args:
        allocator: Its rounds are followed: each ``iter`` of the loader belongs to the round that is
            open, and begins after the tasks that are done. With worker processes, let the loader
            keep them (``persistent_workers=True``).
        dataset: The dataset that the loader reads, which finds samples by number, or its number of
            samples. With ``KeyedSamples`` the random augmentation of samples does not depend on the
            allocation either.
        samples: The number of samples of a task.
        tasks_per_pass: The number of tasks that are computed in one pass, a batch of up to
            ``tasks_per_pass * samples`` samples; None for the whole share. Only their sum of times
            is known then, and each task counts as an equal part. It may differ by rank.
        shuffle: Whether each epoch has an order of its own.
        seed: The seed of these orders.
        sampler: The order of samples in place of these: the numbers that it gives, the same on
            every rank and as many in each epoch. Before an epoch its ``set_epoch`` is called, where
            it has one, and the generators that it draws from are seeded, its own and the global
            ones.
        cost: For each sample what the time of its task is proportional to, such as its tokens,
            shape (samples,), above 0. The times of tasks are then divided by their costs and
            multiplied by the mean cost, so that policies learn the workers and not the samples.

    Raises:
        ValueError: For a number below 1, costs that are not above 0, a sampler that gives no
            numbers of samples, or a dataset whose samples have no numbers, such as an
            ``IterableDataset``.

    Example:
        >>> from types import SimpleNamespace
        >>> share = SimpleNamespace(tasks=2, first=1, done=0, orders=[])
        >>> in_round_1 = SimpleNamespace(budget=3, rounds=1, share=share)
        >>> list(TaskSampler(in_round_1, 10, samples=2, shuffle=False))
        [[8, 9], [0, 1]]
        >>> list(TaskSampler(in_round_1, 10, tasks_per_pass=2))
        [[0, 7]]
    """

    def __init__(
        self,
        allocator: _OpenRounds,
        dataset: Sized | int,
        *,
        samples: int = 1,
        tasks_per_pass: int | None = 1,
        shuffle: bool = True,
        seed: int = 0,
        sampler: Iterable[int] | None = None,
        cost: ArrayLike | None = None,
    ) -> None:
        self._allocator = allocator
        size = dataset if isinstance(dataset, int) else _size_of(dataset)
        self._size = whole_number("the number of samples", size)
        self._samples = whole_number("samples", samples)
        if tasks_per_pass is None:
            self.tasks_per_pass = allocator.budget
        else:
            self.tasks_per_pass = whole_number("tasks_per_pass", tasks_per_pass)
        if cost is None:
            self._cost = None
        else:
            self._cost = _relative(cost, self._size)
        self._shuffle = flag("shuffle", shuffle)
        self._key = stream_keys(whole_number("seed", seed, 0), stream=_ORDER_STREAM)
        self._sampler = sampler
        order_text = ""
        if sampler is not None:
            self._dataset_size = self._size
            first_order = self._sampled(0)
            self._size = len(first_order)
            order_text = f" {zlib.crc32(first_order.tobytes())}"
        if isinstance(dataset, KeyedSamples):
            self._noise = stream_keys(seed, stream=_NOISE_STREAM)[0]
        else:
            self._noise = None
        self._samples_per_round = allocator.budget * self._samples
        self._order_by_epoch: dict[int, Ints] = {}
        description = f"{self._size} {self._samples} {shuffle} {seed}{order_text}"
        self.checksum = zlib.crc32(description.encode()) & 0xFFFFFF or 1
        """A checksum, of 24 bits, of what the order follows from; never 0."""
        self.next_share: _TaskRange | None = None
        """The share of the next round, while a loader begins to load it."""
        self.batch_costs: list[BatchCost] = []
        """The work in each batch since the last ``iter``."""

    @property
    def rounds(self) -> int:
        """The number of whole rounds in an epoch."""
        return self._size // self._samples_per_round

    def __iter__(self) -> Iterator[list[int]]:
        """The samples of this rank's batches in the round that is open.

        They begin after the tasks that are done.
        """
        if self.next_share is None:
            share = self._allocator.share
        else:
            share = self.next_share
        share.orders.append(self.checksum)
        self.batch_costs = []
        start, number = self.place(share)
        samples = self.samples_from(start, number)
        step = self.tasks_per_pass * self._samples
        for begin in range(0, len(samples), step):
            batch = samples[begin : begin + step]
            if self._cost is None:
                cost = 1.0
            else:
                cost = float(self._cost[batch].mean())
            self.batch_costs.append(BatchCost(len(batch) // self._samples, cost))
            yield batch if self._noise is None else self._keyed(batch, start + begin)

    def place(self, share: _TaskRange) -> tuple[int, int]:
        """Where in the order the samples of a share's other tasks begin, and their number."""
        start = (
            self._allocator.rounds * self._samples_per_round
            + (share.first + share.done) * self._samples
        )
        return start, (share.tasks - share.done) * self._samples

    def samples_from(self, start: int, number: int) -> list[int]:
        """``number`` samples of the order of the whole training, from place ``start`` on."""
        places = np.arange(start, start + number)
        epochs = places // self._size
        parts = [
            self._order(epoch)[places[epochs == epoch] % self._size]
            for epoch in np.unique(epochs).tolist()
        ]
        return [sample for part in parts for sample in part.tolist()]

    def _keyed(self, samples: list[int], start: int) -> list[int]:
        """Samples with the keys of their noise; the first has place ``start`` in the order."""
        assert self._noise is not None
        # torch takes seeds of 63 bits.
        keys = derive_keys(self._noise, np.arange(start, start + len(samples)), 0) >> np.uint64(1)
        return [
            KeyedIndex.from_number(sample, key)
            for sample, key in zip(samples, keys.tolist(), strict=True)
        ]

    def _order(self, epoch: int) -> Ints:
        """The order of the samples in an epoch, shape (size,)."""
        if epoch not in self._order_by_epoch:
            order = self._shuffled(epoch)
            # The round in which this epoch begins has so many samples of the epoch before. They
            # move behind the others within the first round's length, so that the round has no
            # sample twice. The end of the order stays, which the next epoch looks at.
            overlap = epoch * self._size % self._samples_per_round
            rearranges = self._shuffle and self._sampler is None
            if overlap and rearranges and self._size >= 2 * self._samples_per_round:
                head = order[: self._samples_per_round]
                repeated = np.isin(head, self._shuffled(epoch - 1)[-overlap:])
                order[: self._samples_per_round] = np.concatenate([head[~repeated], head[repeated]])
            self._order_by_epoch = {
                kept_epoch: self._order_by_epoch[kept_epoch]
                for kept_epoch in self._order_by_epoch
                if kept_epoch >= epoch - 1
            }
            self._order_by_epoch[epoch] = order
        return self._order_by_epoch[epoch]

    def _shuffled(self, epoch: int) -> Ints:
        if self._sampler is not None:
            order = self._sampled(epoch)
            if len(order) != self._size:
                raise ValueError(
                    f"the {type(self._sampler).__name__} must give as many samples in each epoch:"
                    f" {self._size} in the first, and {len(order)} in epoch {epoch}",
                )
            return order
        if not self._shuffle:
            return np.arange(self._size)
        numbers = uniforms(derive_keys(self._key, epoch, 0), self._size)[0]
        return np.argsort(numbers, kind="stable")

    def _sampled(self, epoch: int) -> Ints:
        """What the user's sampler gives in an epoch, the same on every rank."""
        sampler: Any = self._sampler
        # torch takes seeds of 63 bits.
        key = int(derive_keys(self._key, epoch, 0)[0] >> np.uint64(1))
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        if isinstance(getattr(sampler, "generator", None), torch.Generator):
            sampler.generator.manual_seed(key)
        with generators_preserved():
            seed_generators(key)
            order = np.asarray(list(sampler))
        is_order = order.ndim == 1 and len(order) and np.issubdtype(order.dtype, np.integer)
        if not is_order or order.min() < 0 or order.max() >= self._dataset_size:
            raise ValueError(
                f"sampler must give numbers of samples, from 0 to {self._dataset_size - 1}, not"
                f" {short(order)}",
            )
        return order.astype(np.int64)


def batches(
    loader: Any,
    share: _TaskRange,
    iterators: MutableMapping[Any, Any],
) -> Iterator[tuple[Any, BatchCost]]:
    """The batches of a loader, with the work in each.

    Args:
        loader: The loader.
        share: The share of the round that is open.
        iterators: The iterators of loaders without a ``TaskSampler``, which go on in the next
            round, and what ``load_ahead`` has begun.

    Raises:
        ValueError: As ``Share.take`` does.
    """
    sampler = sampler_of(loader)
    if sampler is None:
        return ((batch, BatchCost(1, 1.0)) for batch in _endless(loader, share, iterators))
    sampler.batch_costs = []
    loaded = iterators.pop(loader, None)
    # Batches that were loaded ahead are used only if they are exactly what is needed now.
    if isinstance(loaded, _LoadedBatches) and loaded.place == _place(sampler, share):
        share.orders.append(sampler.checksum)
        sampler.batch_costs = loaded.batch_costs
        return _with_costs(loader, sampler, loaded.batches)
    return _with_costs(loader, sampler, iter(loader))


def _with_costs(
    loader: Any,
    sampler: TaskSampler,
    iterator: Iterator[Any],
) -> Iterator[tuple[Any, BatchCost]]:
    for number, batch in enumerate(iterator):
        if len(sampler.batch_costs) <= number:
            break
        yield batch, sampler.batch_costs[number]
    raise _unsupported_loader(loader)


class _Place(NamedTuple):
    """What the batches of a share follow from."""

    start: int
    """The place in the order where its samples begin."""
    samples: int
    """The number of its samples."""
    tasks_per_pass: int


def _place(sampler: TaskSampler, share: _TaskRange) -> _Place:
    return _Place(*sampler.place(share), sampler.tasks_per_pass)


class _LoadedBatches(NamedTuple):
    """Batches that worker processes have begun to load for a round to come."""

    place: _Place
    batches: Iterator[Any]
    batch_costs: list[BatchCost]
    """The work in each batch."""


def load_ahead(
    loaders: list[Any],
    iterators: MutableMapping[Any, Any],
    next_tasks: Callable[[], tuple[int, int]],
) -> None:
    """Let the worker processes of loaders begin to load the next round.

    Loaders without such processes do not load before they are asked.

    Args:
        loaders: The loaders of the last round.
        iterators: Where the batches are kept; see ``batches``.
        next_tasks: Gives the number of tasks of this rank in the next round, and the number of the
            first task.
    """
    for loader in loaders:
        if type(loader) is DataLoader and loader.num_workers and loader.persistent_workers:
            sampler = sampler_of(loader)
            if sampler is not None and loader not in iterators:
                tasks, first = next_tasks()
                share = _NextShare(tasks, first)
                sampler.next_share = share
                iterators[loader] = _LoadedBatches(
                    _place(sampler, share),
                    iter(loader),
                    sampler.batch_costs,
                )
                sampler.next_share = None


def sampler_of(loader: Any) -> TaskSampler | None:
    """The ``TaskSampler`` that says which batches a loader reads; None if there is none.

    Samplers around it that have it as their ``batch_sampler``, such as the samplers of accelerate,
    choose among its batches by rank or by place. The allocation has chosen already, so they are
    taken out of the loader.
    """
    wrappers: list[Any] = []
    sampler = _outer_sampler(loader)
    while sampler is not None and not isinstance(sampler, TaskSampler):
        wrappers.append(sampler)
        sampler = getattr(sampler, "batch_sampler", None)
    if sampler is not None and wrappers:
        # A loader of accelerate has the user's DataLoader inside.
        user_loader = getattr(loader, "base_dataloader", loader)
        splits = any(getattr(wrapper, "split_batches", False) for wrapper in wrappers)
        if not isinstance(user_loader, DataLoader) or splits:
            raise _unsupported_loader(loader)
        # A DataLoader refuses an assignment to its sampler.
        vars(user_loader).update(batch_sampler=sampler, _iterator=None)
    if isinstance(sampler, TaskSampler):
        return sampler
    return None


def _endless(
    loader: Any,
    share: _TaskRange,
    iterators: MutableMapping[Any, Iterator[Any]],
) -> Iterator[Any]:
    """Yield the batches of a loader without a ``TaskSampler``, again and again.

    They begin where the last round stopped.
    """
    order_count = len(share.orders)
    at_start = False
    while True:
        if loader not in iterators:
            iterators[loader] = iter(loader)
            at_start = True
        batch = next(iterators[loader], _END_OF_BATCHES)
        # A ``TaskSampler`` somewhere inside of the loader was asked for samples.
        if len(share.orders) > order_count:
            del iterators[loader]
            raise _unsupported_loader(loader)
        if batch is not _END_OF_BATCHES:
            at_start = False
            yield batch
            continue
        del iterators[loader]
        if at_start:
            raise ValueError(f"the {type(loader).__name__} has no batches")


def _outer_sampler(loader: Any) -> Any:
    """The sampler of a ``DataLoader``, of batches if it has one; None for anything else."""
    sampler = getattr(loader, "batch_sampler", None)
    if sampler is None:
        return getattr(loader, "sampler", None)
    return sampler


def _unsupported_loader(loader: Any) -> ValueError:
    sampler = _outer_sampler(loader)
    if sampler is None or isinstance(sampler, TaskSampler):
        sampler_text = ""
    else:
        sampler_text = f" with a {type(sampler).__name__}"
    return ValueError(
        f"the {type(loader).__name__}{sampler_text} holds a TaskSampler and does not give its"
        " batches one for one: give share.take(...) a DataLoader with"
        " batch_sampler=TaskSampler(...)",
    )


def _relative(cost: ArrayLike, size: int) -> Floats:
    """The costs of all samples, divided by their mean, shape (samples,).

    Raises:
        ValueError: If there is not one cost above 0 for each sample.
    """
    costs = np.asarray(cost, np.float64)
    if costs.shape != (size,) or not (np.isfinite(costs) & (costs > 0.0)).all():
        raise ValueError(
            f"cost must be a finite number above 0 for each of the {size} samples, not"
            f" {short(cost)}",
        )
    relative: Floats = costs / costs.mean()
    return relative


def _size_of(dataset: Any) -> int:
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
        raise ValueError(  # noqa: TRY004
            f"TaskSampler finds samples by their numbers, and a {type(dataset).__name__} gives them"
            " in an order of its own, or does not know how many it has: leave TaskSampler out, and"
            " each batch of the loader is a task",
        )
    return len(dataset)
