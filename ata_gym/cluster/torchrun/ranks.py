"""The ranks of a process group, and what they send each other besides gradients."""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from ata_gym.cluster.torchrun.weights import TOLERANCE
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import short


class Part(NamedTuple):
    """What a rank sends about its part of a round. In the parts of all ranks each field has an axis of ranks, (n,)."""

    elapsed: Any  # seconds from the round's start until the rank had computed its tasks
    loss: Any  # the part of the mean loss that its tasks have
    leaves: Any  # 1 if the rank takes no tasks from the next round on, else 0
    checksum: Any  # a checksum of the allocation that it knows, and at times of the policy's state, of 24 bits
    layout: Any  # a checksum of the forms of the gradients, of 24 bits
    samples: Any  # a checksum of the order of samples that it follows, of 24 bits; 0 if it follows none in this round
    weight: Any  # the sum of the weights of its losses; 0 where they have none
    weights: Any  # a fingerprint of the weights of the models in some rounds, 0 in the others
    fault: Any  # what is wrong with its tasks: a ``Fault``, plus ``len(Fault)`` times the place of the parameter


class Fault(IntEnum):
    """What may be wrong with the tasks of a rank, so that no rank takes the step."""

    NONE = 0
    LOSS = 1
    GRADIENT = 2
    CHANGED = 3
    AGAIN = 4
    FAILED = 5


_AGREED: Mapping[str, tuple[str, float, str]] = {
    "checksum": (
        "the ranks decided on different allocations", 0.0,
        "Load the same state on every rank, and use the same versions of ata-gym, numpy and numba, on processors of "
        "one kind",
    ),
    "layout": (
        "the ranks train parameters of different shapes, memory formats or dtypes", 0.0,
        "Build, convert and freeze the model alike on every rank",
    ),
    "samples": (
        "the ranks follow different orders of samples", 0.0,
        "Give TaskSampler the same dataset, samples, shuffle and seed on every rank",
    ),
    "weights": (
        "the models have different weights", TOLERANCE,
        "Seed torch alike on every rank before the model is made, or load the same checkpoint",
    ),
}  # fmt: skip
"""For each field on which the ranks must agree: the error if they do not, how far they may be apart, and the cure."""

_FAULTS: Mapping[Fault, tuple[type[Exception], str]] = {
    Fault.LOSS: (
        FloatingPointError,
        "the loss of {worker} is not finite: look at its samples and the learning rate, or let it through with "
        "TorchAllocator(allow_nonfinite=True)",
    ),
    Fault.GRADIENT: (
        FloatingPointError,
        "the gradient of {parameter} on {worker} is not finite: look at its samples and the learning rate, or let it "
        "through with TorchAllocator(allow_nonfinite=True)",
    ),
    Fault.CHANGED: (
        RuntimeError,
        "{parameter} was changed inside the round on {worker}, as by an optimizer stepped in a backward hook or by "
        "Embedding(max_norm=...), before its gradient was that of all tasks: change it after share.reduce()",
    ),
    Fault.FAILED: (RuntimeError, "{worker} failed when a part of its gradient was on its way; it says why itself"),
    Fault.AGAIN: (
        RuntimeError,
        "{worker} computed a second backward pass in its last batch, when a part of the gradient was on its way, since "
        "the round before had one in each batch: begin the round again, in which nothing is sent before share.reduce()",
    ),
}


class Ranks:
    """The ranks of a process group, each with the name of its worker.

    ``group`` and ``name`` are as for ``TorchAllocator``; ``agreed`` must be the same on all ranks. RuntimeError if
    there is no process group; ValueError on every rank if two have the same name, or differ in what is ``agreed``.
    """

    def __init__(self, group: dist.ProcessGroup | None, name: str | None, agreed: Mapping[str, Any]) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError(
                "there is no process group: start the script with torchrun, and call torch.distributed."
                'init_process_group("gloo"), or "nccl" on GPUs, before TorchAllocator'
            )
        if group is not None and not isinstance(group, dist.ProcessGroup):  # as on ranks that are not in a new group
            what = "None, or a process group that this rank is in, as torch.distributed.new_group makes"
            raise ValueError(f"group must be {what}, not {short(group)}")
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        on_cpu = "cpu:" in dist.get_backend_config(group)  # such as "cpu:gloo,cuda:nccl"
        # The backend takes tensors of the current CUDA device with NCCL alone, else of the CPU.
        self.device = torch.device("cpu") if on_cpu else torch.device("cuda", torch.cuda.current_device())
        own = f"{socket.gethostname()}/{os.environ.get('LOCAL_RANK', self.rank)}" if name is None else name
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, (own, json.dumps(dict(agreed), default=str)), group)
        self.names: tuple[str, ...] = tuple(name for name, _ in gathered)
        _check_alike(self.names, [json.loads(text) for _, text in gathered])

    def length(self, budget: int) -> int:
        """How many numbers all ranks together send about a round."""
        return budget + len(Part._fields) * self.size

    def packed(self, seconds: list[float], part: Part, shares: Ints) -> torch.Tensor:
        """The times and the part of this rank, in a tensor of B + 9 n float64 that is 0 at the places of other ranks.

        A float32 can hold all numbers. ``shares``, (n,), are the tasks of each rank.
        """
        ends = np.cumsum(shares)
        budget = int(ends[-1])
        values = np.zeros(self.length(budget))
        values[ends[self.rank] - shares[self.rank] : ends[self.rank]] = seconds
        values[budget:].reshape(len(part), self.size)[:, self.rank] = part
        return torch.from_numpy(values)

    def unpacked(self, summed: torch.Tensor, shares: Ints) -> tuple[list[Floats], Part]:
        """The task times of each rank, and the parts of all, from the sum of what all ranks have packed."""
        values = summed.double().cpu().numpy()
        ends = np.cumsum(shares)
        budget = int(ends[-1])
        table = values[budget:].reshape(len(Part._fields), self.size)
        return np.split(values[:budget], ends[:-1]), Part(*table)

    def check(self, number: int, parts: Part, model: nn.Module, shares: Ints) -> None:
        """Raise the same error on every rank where they do not agree on round ``number``, or a rank has a fault."""
        first, *others = _AGREED
        self._check_agreed(number, parts, [first])
        for worker, code in zip(self.names, parts.fault.astype(int).tolist(), strict=True):
            place, fault = divmod(code, len(Fault))
            if fault:
                error, sentence = _FAULTS[Fault(fault)]
                parameters = [name for name, _ in model.named_parameters()]
                parameter = f"the parameter {parameters[place]}" if place < len(parameters) else "a new parameter"
                reason = sentence.format(worker=worker, parameter=parameter)
                raise error(f"round {number}: {reason}. The step is not taken")
        self._check_agreed(number, parts, others)
        without = [name for name, own, known in zip(self.names, shares, parts.weight, strict=True) if own and not known]
        if parts.weight.any() and without:
            raise ValueError(
                f"round {number}: {', '.join(without)} gave share.backward no weight, and others did. The step is not "
                "taken. Give weight=... on every rank, or on none"
            )

    def _check_agreed(self, number: int, parts: Part, fields: Sequence[str]) -> None:
        for field in fields:
            what, most, cure = _AGREED[field]
            sent = [(name, value) for name, value in zip(self.names, getattr(parts, field), strict=True) if value]
            others = [name for name, value in sent if abs(value - sent[0][1]) > most]
            if others:
                differ = f"{', '.join(others)} differ{'' if len(others) > 1 else 's'} from {sent[0][0]}"
                raise RuntimeError(f"round {number}: {what}; {differ}. The step is not taken. {cure}")


def _check_alike(names: tuple[str, ...], agreed: list[dict[str, Any]]) -> None:
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()
    if twice:
        raise ValueError(
            f"each rank needs a worker's name of its own, and {sorted(twice)} stand for several: give "
            "TorchAllocator(name=...), such as the host and the device"
        )
    for key, value in agreed[0].items():
        others = {name: one.get(key) for name, one in zip(names, agreed, strict=True) if one.get(key) != value}
        if others:
            who, other = next(iter(others.items()))
            raise ValueError(
                f"{key} must be the same on every rank: it is {value!r} on {names[0]} and {other!r} on {who}"
            )
