"""The ranks of a process group, which are the same in each round."""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ata_gym.cluster.torchrun.ranks.ranks import Ranks
from ata_gym.utils.validation import short


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
            them; by default the ranks of the group.
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
