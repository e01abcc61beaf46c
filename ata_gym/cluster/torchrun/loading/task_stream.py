"""Streams of batches, of which each rank computes its share."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ata_gym.cluster.torchrun.loading.first_batches import checksum
from ata_gym.cluster.torchrun.loading.task_sampler import OpenRounds, check_loader, sampler_of
from ata_gym.models.seeds import generators_preserved, seed_generators
from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.utils.validation import whole_number

_LOG = logging.getLogger("ata_gym.cluster")
_NOISE_STREAM = 8
"""The stream of keys for what a loader draws."""
_CHECKED_ELEMENTS = 1024
"""The elements of each tensor of a batch that are compared in each round."""
_END = object()


class _KeptBatch(NamedTuple):
    batch: Any
    checksum: int
    """Its checksum when it was read."""


class TaskStream:
    """The batches of a loader whose samples have no numbers, shared out by the allocation.

    It is around the loader of a stream, such as an ``IterableDataset``, webdataset or a dataset
    that ``datasets`` streams, which gives the same batches on every rank; ``share.take``,
    ``TaskTrainer`` and ``TaskStrategy`` take it. Task t of the whole training, t = k B + b for task
    b of round k, is batch t of the stream, which is one epoch after the other, and the allocation
    says which rank computes it. So one process with this loader and the same B has the same
    gradient. The ranks compare the first batch of each round.

    Every rank reads all B batches of each round, with the loader's worker processes where it has
    them, and computes its part; the time to get there is part of its latency. Where that is too
    slow, leave ``TaskStream`` out and give each rank a part of the stream of its own, as with
    ``split_by_node`` of webdataset or ``split_dataset_by_node`` of ``datasets``.

    What the loader draws from torch's, numpy's and Python's global generators follows from the
    seed and the task, so that a shuffled stream is the same on every rank. ``set_epoch`` of the
    loader or its dataset or sampler is called at the start of each epoch.

    After a restart, the batches up to the allocator's round are read again and dropped, unless
    ``state_dict`` is part of the checkpoint. Batches of a round are kept until it ends, so that it
    can begin again.

    Args:
        allocator: Its rounds are followed.
        loader: Gives the batches of one process, in the same order on every rank.
        seed: The seed of what the loader draws.

    Raises:
        ValueError: For a loader with a ``TaskSampler``, which shares its samples out already, and
            for one that cannot have the same order on every rank.

    Example:
        >>> from types import SimpleNamespace
        >>> from torch.utils.data import DataLoader
        >>> share = SimpleNamespace(tasks=2, first=1, done=0, orders=[])
        >>> in_round_1 = SimpleNamespace(budget=3, rounds=1, share=share)
        >>> list(TaskStream(in_round_1, DataLoader("abcdefgh", batch_size=None)))
        ['e', 'f']
    """

    def __init__(self, allocator: OpenRounds, loader: Iterable[Any], *, seed: int = 0) -> None:
        if sampler_of(loader) is not None:
            raise ValueError(
                "the loader has a TaskSampler, which shares its samples out: leave TaskStream out",
            )
        check_loader(loader)
        if not getattr(loader, "in_order", True):
            raise ValueError(
                "TaskStream needs the same order of batches on every rank: DataLoader(in_order="
                "True)",
            )
        self.loader = loader
        """The loader of the stream."""
        self._allocator = allocator
        self._key = stream_keys(whole_number("seed", seed, 0), stream=_NOISE_STREAM)
        # What the order may depend on beside the batches themselves.
        self._description = [seed, getattr(loader, "num_workers", 0)]
        # The batches of this rank in a round, by task.
        self._kept: dict[int, _KeptBatch] = {}
        # The checksum of the first batch of the last round that was read.
        self._first_checksum = 0
        self._begin(0, 0)

    def _begin(self, epoch: int, first_task: int) -> None:
        """Let the next batch be the first one of an epoch."""
        self._iterator: Iterator[Any] | None = None
        self._epoch = epoch
        # The task of the first batch of the epoch.
        self._epoch_start = first_task
        # The task of the next batch.
        self._next = first_task

    @property
    def rounds(self) -> int | None:
        """The number of whole rounds in an epoch; None if the loader does not know its length."""
        try:
            return len(self.loader) // self._allocator.budget  # type: ignore[arg-type]
        except TypeError:
            return None

    def __iter__(self) -> Iterator[Any]:
        """The batches of this rank in the round that is open, after the tasks that are done."""
        orders = self._allocator.share.orders
        start, tasks = self._tasks()
        for task in tasks:
            kept = self._kept.get(task)
            # A batch that was changed in place is read again.
            if kept is None or kept.checksum != checksum(kept.batch, _CHECKED_ELEMENTS):
                self._skip_to(task, start)
                with generators_preserved():
                    batch = self._read(start)
                kept = _KeptBatch(batch, checksum(batch, _CHECKED_ELEMENTS))
                self._kept[task] = kept
            if task == tasks[0]:
                orders.append(self._first_checksum)
            yield kept.batch

    def skip(self) -> None:
        """Read what is before this rank's batches in the round that is open.

        A rank without tasks reads what is before the round, so that it is not far behind when it
        has some.
        """
        start, tasks = self._tasks()
        of_round = range(start, start + self._allocator.budget)
        self._kept = {task: kept for task, kept in self._kept.items() if task in of_round}
        target = tasks[0] if tasks else start
        if target not in self._kept:
            self._skip_to(target, start)

    def _tasks(self) -> tuple[int, range]:
        """The first task of the round that is open, and the tasks that this rank has to do."""
        share = self._allocator.share
        start = self._allocator.rounds * self._allocator.budget
        return start, range(start + share.first + share.done, start + share.first + share.tasks)

    def _skip_to(self, task: int, start: int) -> None:
        """Let the next batch be the batch of a task, by reading the batches before it."""
        if task == self._next:
            return
        if task < self._next:
            if task >= self._epoch_start:
                self._begin(self._epoch, self._epoch_start)
            else:
                self._begin(0, 0)
        if self._iterator is None and start > self._next:
            _LOG.warning("the batches %d to %d of the stream are read first", self._next, start)
        # To give the generators their states back takes longer than to seed them.
        with generators_preserved():
            while self._next < task:
                self._read(start)

    def _read(self, start: int) -> Any:
        """The next batch of the stream, in the round that begins with task ``start``.

        It seeds the global generators.
        """
        batch = self._next_of_epoch()
        if batch is _END:
            self._begin(self._epoch + 1, self._next)
            batch = self._next_of_epoch()
        if batch is _END:
            self._begin(0, 0)
            raise ValueError(f"the {type(self.loader).__name__} has no batches")
        if self._next == start:
            labelled = [*self._description, self._epoch, batch]
            self._first_checksum = checksum(labelled, _CHECKED_ELEMENTS)
        self._next += 1
        return batch

    def _next_of_epoch(self) -> Any:
        if self._iterator is None:
            _set_epoch(self.loader, self._epoch)
            self._seed(self._epoch, 1)
            self._iterator = iter(self.loader)
        self._seed(self._next, 0)
        try:
            return next(self._iterator, _END)
        except Exception:
            # The iterator may have ended with the error, which is no end of the epoch.
            self._begin(self._epoch, self._epoch_start)
            raise

    def _seed(self, number: int, purpose: int) -> None:
        seed_generators(int(derive_keys(self._key, number, purpose)[0]) >> 1)

    def state_dict(self) -> dict[str, Any]:
        """Where the stream is after the last round, the same on every rank.

        It has the state of the loader, if it has one as ``StatefulDataLoader`` does. Without it,
        the epoch is read again from its start, and its order must follow from ``set_epoch``.
        Loading it is worth it where reading the stream again takes long.
        """
        start = self._allocator.rounds * self._allocator.budget
        self._skip_to(start, start)
        state = {"epoch": self._epoch, "epoch_start": self._epoch_start, "task": self._next}
        if hasattr(self.loader, "state_dict"):
            state["loader"] = self.loader.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, on every rank, as the allocator goes on from its own.

        Raises:
            ValueError: If it is no state of a ``TaskStream``; nothing has changed then.
        """
        try:
            epoch, epoch_start, task = (
                whole_number(name, state[name], 0) for name in ("epoch", "epoch_start", "task")
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no state of TaskStream: {error}") from error
        self._kept = {}
        self._begin(epoch, epoch_start)
        if "loader" in state and hasattr(self.loader, "load_state_dict"):
            self.loader.load_state_dict(state["loader"])
            self._next = task


def _set_epoch(loader: Any, epoch: int) -> None:
    """Tell a loader, its dataset and its sampler which epoch begins."""
    parts = [loader, *(getattr(loader, name, None) for name in ("dataset", "sampler"))]
    for part in parts:
        set_epoch = getattr(part, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)
