"""The ranks of a process group, and what they tell each other besides gradients."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import short


class Part(NamedTuple):
    """What a rank tells of its part of a round. With all ranks' parts, each field has an axis of ranks, (n,)."""

    elapsed: Any
    """Seconds from the round's start until the rank had computed its tasks."""
    loss: Any
    """Its part of the mean loss of the tasks."""
    leaves: Any
    """1 if it takes no tasks from the next round on, else 0."""
    checksum: Any
    """Of the allocation that it knows, and now and then of the policy's state: 24 bits, which a float32 can hold."""


class Ranks:
    """The ranks of a process group, each with the name of its worker.

    Parameters
    ----------
    group
        The process group; None is the default one.
    name
        This rank's worker. By default the host's name and the local rank that torchrun gives.
    device
        Where this rank computes; None: the current CUDA device with NCCL, else the CPU.
    agreed
        What must be the same on all ranks, by name.

    Raises
    ------
    RuntimeError
        If there is no process group yet.
    ValueError
        On every rank, if two have the same name or differ in what must be the same.
    """

    def __init__(
        self, group: dist.ProcessGroup | None, name: str | None, device: torch.device | None, agreed: Mapping[str, Any]
    ) -> None:
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
        self._transport = torch.device("cpu") if on_cpu else torch.device("cuda", torch.cuda.current_device())
        self.device = self._transport if device is None else device
        own = f"{socket.gethostname()}/{os.environ.get('LOCAL_RANK', self.rank)}" if name is None else name
        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, (own, json.dumps(dict(agreed), default=str)), group)
        self.names: tuple[str, ...] = tuple(name for name, _ in told)
        """The worker of each rank."""
        _check_alike(self.names, [json.loads(text) for _, text in told])

    @property
    def name(self) -> str:
        """The worker of this rank."""
        return self.names[self.rank]

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks."""
        values = values.to(self._transport, copy=True)
        dist.all_reduce(values, group=self.group)
        return values

    def packed(self, seconds: list[float], part: Part, shares: Ints) -> torch.Tensor:
        """What this rank tells, in a tensor of B + 4 n float64 that is 0 where others tell; float32 can hold all.

        ``shares``, (n,), are the tasks of each rank; ``seconds`` has as many times as this rank's share.
        """
        ends = np.cumsum(shares)
        budget = int(ends[-1])
        values = np.zeros(budget + len(part) * self.size)
        values[ends[self.rank] - shares[self.rank] : ends[self.rank]] = seconds
        values[budget:].reshape(len(part), self.size)[:, self.rank] = part
        return torch.from_numpy(values)

    def unpacked(self, summed: torch.Tensor, shares: Ints) -> tuple[list[Floats], Part]:
        """The task times of each rank, and the parts of all, from the sum of what all have told."""
        values = summed.double().cpu().numpy()
        ends = np.cumsum(shares)
        budget = int(ends[-1])
        table = values[budget:].reshape(len(Part._fields), self.size)
        return np.split(values[:budget], ends[:-1]), Part(*table)


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
