"""The ranks that compute a round together, and what they send each other besides gradients."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from ata_gym.cluster.torchrun.forms import AgreedLayout
from ata_gym.cluster.torchrun.ranks.parts import Fault, Passes, RankPart
from ata_gym.cluster.torchrun.weights import TOLERANCE
from ata_gym.typing import Floats, Ints

_REFUSED = -1.0
"""What a rank that refuses its model sends in place of a layout."""


class Member(NamedTuple):
    """A rank that may come and go between rounds."""

    start: int
    """A number that is another one after each start of its process."""
    leaves: bool
    """Whether it takes no tasks."""


class _Agreement(NamedTuple):
    disagreement: str
    """The error if the ranks do not agree."""
    tolerance: float
    """How far the ranks may be apart."""
    cure: str


AGREEMENTS: Mapping[str, _Agreement] = {
    "checksum": _Agreement(
        "the ranks decided on different allocations, or for different rounds",
        0.0,
        "Load the same state on every rank, and use the same versions of ata-gym, numpy and"
        " numba, on processors of one kind",
    ),
    "layout": _Agreement(
        "the ranks train parameters of different shapes, memory formats or dtypes",
        0.0,
        "Build, convert and freeze the model alike on every rank, before the same round",
    ),
    "samples": _Agreement(
        "the ranks follow different orders of samples",
        0.0,
        "Give TaskSampler the same dataset, samples, sampler, shuffle and seed on every rank, and"
        " TaskStream a loader that gives the same batches on every rank, with as many worker"
        " processes; without TaskStream, each rank computes what its own loader gives",
    ),
    "weights": _Agreement(
        "the models have different weights",
        TOLERANCE,
        "Seed torch alike on every rank before the model is made, or load the same checkpoint",
    ),
    "older_rounds": _Agreement(
        "the models have gradients of different earlier rounds",
        0.0,
        "Set all gradients to None on every rank, and begin the optimizer step again; step, and set"
        " gradients to None, on every rank in the same rounds, which allocator.rounds counts alike"
        " on all of them",
    ),
}
"""The fields of ``RankPart`` on which the ranks must agree."""

_FAULTS: Mapping[Fault, tuple[type[Exception], str]] = {
    Fault.LOSS: (
        FloatingPointError,
        "the loss of {worker} is not finite: look at its samples and the learning rate, or let"
        " it through with TorchAllocator(allow_nonfinite=True)",
    ),
    Fault.GRADIENT: (
        FloatingPointError,
        "the gradient of {parameter} on {worker} is not finite: look at its samples and the"
        " learning rate, or let it through with TorchAllocator(allow_nonfinite=True)",
    ),
    Fault.CHANGED: (
        RuntimeError,
        "{parameter} was changed inside the round on {worker}, as by an optimizer stepped in a"
        " backward hook or by Embedding(max_norm=...), before it had the gradient of all"
        " tasks: change it after share.reduce()",
    ),
    Fault.FAILED: (
        RuntimeError,
        "{worker} failed inside the round; it says why itself, and all can begin the round again",
    ),
    Fault.MEAN_OF_NOTHING: (
        FloatingPointError,
        "a loss of {worker} has weight 0 and is not finite, as a mean over nothing is: with a"
        ' weight the loss is a sum, as with reduction="sum"',
    ),
    Fault.SPARSE: (
        RuntimeError,
        "the gradient of {parameter} on {worker} is sparse, and is expected to be so only for"
        " the weight of nn.Embedding(sparse=True) and nn.EmbeddingBag(sparse=True): use one of"
        " them, or leave sparse out",
    ),
    Fault.SECOND_PASS: (
        RuntimeError,
        "{worker} computed a second backward pass in its last batch, when a part of the"
        " gradient was on its way, since the round before had one in each batch: begin the"
        " round again, in which nothing is sent before share.reduce()",
    ),
    Fault.REPLICA: (RuntimeError, "the ranks of {worker} differ; they say in what themselves"),
}


class Ranks(ABC):
    """The processes that compute a round together, each with the name of its worker."""

    elastic = False
    """Whether ranks come and go between rounds; then none waits for one that has failed."""
    members: Mapping[str, Member] = {}
    """If so, the ranks of the round by name."""
    names: tuple[str, ...]
    """The name of each rank's worker, by rank."""
    rank: int
    """The number of this rank."""
    device: torch.device
    """Where tensors are that the ranks can sum, if no model says so."""

    layout: AgreedLayout | None = None
    """The layout of gradients that all ranks had last; None if they are to compare them.

    It is None on all ranks, or on none."""

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.names)

    @abstractmethod
    def all_reduce(self, tensor: torch.Tensor) -> dist.Work:
        """Begin to replace a tensor by its sum over the ranks, and return what waits for it."""

    def exchanged(self, text: bytes) -> list[bytes]:
        """The texts of all ranks, each of which calls this with its own; empty if a sum fails."""
        lengths = torch.zeros(self.size, dtype=torch.float64, device=self.device)
        lengths[self.rank] = len(text)
        self.all_reduce(lengths).wait()
        if self.failed:
            return []
        return self._summed_texts(text, self.rank, lengths.int().tolist())

    def _summed_texts(self, text: bytes, rank: int, lengths: Sequence[int]) -> list[bytes]:
        """The texts of all ranks, of which the lengths are known; empty if the sum fails."""
        table = torch.zeros(len(lengths), max(lengths), dtype=torch.uint8, device=self.device)
        table[rank, : len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.all_reduce(table).wait()
        if self.failed:
            return []
        rows = table.cpu().numpy()
        return [row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)]

    @property
    def wait(self) -> bool:
        """Whether this rank may have to wait for another one."""
        return True

    @abstractmethod
    def waited_for(self, number: int) -> str:
        """Whom this rank waits for at the end of a round, for the log.

        It is empty if nobody is late, or if another rank says so.

        Args:
            number: The number of the round.
        """

    def compare_layouts(self, number: int, layout: int | None) -> None:
        """Compare the forms of the ranks' gradients before these are summed.

        Sums of unequal lengths end processes, or hang.

        Args:
            number: The number of the round.
            layout: A checksum of the forms of this rank's gradients; None if this rank refuses its
                model, and says why itself.

        Raises:
            RuntimeError: On every other rank, if a rank refuses its model; on every rank, if they
                differ.
        """
        layouts = torch.zeros(self.size, dtype=torch.float64, device=self.device)
        layouts[self.rank] = _REFUSED if layout is None else layout
        self.all_reduce(layouts).wait()
        if layout is None or self.failed:
            return
        values = layouts.cpu().numpy()
        refusing = [self.names[rank] for rank in np.flatnonzero(values == _REFUSED)]
        if refusing:
            verb = "refuse" if len(refusing) > 1 else "refuses"
            raise RuntimeError(
                f"round {number}: {', '.join(refusing)} {verb} to begin; it says why itself. All"
                " can begin the round again",
            )
        self.check_agreed(number, "layout", values)

    @property
    def failed(self) -> bool:
        """Whether a sum of this round has failed, so that it holds nothing."""
        return False

    @abstractmethod
    def begin(self, *, leaves: bool) -> None:
        """Begin a round.

        Args:
            leaves: Whether this rank takes no tasks.
        """

    def commit(self) -> bool:
        """End a round, and say whether its step is taken."""
        return True

    @abstractmethod
    def abandon(self, error: BaseException) -> None:
        """End a round that has failed on this rank."""

    def length(self, budget: int) -> int:
        """How many numbers all ranks together send about a round of B tasks."""
        return budget + len(RankPart._fields) * self.size

    def packed(self, seconds: list[float], part: RankPart[float], shares: Ints) -> Floats:
        """The times and the part of this rank, in a vector of B + 16 n numbers.

        It is 0 at the places of other ranks, so that a sum over the ranks has all of them. A
        float32 can hold all numbers.

        Args:
            seconds: The times of this rank's tasks.
            part: What this rank sends about its part.
            shares: The number of tasks of each rank, shape (n,).
        """
        budget = int(shares.sum())
        first = int(shares[: self.rank].sum())
        values = np.zeros(self.length(budget))
        values[first : first + len(seconds)] = seconds
        values[budget + self.rank :: self.size] = part
        return values

    def unpacked(self, summed: Floats, shares: Ints) -> tuple[list[Floats], RankPart[Floats]]:
        """The task times of each rank, and the parts of all ranks.

        Args:
            summed: The sum of what all ranks have packed.
            shares: The number of tasks of each rank, shape (n,).
        """
        ends = np.cumsum(shares).tolist()
        table = summed[ends[-1] :].reshape(len(RankPart._fields), self.size)
        seconds = [summed[start:end] for start, end in pairwise([0, *ends])]
        return seconds, RankPart(*table)

    def check(self, number: int, parts: RankPart[Floats], model: nn.Module) -> None:
        """Raise the same error on every rank where they do not agree, or a rank has a fault.

        Args:
            number: The number of the round.
            parts: The parts of all ranks.
            model: The model, which has the names of its parameters.
        """
        # The allocations are compared first, then the faults of the ranks, then all else.
        first_field, *other_fields = AGREEMENTS
        self.check_agreed(number, first_field, getattr(parts, first_field))
        for worker, code in zip(self.names, parts.fault.tolist(), strict=True):
            place, fault = divmod(int(code), len(Fault))
            if fault:
                error, sentence = _FAULTS[Fault(fault)]
                parameters = [name for name, _ in model.named_parameters()]
                if place < len(parameters):
                    parameter = f"the parameter {parameters[place]}"
                else:
                    parameter = "a new parameter"
                reason = sentence.format(worker=worker, parameter=parameter)
                raise error(f"round {number}: {reason}. The step is not taken")
        for field in other_fields:
            self.check_agreed(number, field, getattr(parts, field))
        self._check_weights(number, parts)

    def _check_weights(self, number: int, parts: RankPart[Floats]) -> None:
        """Raise where the losses of all tasks have no common mean."""
        kinds = set(parts.passes.tolist())
        if kinds == {Passes.NONE}:
            raise RuntimeError(
                f"round {number}: no task of any rank had a backward pass: call"
                " share.backward(loss) in place of loss.backward(). The step is not taken",
            )
        if kinds >= {Passes.UNWEIGHTED, Passes.WEIGHTED}:
            without_weight = [
                name
                for name, passes in zip(self.names, parts.passes, strict=True)
                if passes == Passes.UNWEIGHTED
            ]
            raise ValueError(
                f"round {number}: {', '.join(without_weight)} gave share.backward no weight, and"
                " others did. The step is not taken. Give weight=... on every rank, or on none",
            )
        if parts.accumulated.any():
            mixes = Passes.UNWEIGHTED in kinds
        else:
            mixes = Passes.WEIGHTED in kinds
        if mixes and parts.older_rounds.max() > 1:
            weights = ["weights", "no weights"]
            if Passes.UNWEIGHTED in kinds:
                weights.reverse()
            raise ValueError(
                f"round {number}: its losses have {weights[0]}, and losses of earlier rounds, whose"
                f" gradients the model still has, have {weights[1]}. The step is not taken. Give"
                " weight=... in every round of an optimizer step, or in none, and set the gradients"
                " to None after each step",
            )
        if Passes.WEIGHTED in kinds and not parts.weight.any():
            raise ValueError(
                f"round {number}: the weights of all ranks are 0, so that their losses have no"
                " mean. The step is not taken. Leave samples in which nothing counts out of the"
                " dataset, or make tasks or the budget larger",
            )

    def check_agreed(self, number: int, field: str, field_values: Floats) -> None:
        """Raise ``RuntimeError`` where ranks differ in a field; 0 means that a rank has none.

        Args:
            number: The number of the round.
            field: A key of ``AGREEMENTS``.
            field_values: What each rank has, shape (n,).
        """
        if (field_values == field_values[0]).all():
            return
        agreement = AGREEMENTS[field]
        values = [
            (name, value) for name, value in zip(self.names, field_values, strict=True) if value
        ]
        differing = [
            name for name, value in values if abs(value - values[0][1]) > agreement.tolerance
        ]
        if differing:
            raise disagreement(
                number, agreement.disagreement, differing, values[0][0], agreement.cure
            )


def disagreement(
    number: int, sentence: str, differing: Sequence[str], first: str, cure: str
) -> RuntimeError:
    """The error of a round in which some workers differ from the first one.

    Args:
        number: The number of the round.
        sentence: In what they differ.
        differing: Their names.
        first: The name of the first one.
        cure: What the user can do.
    """
    verb = "differ" if len(differing) > 1 else "differs"
    return RuntimeError(
        f"round {number}: {sentence}; {', '.join(differing)} {verb} from {first}. The step is not"
        f" taken. {cure}",
    )
