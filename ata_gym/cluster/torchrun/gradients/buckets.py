"""Gradients in flat tensors, each of which is summed over the ranks as soon as the last backward pass has filled it."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, partial
from threading import Lock
from typing import Any, NamedTuple, Self
from weakref import WeakMethod

import torch
import torch.distributed as dist
from torch import Tensor, nn

_SIZE = 25 * 2**20  # bytes of a bucket; while one bucket travels, the next is filled


class Form(NamedTuple):
    """The form of a tensor that is summed again and again, the same on every rank."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor, dtype: torch.dtype | None = None) -> Self:
        """The form of a gradient of a tensor, in another dtype if one is given.

        >>> Form.of(torch.ones(2, 3).T).strides, Form.of(torch.ones(3, 4)[:, :2]).strides
        ((1, 3), (2, 1))
        """
        shape = tuple(tensor.shape)
        return cls(shape, _strides(shape, tensor.stride()), dtype or tensor.dtype, tensor.device)


@cache
def _strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a gradient: those of a dense tensor where no elements overlap, and contiguous ones otherwise.

    Torch itself gives these to gradients, and fused optimisers read both in the order of their memory.
    """
    tensor = torch.empty_strided(shape, strides, device="meta")
    return strides if torch.empty_like(tensor).stride() == strides else torch.empty(shape, device="meta").stride()


def gradient_dtype(parameter: Tensor) -> torch.dtype:
    """The dtype of a parameter's gradient."""
    return getattr(parameter, "grad_dtype", None) or parameter.dtype


def _copy_each(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


# One launch for all tensors of a device, where torch has it: it is not public.
_copy_all: Callable[[Sequence[Tensor], Sequence[Tensor]], object] = getattr(torch, "_foreach_copy_", _copy_each)


class _Bucket:
    """A flat tensor, with the places of the parameters whose gradients it begins with."""

    def __init__(self, flat: Tensor, places: list[int], gradients: Tensor, *, last: bool) -> None:
        self.flat, self.places, self.gradients = flat, places, gradients
        self.last = last  # whether it also holds what is known only after the last backward pass
        self.left: set[int] = set()  # places that the pass has not reached yet
        self.norm: Tensor | None = None  # of this rank's part of the gradient, once it is complete
        self.work: dist.Work | None = None


class Buckets:
    """Sums the gradients of parameters over the ranks, round after round, with some other tensors.

    A bucket is filled when the first backward pass has computed all of its gradients, and later passes add up in it, so
    that no second copy of the gradient is kept. In the last pass, if that is announced by ``expect_last``, it is sent
    as soon as it is complete; else by ``sum``. All ranks send the buckets in one order, so that each decides for itself
    when. The sums are views of the buckets, and are valid until the next round.

    - ``parameters``: of which all are trained; in the order in which forward passes use them, if possible.
    - ``others``: tensors of the same forms as those that are summed with the gradients.
    """

    def __init__(self, parameters: list[nn.Parameter], others: Sequence[Form], group: dist.ProcessGroup | None) -> None:
        self.parameters, self.others, self._group = list(parameters), list(others), group
        forms = [Form.of(parameter, gradient_dtype(parameter)) for parameter in parameters]
        self.forms, count = [*forms, *others], len(forms)
        lengths = [torch.Size(form.shape).numel() for form in self.forms]
        members: dict[tuple[torch.dtype, torch.device, int], list[int]] = defaultdict(list)
        filled: dict[tuple[torch.dtype, torch.device], int] = defaultdict(int)
        for place in (*reversed(range(count)), *range(count, len(self.forms))):  # as backward passes reach them
            form = self.forms[place]
            kind = form.dtype, form.device
            members[*kind, filled[kind] // _SIZE].append(place)
            filled[kind] += lengths[place] * form.dtype.itemsize
        self.all: list[_Bucket] = []
        self._home: dict[int, _Bucket] = {}
        views: dict[int, Tensor] = {}
        for (dtype, device, _), places in members.items():
            flat = torch.zeros(sum(lengths[place] for place in places), dtype=dtype, device=device)
            for place, part in zip(places, torch.split(flat, [lengths[place] for place in places]), strict=True):
                views[place] = part.as_strided(self.forms[place].shape, self.forms[place].strides)
            own = [place for place in places if place < count]
            gradients = flat[: sum(lengths[place] for place in own)]
            self.all.append(_Bucket(flat, own, gradients, last=len(own) < len(places)))
            self._home |= dict.fromkeys(own, self.all[-1])
        self.gradients = [views[place] for place in range(count)]
        self.sums = [views[place] for place in range(count, len(views))]  # of the other tensors
        reached = WeakMethod(self._reached)  # the parameters outlive this object
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(_call, reached, place))  # type: ignore[no-untyped-call]
            for place, parameter in enumerate(self.parameters)
        ]
        self._open, self._lock = False, Lock()

    def close(self) -> None:
        """Leave the parameters alone."""
        for hook in self._hooks:
            hook.remove()

    def begin(self) -> None:
        """Begin a round, in which the parameters have no gradients yet."""
        self.reached = [False] * len(self.parameters)  # whether a backward pass of this rank gave it a gradient
        self.again = False  # whether a gradient was added to a bucket that had been sent
        self.sent, self._last, self._open = 0, False, True
        for bucket in self.all:
            bucket.left, bucket.norm, bucket.work = set(bucket.places), None, None

    def expect_last(self) -> None:
        """The next backward pass is the last one of the round on this rank."""
        self._last = True
        for bucket in self.all:
            bucket.left = set(bucket.places)

    def end(self) -> None:
        """End the round; what was sent is waited for, so that the next round can use the buckets again."""
        self._open = False
        self._wait()

    def complete(self) -> list[Tensor]:
        """Fill all buckets; the norms of their gradients on this rank."""
        for bucket in self.all[self.sent :]:
            self._fill(bucket)
            self._measure(bucket)
        return [bucket.norm for bucket in self.all if bucket.norm is not None]

    def not_finite(self) -> int | None:
        """The first place whose gradient is not finite on this rank, or in the sum where that has been sent."""
        self._wait()
        return next((place for place, one in enumerate(self.gradients) if not one.isfinite().all()), None)

    def sum(self, others: Sequence[Tensor]) -> None:
        """Send what is left, with the other tensors, and wait until the views hold the sums."""
        for view, other in zip(self.sums, others, strict=True):
            view.copy_(other)
        while self.sent < len(self.all):
            self._send()
        self._wait()

    def scale(self, factor: float) -> None:
        """Multiply the gradients."""
        for bucket in self.all:
            bucket.gradients.mul_(factor)

    def _reached(self, place: int) -> None:
        if self._open:
            with self._lock:  # each device of a model has a thread of its own in a backward pass
                self._advance(place)

    def _advance(self, place: int) -> None:
        self.reached[place] = True
        bucket = self._home[place]
        self.again = self.again or bucket.work is not None
        if place not in bucket.left:
            return
        bucket.left.remove(place)
        if not bucket.left:
            self._fill(bucket)
        while self._last and not (following := self.all[self.sent]).left and not following.last:
            self._measure(following)
            self._send()

    @torch.no_grad()
    def _fill(self, bucket: _Bucket) -> None:  # copy into a bucket the gradients that lie elsewhere
        outside = [
            (self.gradients[place], parameter)
            for place in bucket.places
            if (parameter := self.parameters[place]).grad is not self.gradients[place]
        ]
        dense = [
            (view, parameter.grad)
            for view, parameter in outside
            if parameter.grad is not None and parameter.grad.layout is torch.strided
        ]
        if dense:
            _copy_all([view for view, _ in dense], [gradient for _, gradient in dense])
        for view, parameter in outside if len(dense) < len(outside) else ():
            if parameter.grad is None:
                view.zero_()
            elif parameter.grad.layout is not torch.strided:
                view.copy_(parameter.grad.to_dense())
        for view, parameter in outside:
            parameter.grad = view

    @staticmethod
    @torch.no_grad()
    def _measure(bucket: _Bucket) -> None:
        bucket.norm = torch.linalg.vector_norm(bucket.gradients)

    def _send(self) -> None:
        bucket = self.all[self.sent]
        bucket.work = dist.all_reduce(bucket.flat, group=self._group, async_op=True)
        self.sent += 1

    def _wait(self) -> None:
        for bucket in self.all:
            if bucket.work is not None:
                bucket.work.wait()


def _call(method: WeakMethod[Any], place: int, _parameter: Tensor) -> None:
    if (found := method()) is not None:
        found(place)
