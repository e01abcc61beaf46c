"""The part of a round that one rank computes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any
from weakref import ReferenceType, ref

from torch import Tensor, nn
from torch.amp import GradScaler
from torch.utils.weak import WeakTensorKeyDictionary

from ata_gym.cluster.torchrun.stopwatch import Mark, Stopwatch
from ata_gym.utils.validation import whole_number


class Share:
    """What ``TorchAllocator.round`` gives to a rank: its number of tasks, and the way to compute them.

    Attributes
    ----------
    tasks
        How many tasks of the round are this rank's; maybe 0.
    first
        The number of the first of them among the B of the round; those of a rank are neighbours.
    """

    def __init__(
        self,
        tasks: int,
        first: int,
        budget: int,
        watch: Stopwatch,
        batches: Callable[[Any], Iterator[tuple[Any, int]]],
        reduce: Callable[[Sequence[nn.Module]], None],
    ) -> None:
        self.tasks, self.first = tasks, first
        self._budget, self._watch, self._batches, self._reduce = budget, watch, batches, reduce
        self._timed: list[tuple[int, Mark, Mark]] = []
        """For each batch: its tasks, and when it began and ended."""
        self._now = 0
        """Tasks of the batch that is being computed."""
        self._losses: list[tuple[Tensor, list[ReferenceType[Tensor]]]] = []
        """The part that each backward pass had of the mean loss, and what it was multiplied with last."""
        self._passes = 0
        """Backward passes that began."""
        self._torn = False
        """Whether a batch was left after its backward pass, so that the gradient has too much."""
        self.orders: list[int] = []
        """The checksum of each ``TaskSampler`` that was asked for its batches in this round."""
        self.began = watch.mark()
        """When the round began."""
        self.computed: Mark | None = None
        """When this rank began to reduce."""
        self.reduced: Mark | None = None
        """When the gradient was reduced."""

    @property
    def done(self) -> int:
        """Tasks that are computed so far."""
        return sum(tasks for tasks, _, _ in self._timed)

    def take(self, loader: Any) -> Iterator[Any]:
        """The batches of this share, each timed from the moment it is asked for until the next one is.

        A loader with a ``TaskSampler`` gives this rank's samples of the round. Of any other loader a batch is a task,
        the next one of each round goes on where the last one stopped, and it starts over at its end; which samples
        a rank gets is then up to the loader. Samplers that have a ``TaskSampler`` as their ``batch_sampler``, as in a
        loader that accelerate has prepared, are taken out of the loader, since the allocation says what is whose.
        ValueError for a loader that holds a ``TaskSampler`` in another way, and for one without batches.
        """
        batches = self._batches(loader)
        while self.done < self.tasks:
            start = self._watch.mark()
            batch, tasks = next(batches)
            with self._timing(tasks, start):
                yield batch

    @contextmanager
    def timed(self, tasks: int = 1) -> Iterator[None]:
        """Time so many tasks, for loops that find their own samples in place of ``take``."""
        with self._timing(whole_number("tasks", tasks), self._watch.mark()):
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
        self._timed.append((tasks, start, self._watch.mark()))

    def backward(self, loss: Tensor, **arguments: Any) -> None:
        """The backward pass of a batch, whose ``loss`` is the mean over its samples; it adds loss / B for each task.

        Further arguments are those of ``Tensor.backward``. A loss that ``GradScaler.scale`` gave stays scaled, and its
        gradient need not be finite; ``allocator.last.loss`` is the one before.
        """
        if not self._now:
            raise RuntimeError("call backward inside the loop over share.take(loader), or inside share.timed()")
        if loss.ndim:
            raise ValueError(f"the loss must be a scalar, the mean over the batch, not of shape {tuple(loss.shape)}")
        weighted, factors = loss * (self._now / self._budget), _factors(loss)
        self._passes += 1
        weighted.backward(**arguments)  # type: ignore[no-untyped-call]
        self._losses.append((weighted.detach(), factors))

    def reduce(self, *models: nn.Module) -> None:
        """Make the gradient of each model the mean over the B tasks of the round, on every rank.

        Every rank calls it once with the same models, those without tasks too. RuntimeError if tasks are left, or none
        of them had its ``backward``. Where a loss or gradient of one rank is not finite, every rank raises the same
        FloatingPointError, which names the worker; so do other errors that one rank's part would bring into the model.
        No gradient has changed then.
        """
        if self.reduced is not None:
            raise RuntimeError("a round is reduced once: give all models to one reduce(...)")
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
        self.computed = self._watch.mark()
        self._reduce(models)
        self.reduced = self._watch.mark()

    def seconds(self) -> list[float]:
        """The time of each task; tasks that were computed together have equal parts of their time."""
        return [self._watch.seconds(start, end) / tasks for tasks, start, end in self._timed for _ in range(tasks)]

    @property
    def scaled(self) -> bool:
        """Whether a ``GradScaler`` scaled a loss of its tasks, so that infinite gradients are its own matter."""
        return any(_scales(factors) for _, factors in self._losses)

    def loss(self) -> float:
        """The part of the mean loss that its tasks have, before a ``GradScaler`` scaled it."""
        parts = [part / prod(scales) if (scales := _scales(factors)) else part for part, factors in self._losses]
        return float(sum(parts[1:], parts[0])) if parts else 0.0

    def between(self, start: Mark | None, end: Mark | None) -> float:
        """Seconds between two marks."""
        assert start is not None
        assert end is not None
        return self._watch.seconds(start, end)


def _factors(loss: Tensor) -> list[ReferenceType[Tensor]]:
    """The tensors of one number that a loss was multiplied with last."""
    found, node = [], loss.grad_fn
    while node is not None and node.name() in {"MulBackward0", "DivBackward0"}:
        factor = node._saved_other if node.name() == "MulBackward0" else None  # type: ignore[attr-defined]
        if isinstance(factor, Tensor) and factor.ndim == 0 and not factor.requires_grad:
            found.append(ref(factor))
        node = node.next_functions[0][0]
    return found


def _scales(factors: list[ReferenceType[Tensor]]) -> list[Tensor]:
    """Those of the factors that are the scale of a ``GradScaler``, which keeps it alive, as most others are not."""
    alive = [factor for reference in factors if (factor := reference()) is not None]
    for factor in alive:
        if factor not in _known:
            owners = gc.get_referrers(factor)  # takes a hundredth of a second, once for each
            _known[factor] = any(isinstance(one, GradScaler) or _is_state_of_one(one, factor) for one in owners)
    return [factor for factor in alive if _known[factor]]


def _is_state_of_one(owner: object, factor: Tensor) -> bool:
    return isinstance(owner, dict) and owner.get("_scale") is factor and "_growth_tracker" in owner


_known: MutableMapping[Tensor, bool] = WeakTensorKeyDictionary()
"""Whether a tensor is the scale of a ``GradScaler``."""
