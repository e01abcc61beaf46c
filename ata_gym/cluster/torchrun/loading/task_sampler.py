"""Which samples each rank computes: every sample once in an epoch, whatever the allocations."""

import weakref
import zlib
from collections.abc import Iterable, Iterator, Sized
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Sampler

from ata_gym.cluster.torchrun.loading.keyed_samples import KeyedIndex, KeyedSamples
from ata_gym.cluster.torchrun.loading.sampler_order import checked_length, sampler_order
from ata_gym.simulation.keys import derive_keys, stream_keys, uniforms
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import flag, short, whole_number

_ORDER_STREAM = 3
"""The stream of keys for the orders of epochs."""
_NOISE_STREAM = 7
"""The stream of keys for the noise of ``KeyedSamples``."""


class BatchCost(NamedTuple):
    """The work in a batch."""

    tasks: int
    """The number of its tasks."""
    cost: float
    """The mean cost of its samples, relative to the mean of all samples."""


class TaskRange(Protocol):
    """What asks for tasks knows of a ``Share``."""

    @property
    def tasks(self) -> int:
        """The number of its tasks."""

    @property
    def first(self) -> int:
        """The number of its first task in the round."""

    @property
    def done(self) -> int:
        """The number of its tasks that are computed so far."""

    @property
    def orders(self) -> list[int]:
        """The checksums of the orders of samples that it followed."""


class OpenRounds(Protocol):
    """What a ``TaskSampler`` and a ``TaskStream`` ask of a ``TorchAllocator``."""

    @property
    def budget(self) -> int:
        """The number B of tasks of a round."""

    @property
    def rounds(self) -> int:
        """The number of rounds that have ended."""

    @property
    def share(self) -> TaskRange:
        """The part of this rank in the round that is open."""


class TaskSampler(Sampler[list[int]]):
    """The ``batch_sampler`` of a ``DataLoader`` whose batches are the tasks of a rank's share.

    All ranks follow one order of samples. Task t of the whole training, t = k B + b for task b of
    round k, has ``samples`` samples of it, from place t ``samples`` on, and the allocation says
    which rank computes it. So one process with the same B has the same gradient, whatever the
    allocation and the number of ranks. The order is one epoch after the other, each with every
    sample once. A round in which an epoch ends goes on in the next epoch, without the samples that
    it had already, as long as two rounds fit into an epoch. With a sampler of the user's own, the
    order of an epoch is the sampler's instead. What is needed of the past is in the allocator's
    state, also in the middle of an epoch.

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
        sampler: Gives the order of each epoch: a sampler of torch or any other iterable of sample
            numbers with a length, such as one that draws by weights, groups by length or goes from
            easy to hard. Every rank gives the same one, for all samples, not one that is split by
            rank. What it draws from a generator of its own or from the global ones follows from
            the epoch, and its ``set_epoch`` is called if there is one.
        shuffle: Whether each epoch has an order of its own; by default it has. It is not given
            with a sampler.
        seed: The seed of these orders, and of what a sampler draws from the global generators.
        cost: For each sample what the time of its task is proportional to, such as its tokens,
            shape (samples,), above 0. The times of tasks are then divided by their costs and
            multiplied by the mean cost, so that policies learn the workers and not the samples.

    Raises:
        ValueError: For a number below 1, costs that are not above 0, a dataset whose samples have
            no numbers, such as an ``IterableDataset``, for which there is ``TaskStream``, and a
            sampler whose order does not follow from the epoch.

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
        allocator: OpenRounds,
        dataset: Sized | int,
        *,
        samples: int = 1,
        tasks_per_pass: int | None = 1,
        sampler: Iterable[int] | None = None,
        shuffle: bool | None = None,
        seed: int = 0,
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
        if sampler is not None and shuffle is not None:
            raise ValueError("give sampler or shuffle, not both: a sampler says the order itself")
        self._shuffle = flag("shuffle", True if shuffle is None else shuffle)
        self._key = stream_keys(whole_number("seed", seed, 0), stream=_ORDER_STREAM)
        if isinstance(dataset, KeyedSamples):
            self._noise = stream_keys(seed, stream=_NOISE_STREAM)[0]
        else:
            self._noise = None
        self._samples_per_round = allocator.budget * self._samples
        self._sampler = sampler
        if sampler is None:
            self._epoch_length = self._size
        else:
            self._epoch_length = checked_length(sampler, self._size, self._key)
        self._order_by_epoch: dict[int, Ints] = {}
        self._description = f"{self._epoch_length} {self._samples} {self._shuffle} {seed}".encode()
        self.next_share: TaskRange | None = None
        """The share of the next round, while a loader begins to load it."""
        self.batch_costs: list[BatchCost] = []
        """The work in each batch since the last ``iter``."""

    @property
    def rounds(self) -> int:
        """The number of whole rounds in an epoch."""
        return self._epoch_length // self._samples_per_round

    @property
    def checksum(self) -> int:
        """A checksum, of 24 bits, of the order in the round that is open; never 0."""
        total = zlib.crc32(self._description)
        if self._sampler is not None:
            start = self._allocator.rounds * self._samples_per_round
            samples = self.samples_from(start, self._samples_per_round)
            total = zlib.crc32(np.array(samples, np.int64).tobytes(), total)
        return total & 0xFFFFFF or 1

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

    def place(self, share: TaskRange) -> tuple[int, int]:
        """Where in the order the samples of a share's other tasks begin, and their number."""
        start = (
            self._allocator.rounds * self._samples_per_round
            + (share.first + share.done) * self._samples
        )
        return start, (share.tasks - share.done) * self._samples

    def samples_from(self, start: int, number: int) -> list[int]:
        """``number`` samples of the order of the whole training, from place ``start`` on."""
        samples: list[int] = []
        while len(samples) < number:
            epoch, place = divmod(start + len(samples), self._epoch_length)
            end = place + number - len(samples)
            samples += self._order(epoch)[place:end].tolist()
        return samples

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
            order = self._order_alone(epoch)
            # The round in which this epoch begins has so many samples of the epoch before. They
            # move behind the others within the first round's length, so that the round has no
            # sample twice. The end of the order stays, which the next epoch looks at.
            overlap = epoch * self._size % self._samples_per_round
            is_shuffled = self._shuffle and self._sampler is None
            if overlap and is_shuffled and self._size >= 2 * self._samples_per_round:
                head = order[: self._samples_per_round]
                repeated = np.isin(head, self._order_alone(epoch - 1)[-overlap:])
                order[: self._samples_per_round] = np.concatenate([head[~repeated], head[repeated]])
            self._order_by_epoch = {
                kept_epoch: self._order_by_epoch[kept_epoch]
                for kept_epoch in self._order_by_epoch
                if kept_epoch >= epoch - 1
            }
            self._order_by_epoch[epoch] = order
        return self._order_by_epoch[epoch]

    def _order_alone(self, epoch: int) -> Ints:
        """The order of an epoch, whatever the order of the epoch before is."""
        if self._sampler is not None:
            return sampler_order(self._sampler, epoch, self._epoch_length, self._size, self._key)
        if not self._shuffle:
            return np.arange(self._size)
        numbers = uniforms(derive_keys(self._key, epoch, 0), self._size)[0]
        return np.argsort(numbers, kind="stable")


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
            raise unsupported_loader(loader)
        # A DataLoader refuses an assignment to its sampler.
        vars(user_loader).update(batch_sampler=sampler, _iterator=None)
    if isinstance(sampler, TaskSampler):
        return sampler
    return None


def _outer_sampler(loader: Any) -> Any:
    """The sampler of a ``DataLoader``, of batches if it has one; None for anything else."""
    sampler = getattr(loader, "batch_sampler", None)
    if sampler is None:
        return getattr(loader, "sampler", None)
    return sampler


def check_loader(loader: Any) -> None:
    """Raise ``ValueError`` for a loader without a ``TaskSampler`` that cannot give tasks.

    It is one that gives single samples since its ``TaskSampler`` was replaced, one that waits for
    the other ranks, or no loader.
    """
    name = type(loader).__name__
    sampler = getattr(loader, "sampler", None)
    if isinstance(sampler, DistributedSampler) and getattr(loader, "batch_size", 1) is None:
        raise ValueError(
            f"the {name} gives single samples, since a DistributedSampler came in the place of its"
            " TaskSampler, as in prepare_data_loader of Ray Train: give prepare_data_loader(loader,"
            " add_dist_sampler=False)",
        )
    if any(kind.__module__.startswith("accelerate.") for kind in type(loader).__mro__):
        raise ValueError(
            f"the {name} of accelerate splits batches by rank and waits for the other ranks, which"
            " take other numbers of them: give the loader that accelerator.prepare was given, with"
            " batch_sampler=TaskSampler(allocator, dataset), or TaskStream(allocator, loader)",
        )
    try:
        hash(loader)
        weakref.ref(loader)
    except TypeError:
        raise ValueError(
            f"batches come from a DataLoader or another object that is iterated again and again,"
            f" not from {short(loader)}: batches in a list are DataLoader(batches,"
            " batch_size=None)",
        ) from None


def unsupported_loader(loader: Any) -> ValueError:
    """The error for a loader that does not give the batches of its ``TaskSampler``."""
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
            " in an order of its own, or does not know how many it has: give share.take, or the"
            " trainer, TaskStream(allocator, loader) around a loader without TaskSampler",
        )
    return len(dataset)
