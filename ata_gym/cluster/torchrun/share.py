"""The part of a round that one rank computes, and the times of its tasks."""

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.amp import GradScaler

from ata_gym.cluster.torchrun.task_sampler import batches
from ata_gym.training.models.device import Mark, Stopwatch
from ata_gym.utils.validation import whole_number


class Share:
    """The part of one rank in a round, as ``TorchAllocator.round`` gives it, and the way to compute it.

    It has ``tasks`` of the round, maybe 0, from number ``first`` of the B on.
    """

    def __init__(
        self,
        tasks: int,
        first: int,
        budget: int,
        watch: Stopwatch,
        left_off: MutableMapping[Any, Iterator[Any]],
        reduce: Callable[[], None],
    ) -> None:
        self.tasks, self.first = tasks, first
        self._budget, self.watch, self._left_off, self._reduce = budget, watch, left_off, reduce
        self._timed: list[tuple[int, Mark, Mark]] = []  # for each batch: its tasks, and when it began and ended
        self._now = 0  # tasks of the batch that is being computed
        self._losses: list[Tensor] = []  # the part of the mean loss that each backward pass had
        self._passes = 0  # backward passes that began
        self._torn = False  # whether a batch was left after its backward pass: the gradient has a part too many
        self.scaled = False  # whether a ``GradScaler`` scaled a loss, and so deals with infinite gradients
        self.orders: list[int] = []  # the checksum of each ``TaskSampler`` that was asked for batches in this round
        self.began = watch.mark()
        self.computed: Mark | None = None  # when this rank began to reduce
        self.reduced: Mark | None = None

    @property
    def done(self) -> int:
        """Tasks that are computed so far."""
        return sum(tasks for tasks, _, _ in self._timed)

    def take(self, loader: Any) -> Iterator[Any]:
        """Yield the batches of this share; each is timed until the next one is asked for.

        A loader with a ``TaskSampler`` gives this rank's samples of the round; samplers around it, as in a loader that
        accelerate has prepared, are taken out, since the allocation decides which rank computes what. Each batch of any
        other loader is a task; the loader goes on from round to round, and starts over at its end. ValueError for a
        loader that holds a ``TaskSampler`` in another way, and for one without batches.
        """
        found = batches(loader, self, self._left_off)
        while self.done < self.tasks:
            start = self.watch.mark()
            batch, tasks = next(found)
            with self._timing(tasks, start):
                yield batch

    @contextmanager
    def timed(self, tasks: int = 1) -> Iterator[None]:
        """Time the block as ``tasks`` tasks, in loops that find their own samples in place of ``take``."""
        with self._timing(whole_number("tasks", tasks), self.watch.mark()):
            yield

    @contextmanager
    def _timing(self, tasks: int, start: Mark) -> Iterator[None]:
        if self._now:
            raise RuntimeError("the tasks of a share are computed one after the other: end the last one first")
        if self.reduced is not None or self.done + tasks > self.tasks:
            raise RuntimeError(f"this share has {self.tasks} tasks, and {self.done} are done: {tasks} more is too many")
        passes, self._now = self._passes, tasks
        try:
            yield
        except BaseException:
            self._torn = self._torn or self._passes > passes
            raise
        finally:
            self._now = 0
        self._timed.append((tasks, start, self.watch.mark()))

    def backward(self, loss: Tensor, *, scaler: GradScaler | None = None, **arguments: Any) -> None:
        """Run the backward pass of a batch whose ``loss`` is the mean over its samples; it adds loss / B for each task.

        A ``scaler`` scales the loss first, so that the gradient is scaled and may be infinite; ``allocator.last.loss``
        is not scaled. Further arguments are those of ``Tensor.backward``.
        """
        if not self._now:
            raise RuntimeError("call backward inside the loop over share.take(loader), or inside share.timed()")
        if loss.ndim:
            raise ValueError(f"the loss must be a scalar, the mean over the batch, not of shape {tuple(loss.shape)}")
        weighted = loss * (self._now / self._budget)
        self._passes += 1
        self.scaled = self.scaled or scaler is not None
        (weighted if scaler is None else scaler.scale(weighted)).backward(**arguments)  # type: ignore[no-untyped-call]
        self._losses.append(weighted.detach())

    def reduce(self) -> None:
        """Make the gradient of the model of the round the mean over its B tasks, on every rank.

        Every rank calls it once, also a rank without tasks. RuntimeError if tasks are left, or none of them had its
        ``backward``. Where the part of one rank has a fault, such as a loss or gradient that is
        not finite, every rank raises the same error, which names the worker, and no gradient has changed.
        """
        if self.reduced is not None:
            raise RuntimeError("a round is reduced once")
        if self.done < self.tasks:
            raise RuntimeError(
                f"{self.done} of the {self.tasks} tasks of this share are computed: loop over share.take(loader) to "
                "its end, and reduce after it"
            )
        if self._torn or self._passes > len(self._losses):
            raise RuntimeError(
                "a backward pass failed, or its batch was left before the end, so that the gradient has a part too "
                "many: begin the round again"
            )
        if self.tasks and not self._losses:
            raise RuntimeError("no task had a backward pass: call share.backward(loss) in place of loss.backward()")
        self.computed = self.watch.mark()
        self._reduce()
        self.reduced = self.watch.mark()

    def seconds(self) -> list[float]:
        """The time of each task in seconds; tasks that were computed together have equal parts of their time."""
        return [self.watch.seconds(start, end) / tasks for tasks, start, end in self._timed for _ in range(tasks)]

    def loss(self) -> float:
        """The part of the mean loss that its tasks have."""
        return float(sum(self._losses[1:], self._losses[0])) if self._losses else 0.0
