"""The ranks that compute a round together, and what they send each other besides gradients."""

import json
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from ata_gym.cluster.torchrun.weights import TOLERANCE
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import short

Number = TypeVar("Number", float, Floats)


class RankPart(NamedTuple, Generic[Number]):
    """What a rank sends about its part of a round.

    Each field is a number. In the parts of all ranks it has an axis of ranks, shape (n,).
    """

    elapsed: Number
    """The seconds from the round's start until the rank had computed its tasks."""
    latency: Number
    """The part of them before the rank's first task, and after its last one."""
    loss: Number
    """The part of the mean loss that its tasks have."""
    leaves: Number
    """1 if the rank takes no tasks from the next round on, else 0."""
    checksum: Number
    """A checksum, of 24 bits, of the allocation, and at times of the policy's state, too."""
    layout: Number
    """A checksum of the forms of the gradients, of 24 bits."""
    samples: Number
    """A checksum, of 24 bits, of the order of samples that it follows.

    It is 0 if the rank follows no order in this round."""
    weight: Number
    """The sum of the weights of its losses; 0 where they have none."""
    weights: Number
    """A fingerprint of the weights of the models in some rounds, 0 in the others."""
    fault: Number
    """What is wrong with its tasks.

    It is a ``Fault``, plus ``len(Fault)`` times the place of the parameter."""
    first_batch: Number
    """A checksum, of 24 bits, of the first batch of a loader that shares nothing out.

    It is 0 once it was compared with those of the other ranks."""
    second_batch: Number
    """The same of its second batch; 0 if there was none yet."""
    passes: Number
    """The kind of its backward passes, a ``Passes``."""
    accumulated: Number
    """The sum of the weights of the earlier rounds to whose gradients this round's are added."""


class Passes(IntEnum):
    """The kind of the backward passes of a rank in a round."""

    NONE = 0
    UNWEIGHTED = 1
    """Each loss is a mean."""
    WEIGHTED = 2
    """Each loss is a sum, and has a weight, maybe 0."""


class Fault(IntEnum):
    """What may be wrong with the tasks of a rank, so that no rank takes the step."""

    NONE = 0
    LOSS = 1
    GRADIENT = 2
    CHANGED = 3
    SECOND_PASS = 4
    FAILED = 5
    REPLICA = 6
    MEAN_OF_NOTHING = 7
    SPARSE = 8


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
        "Build, convert and freeze the model alike on every rank",
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

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.names)

    @abstractmethod
    def all_reduce(self, tensor: torch.Tensor) -> dist.Work:
        """Begin to replace a tensor by its sum over the ranks, and return what waits for it."""

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

    def packed(self, seconds: list[float], part: RankPart[float], shares: Ints) -> torch.Tensor:
        """The times and the part of this rank, in a tensor of B + 14 n float64.

        It is 0 at the places of other ranks, so that a sum over the ranks has all of them. A
        float32 can hold all numbers.

        Args:
            seconds: The times of this rank's tasks.
            part: What this rank sends about its part.
            shares: The number of tasks of each rank, shape (n,).
        """
        ends = np.cumsum(shares)
        budget = int(ends[-1])
        values = np.zeros(self.length(budget))
        values[ends[self.rank] - shares[self.rank] : ends[self.rank]] = seconds
        values[budget:].reshape(len(part), self.size)[:, self.rank] = part
        return torch.from_numpy(values)

    def unpacked(self, summed: torch.Tensor, shares: Ints) -> tuple[list[Floats], RankPart[Floats]]:
        """The task times of each rank, and the parts of all ranks.

        Args:
            summed: The sum of what all ranks have packed.
            shares: The number of tasks of each rank, shape (n,).
        """
        values = summed.double().cpu().numpy()
        ends = np.cumsum(shares)
        budget = int(ends[-1])
        table = values[budget:].reshape(len(RankPart._fields), self.size)
        return np.split(values[:budget], ends[:-1]), RankPart(*table)

    def check(self, number: int, parts: RankPart[Floats], model: nn.Module) -> None:
        """Raise the same error on every rank where they do not agree, or a rank has a fault.

        Args:
            number: The number of the round.
            parts: The parts of all ranks.
            model: The model, which has the names of its parameters.
        """
        # The allocations are compared first, then the faults of the ranks, then all else.
        first_field, *other_fields = AGREEMENTS
        self._check_agreed(number, parts, [first_field])
        for worker, code in zip(self.names, parts.fault.astype(int).tolist(), strict=True):
            place, fault = divmod(code, len(Fault))
            if fault:
                error, sentence = _FAULTS[Fault(fault)]
                parameters = [name for name, _ in model.named_parameters()]
                if place < len(parameters):
                    parameter = f"the parameter {parameters[place]}"
                else:
                    parameter = "a new parameter"
                reason = sentence.format(worker=worker, parameter=parameter)
                raise error(f"round {number}: {reason}. The step is not taken")
        self._check_agreed(number, parts, other_fields)
        self._check_weights(number, parts)

    def _check_weights(self, number: int, parts: RankPart[Floats]) -> None:
        """Raise where the losses of all tasks have no common mean."""
        if not parts.passes.any():
            raise RuntimeError(
                f"round {number}: no task of any rank had a backward pass: call"
                " share.backward(loss) in place of loss.backward(). The step is not taken",
            )
        without_weight = [
            name
            for name, passes in zip(self.names, parts.passes, strict=True)
            if passes == Passes.UNWEIGHTED
        ]
        if without_weight and (parts.passes == Passes.WEIGHTED).any():
            raise ValueError(
                f"round {number}: {', '.join(without_weight)} gave share.backward no weight, and"
                " others did. The step is not taken. Give weight=... on every rank, or on none",
            )
        if without_weight and parts.accumulated.any():
            raise ValueError(
                f"round {number}: its losses have no weights, and those of earlier rounds, whose"
                " gradients the model still has, do. The step is not taken. Give weight=... in"
                " every round of an optimizer step, or in none, and set the gradients to None"
                " after each step",
            )
        if not without_weight and not parts.weight.any():
            raise ValueError(
                f"round {number}: the weights of all ranks are 0, so that their losses have no"
                " mean. The step is not taken. Leave samples in which nothing counts out of the"
                " dataset, or make tasks or the budget larger",
            )

    def _check_agreed(self, number: int, parts: RankPart[Floats], fields: Sequence[str]) -> None:
        """Raise ``RuntimeError`` where ranks differ in a field; 0 means that a rank has none."""
        for field in fields:
            agreement = AGREEMENTS[field]
            values = [
                (name, value)
                for name, value in zip(self.names, getattr(parts, field), strict=True)
                if value
            ]
            differing = [
                name for name, value in values if abs(value - values[0][1]) > agreement.tolerance
            ]
            if differing:
                verb = "differ" if len(differing) > 1 else "differs"
                difference = f"{', '.join(differing)} {verb} from {values[0][0]}"
                raise RuntimeError(
                    f"round {number}: {agreement.disagreement}; {difference}. The step is not"
                    f" taken. {agreement.cure}",
                )


def default_name(rank: int) -> str:
    """The name of a rank's worker: its host and its place there."""
    return f"{socket.gethostname()}/{os.environ.get('LOCAL_RANK', rank)}"


class GroupRanks(Ranks):
    """The ranks of a process group.

    Args:
        group: The process group, as for ``TorchAllocator``.
        name: The name of this rank's worker, as for ``TorchAllocator``.
        configuration: What must be the same on all ranks, by name.
        everybody: The names of all ranks that wait for each other, where the group is a part of
            them; by default those of the group.
        place: The place of this rank among them.

    Raises:
        RuntimeError: If there is no process group.
        ValueError: On every rank, if two ranks have the same name, or differ in the
            configuration.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        name: str | None,
        configuration: Mapping[str, Any],
        everybody: Sequence[str] = (),
        place: int = 0,
    ) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError(
                "there is no process group: start the script with torchrun, and call"
                ' torch.distributed.init_process_group("gloo"), or "nccl" on GPUs, before'
                " TorchAllocator",
            )
        # On ranks that are not in a new group, torch gives another object.
        if group is not None and not isinstance(group, dist.ProcessGroup):
            expected = (
                "None, or a process group that this rank is in, as torch.distributed.new_group"
                " makes"
            )
            raise ValueError(f"group must be {expected}, not {short(group)}")
        self._group = group
        self.rank = dist.get_rank(group)
        size = dist.get_world_size(group)
        # The configuration is such as "cpu:gloo,cuda:nccl". The backend takes tensors of the
        # current CUDA device with NCCL alone, else of the CPU.
        on_cpu = "cpu:" in dist.get_backend_config(group)
        if on_cpu:
            self.device = torch.device("cpu")
        else:
            self.device = torch.device("cuda", torch.cuda.current_device())
        if name is None:
            rank_name = default_name(self.rank)
        else:
            rank_name = name
        gathered: list[Any] = [None] * size
        dist.all_gather_object(
            gathered, (rank_name, json.dumps(dict(configuration), default=str)), group
        )
        self.names = tuple(name for name, _ in gathered)
        check_configurations(self.names, [json.loads(text) for _, text in gathered])
        if everybody:
            self._everybody = tuple(everybody)
            self._place = place
        else:
            self._everybody = self.names
            self._place = self.rank
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store = dist.distributed_c10d.PrefixStore(
            f"ata_gym/waiting/{attempt}",
            dist.distributed_c10d._get_default_store(),
        )

    def all_reduce(self, tensor: torch.Tensor) -> dist.Work:
        work: dist.Work = dist.all_reduce(tensor, group=self._group, async_op=True)
        return work

    def begin(self, *, leaves: bool) -> None:
        """The ranks are the same in each round."""

    def abandon(self, error: BaseException) -> None:
        """The others wait until this rank begins the round again."""

    @property
    def wait(self) -> bool:
        return len(self._everybody) > 1

    def waited_for(self, number: int) -> str:
        self._store.set(f"{number}/{self._place}", "")
        waits = [self._store.check([f"{number}/{place}"]) for place in range(len(self._everybody))]
        # Only the first of the ranks that wait logs.
        if waits.index(True) != self._place:
            return ""
        return ", ".join(
            name for name, waiting in zip(self._everybody, waits, strict=True) if not waiting
        )


def check_configurations(names: Sequence[str], configurations: list[dict[str, Any]]) -> None:
    """Raise ``ValueError`` if ranks have one name, or differ in what must be the same."""
    # The count of each name takes n^2 steps, so it is left to the error.
    if len(set(names)) < len(names):
        repeated = {name for name in names if names.count(name) > 1}
        raise ValueError(
            f"each rank needs a worker's name of its own, and {sorted(repeated)} stand for several:"
            " give TorchAllocator(name=...), such as the host and the device",
        )
    for key, value in configurations[0].items():
        differing = {
            name: configuration.get(key)
            for name, configuration in zip(names, configurations, strict=True)
            if configuration.get(key) != value
        }
        if differing:
            other_name, other_value = next(iter(differing.items()))
            raise ValueError(
                f"{key} must be the same on every rank: it is {value!r} on {names[0]} and"
                f" {other_value!r} on {other_name}",
            )
