"""Gradients in flat tensors, the buckets.

A bucket is summed over the ranks as soon as the last backward pass has filled it.
"""

from collections import defaultdict
from collections.abc import Sequence
from threading import Lock
from typing import Any
from weakref import WeakMethod

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ata_gym.cluster.torchrun.dtensors import alike, is_dtensor, local_part, ranks_of
from ata_gym.cluster.torchrun.forms import Form, copy_all
from ata_gym.cluster.torchrun.ranks.ranks import Ranks
from ata_gym.cluster.torchrun.weights import GradientHook

_SIZE = 25 * 2**20
"""The bytes of a bucket; while a bucket is sent, the next one is filled."""


def gradient_dtype(parameter: Tensor) -> torch.dtype:
    """The dtype of a parameter's gradient."""
    return getattr(parameter, "grad_dtype", None) or parameter.dtype


def gradient_forms(parameters: Sequence[Tensor]) -> list[Form]:
    """The forms of the gradients of parameters, or of the parts of them that this rank has."""
    return [
        Form.from_tensor(local_part(parameter), gradient_dtype(parameter))
        for parameter in parameters
    ]


class _Bucket:
    """A flat tensor, with the places of the parameters whose gradients it begins with."""

    def __init__(
        self, flat: Tensor, places: list[int], gradients: Tensor, *, holds_extras: bool
    ) -> None:
        self.flat = flat
        self.places = places
        self.gradients = gradients
        self.holds_extras = holds_extras
        """Whether it also holds extras, which are known only after the last backward pass."""
        self.partial: list[int] = []
        """The places whose gradients are sums over the ranks of a mesh that were not taken yet."""
        self.missing: set[int] = set()
        """The places that the pass has not reached yet."""
        self.norm: Tensor | None = None
        """The norm of this rank's part of the gradient, once it is complete."""
        self.work: dist.Work | None = None
        """The collective that sums the bucket, once it is sent."""


class Buckets:
    """Sums the gradients of parameters, and some other tensors, over the ranks in each round.

    A bucket is filled when the first backward pass has computed all of its gradients, and later
    passes add up in it, so that no second copy of its gradients is kept. In the last pass, if
    ``expect_last`` was called before, it is sent as soon as it is complete; otherwise ``sum`` sends
    it. A bucket of at most 25 MB that also holds extras, the only one of a small model, is filled
    and sent after the last pass, so that no hook runs for its parameters; until then their
    gradients lie beside it. All ranks send the buckets in one order, so that each decides for
    itself when. The sums are views of the buckets, and are valid until the next round.

    Args:
        parameters: The parameters, of which all are trained; in the order in which forward passes
            use them, if possible.
        extras: The forms of the tensors that are summed with the gradients.
        sparse: The places of the parameters whose gradients may be sparse; they stay so until the
            round ends, beside their sum in the bucket, which is dense.
        ranks: The ranks.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        extras: Sequence[Form],
        sparse: Sequence[int],
        ranks: Ranks,
    ) -> None:
        self.parameters = list(parameters)
        self.extras = list(extras)
        self.sparse = tuple(sparse)
        self._ranks = ranks
        forms = gradient_forms(parameters)
        self.forms = [*forms, *extras]
        """The forms of all tensors: the parameters' places come first, then the extras'."""
        count = len(forms)
        lengths = [torch.Size(form.shape).numel() for form in self.forms]
        members: dict[tuple[torch.dtype, torch.device, int], list[int]] = defaultdict(list)
        filled_bytes: dict[tuple[torch.dtype, torch.device], int] = defaultdict(int)
        # Backward passes reach the parameters from the last one to the first one. The other tensors
        # come last, since they are known only at the end.
        order = [*reversed(range(count)), *range(count, len(self.forms))]
        for place in order:
            form = self.forms[place]
            kind = form.dtype, form.device
            members[*kind, filled_bytes[kind] // _SIZE].append(place)
            filled_bytes[kind] += lengths[place] * form.dtype.itemsize
        self.buckets: list[_Bucket] = []
        self._bucket_by_place: dict[int, _Bucket] = {}
        views: dict[int, Tensor] = {}
        for (dtype, device, _), places in members.items():
            sizes = [lengths[place] for place in places]
            flat = torch.zeros(sum(sizes), dtype=dtype, device=device)
            for place, part in zip(places, torch.split(flat, sizes), strict=True):
                views[place] = part.as_strided(self.forms[place].shape, self.forms[place].strides)
            parameter_places = [place for place in places if place < count]
            # The gradients are at the beginning of the flat tensor, by the order above.
            gradients = flat[: sum(lengths[place] for place in parameter_places)]
            self.buckets.append(
                _Bucket(
                    flat,
                    parameter_places,
                    gradients,
                    holds_extras=len(parameter_places) < len(places),
                ),
            )
            self._bucket_by_place |= dict.fromkeys(parameter_places, self.buckets[-1])
        self.gradients = [views[place] for place in range(count)]
        """The views of the buckets that hold the gradients of the parameters."""
        # The gradients that parameters have while the buckets hold them: the views, or DTensors of
        # them.
        self._held: list[Tensor] = list(self.gradients)
        self.sums = [views[place] for place in range(count, len(views))]
        """The views of the buckets that hold the other tensors."""
        # The parameters outlive this object, which their hooks must not keep alive.
        method = WeakMethod(self._reached)
        self._hooks: list[Any] = []
        for bucket in self.buckets:
            if bucket.holds_extras and bucket.flat.nbytes <= _SIZE:
                continue
            for place in bucket.places:
                register: Any = self.parameters[place].register_post_accumulate_grad_hook
                self._hooks.append(register(GradientHook(_call, method, place)))
        self._open = False
        self._lock = Lock()

    def close(self) -> None:
        """Remove the hooks from the parameters."""
        for hook in self._hooks:
            hook.remove()

    def begin(self) -> None:
        """Begin a round, in which the parameters have no gradients yet."""
        self.reached = [False] * len(self.parameters)
        """Whether a backward pass of this rank gave a gradient to each parameter, once complete."""
        self.changed_after_send = False
        """Whether a gradient was added to a bucket that had been sent."""
        self.unexpected_sparse: int | None = None
        """The place of a gradient that is sparse and may not be so; None if there is none."""
        self.sent = 0
        """The number of buckets that were sent."""
        self._last_pass = False
        self._open = True
        for bucket in self.buckets:
            bucket.missing = set(bucket.places)
            bucket.partial = []
            bucket.norm = None
            bucket.work = None

    def expect_last(self) -> None:
        """Expect that the next backward pass is the last one of the round on this rank."""
        self._last_pass = True
        for bucket in self.buckets:
            bucket.missing = set(bucket.places)

    def end(self) -> None:
        """End the round; wait for what was sent, so that the buckets can be used again."""
        self._open = False
        self._wait()

    def complete(self) -> list[Tensor]:
        """Fill all buckets, and return the norms of their gradients on this rank."""
        self.reached = [parameter.grad is not None for parameter in self.parameters]
        for bucket in self.buckets[self.sent :]:
            self._fill(bucket)
            self._measure(bucket)
        return [bucket.norm for bucket in self.buckets if bucket.norm is not None]

    def partners(self) -> set[int]:
        """The ranks with which this one takes sums over a mesh, once the buckets are filled."""
        partial = [place for bucket in self.buckets for place in bucket.partial]
        return {rank for place in partial for rank in ranks_of(self.parameters[place])}

    def not_finite(self) -> int | None:
        """The first place whose gradient is not finite on this rank; None if there is none.

        Where a bucket was sent, the sum over the ranks counts in its place.
        """
        self._wait()
        return next(
            (
                place
                for place, gradient in enumerate(self.gradients)
                if not gradient.isfinite().all()
            ),
            None,
        )

    def sum(self, extras: Sequence[Tensor], *, settle: bool) -> None:
        """Send the remaining buckets, with the extras, and wait until the views hold the sums.

        Args:
            extras: The tensors that are summed with the gradients.
            settle: Whether the gradients count, so that the ranks of a mesh take the sums over it.
        """
        if settle:
            self._settle()
        for view, tensor in zip(self.sums, extras, strict=True):
            view.copy_(tensor)
        while self.sent < len(self.buckets):
            self._send()
        self._wait()

    def scale(self, factor: float) -> None:
        """Multiply the gradients."""
        for bucket in self.buckets:
            bucket.gradients.mul_(factor)

    def _reached(self, place: int) -> None:
        """Take note that a backward pass has given a gradient to the parameter of a place."""
        if self._open:
            # Each device of a model has a thread of its own in a backward pass.
            with self._lock:
                self._advance(place)

    def _advance(self, place: int) -> None:
        bucket = self._bucket_by_place[place]
        self.changed_after_send = self.changed_after_send or bucket.work is not None
        if place not in bucket.missing:
            return
        bucket.missing.remove(place)
        if not bucket.missing:
            self._fill(bucket)
        # In the last pass, send all complete buckets that are next in the order. A bucket with
        # other tensors waits for ``sum``; there is at least one, so that there is a next bucket.
        while (
            self._last_pass
            and not (next_bucket := self.buckets[self.sent]).missing
            and not next_bucket.holds_extras
            and not next_bucket.partial
        ):
            self._measure(next_bucket)
            self._send()

    @torch.no_grad()
    def _fill(self, bucket: _Bucket) -> None:
        """Copy into a bucket the gradients that lie elsewhere, and let parameters have views."""
        outside = [
            (self.gradients[place], place)
            for place in bucket.places
            if self.parameters[place].grad is not self._held[place]
        ]
        dense: list[tuple[Tensor, Tensor]] = []
        held: list[tuple[Tensor, int]] = []
        for view, place in outside:
            gradient = self.parameters[place].grad
            if gradient is None:
                view.zero_()
                held.append((view, place))
                continue
            part = local_part(gradient)
            if part.layout is torch.strided:
                dense.append((view, part))
            else:
                view.copy_(part.to_dense())
                if place in self.sparse:
                    # Later passes add to the sparse gradient.
                    continue
                self.unexpected_sparse = place
            held.append((view, place))
        if dense:
            copy_all([view for view, _ in dense], [part for _, part in dense])
        # Later passes add to the gradient in the bucket.
        for view, place in held:
            self._hold(bucket, view, place)

    def _hold(self, bucket: _Bucket, view: Tensor, place: int) -> None:
        """Let a parameter have its view as its gradient."""
        parameter: Any = self.parameters[place]
        gradient: Any = parameter.grad
        placements = None
        if is_dtensor(gradient) and gradient.placements != parameter.placements:
            # Such is the gradient of a norm under sequence parallelism: its parts add up locally.
            placements = gradient.placements
            bucket.partial.append(place)
        self._held[place] = alike(view, parameter, placements)
        parameter.grad = self._held[place]

    @torch.no_grad()
    def _settle(self) -> None:
        """Give the views the gradients as the parameters are distributed."""
        for bucket in self.buckets[self.sent :]:
            for place in bucket.partial:
                parameter: Any = self.parameters[place]
                gradient: Any = self._held[place]
                settled = gradient.redistribute(placements=parameter.placements)
                self.gradients[place].copy_(local_part(settled))

    @staticmethod
    @torch.no_grad()
    def _measure(bucket: _Bucket) -> None:
        bucket.norm = torch.linalg.vector_norm(bucket.gradients)

    def _send(self) -> None:
        bucket = self.buckets[self.sent]
        bucket.work = self._ranks.all_reduce(bucket.flat)
        self.sent += 1

    def _wait(self) -> None:
        for bucket in self.buckets:
            if bucket.work is not None:
                bucket.work.wait()


def _call(method: WeakMethod[Any], place: int, _parameter: Tensor) -> None:
    if (function := method()) is not None:
        function(place)
