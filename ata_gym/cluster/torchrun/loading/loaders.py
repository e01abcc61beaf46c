"""How the batches of a share are taken from the loaders of a training."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch.utils.data import DataLoader

from ata_gym.cluster.torchrun.loading.first_batches import LoaderBatches, OpenLoaders
from ata_gym.cluster.torchrun.loading.task_sampler import (
    BatchCost,
    TaskRange,
    TaskSampler,
    check_loader,
    sampler_of,
    unsupported_loader,
)
from ata_gym.cluster.torchrun.loading.task_stream import TaskStream

_END_OF_BATCHES = object()


@dataclass(frozen=True)
class _NextShare:
    """The share of the next round, none of whose tasks is done."""

    tasks: int
    first: int
    done: int = 0
    orders: list[int] = field(default_factory=list)


def batches(
    loader: Any,
    share: TaskRange,
    open_loaders: OpenLoaders,
) -> Iterator[tuple[Any, BatchCost]]:
    """The batches of a loader, with the work in each.

    Args:
        loader: The loader.
        share: The share of the round that is open.
        open_loaders: The iterators of loaders without a ``TaskSampler``, which go on in the next
            round, and what ``load_ahead`` has begun.

    Raises:
        ValueError: As ``Share.take`` does.
    """
    if isinstance(loader, TaskStream):
        loader.skip()
        return ((batch, BatchCost(1, 1.0)) for batch in iter(loader))
    sampler = sampler_of(loader)
    if sampler is None:
        check_loader(loader)
        rank_batches = open_loaders.batches_of(loader)
        return ((batch, BatchCost(1, 1.0)) for batch in _endless(loader, share, rank_batches))
    sampler.batch_costs = []
    loaded = open_loaders.pop(loader, None)
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
    raise unsupported_loader(loader)


class _Place(NamedTuple):
    """What the batches of a share follow from."""

    start: int
    """The place in the order where its samples begin."""
    samples: int
    """The number of its samples."""
    tasks_per_pass: int


def _place(sampler: TaskSampler, share: TaskRange) -> _Place:
    return _Place(*sampler.place(share), sampler.tasks_per_pass)


class _LoadedBatches(NamedTuple):
    """Batches that worker processes have begun to load for a round to come."""

    place: _Place
    batches: Iterator[Any]
    batch_costs: list[BatchCost]
    """The work in each batch."""


def load_ahead(
    loaders: list[Any],
    open_loaders: OpenLoaders,
    next_tasks: Callable[[], tuple[int, int]],
) -> None:
    """Let the worker processes of loaders begin to load the next round.

    Loaders without such processes do not load before they are asked.

    Args:
        loaders: The loaders of the last round.
        open_loaders: Where the batches are kept; see ``batches``.
        next_tasks: Gives the number of tasks of this rank in the next round, and the number of the
            first task.
    """
    for loader in loaders:
        if type(loader) is DataLoader and loader.num_workers and loader.persistent_workers:
            sampler = sampler_of(loader)
            if sampler is not None and loader not in open_loaders:
                tasks, first = next_tasks()
                share = _NextShare(tasks, first)
                sampler.next_share = share
                open_loaders[loader] = _LoadedBatches(
                    _place(sampler, share),
                    iter(loader),
                    sampler.batch_costs,
                )
                sampler.next_share = None


def _endless(loader: Any, share: TaskRange, rank_batches: LoaderBatches) -> Iterator[Any]:
    """Yield the batches of a loader without a ``TaskSampler``, again and again.

    They begin where the last round stopped.
    """
    order_count = len(share.orders)
    at_start = False
    while True:
        if rank_batches.iterator is None:
            rank_batches.iterator = iter(loader)
            at_start = True
        batch = next(rank_batches.iterator, _END_OF_BATCHES)
        # A ``TaskSampler`` somewhere inside of the loader was asked for samples.
        if len(share.orders) > order_count:
            rank_batches.iterator = None
            raise unsupported_loader(loader)
        if batch is not _END_OF_BATCHES:
            at_start = False
            rank_batches.record(batch)
            yield batch
            continue
        rank_batches.iterator = None
        if at_start:
            raise ValueError(f"the {type(loader).__name__} has no batches")
