"""The replicas of a quorum of torchft, which come and go between rounds."""

import json
import logging
import secrets
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ata_gym.cluster.torchrun.ranks.group import check_configurations
from ata_gym.cluster.torchrun.ranks.parts import Fault, RankPart
from ata_gym.cluster.torchrun.ranks.ranks import Member, Ranks
from ata_gym.typing import Floats
from ata_gym.utils.extras import require
from ata_gym.utils.validation import short

_LOG = logging.getLogger("ata_gym.cluster")
_STATE_KEY = "ata_gym"
"""The key of the allocator's state in the state of the Manager."""
_PAUSE = 0.5
"""Seconds until a replica asks again, where a round could not begin."""


class QuorumRanks(Ranks):
    """The replicas of a quorum, each of one process.

    In each round the ranks are the members of the quorum that the Manager has then. They send each
    other their names when these have changed. Sums are sums, never means.

    Args:
        manager: The Manager of torchft, as for ``TorchAllocator``.
        name: The name of this replica, as for ``TorchAllocator``.
        configuration: What must be the same on all replicas, by name.
        load: Loads the state of another replica, where this one is behind.
        state: Gives the state for such a replica.

    Raises:
        MissingExtraError: If torchft is not installed.
        ValueError: For a Manager with which a round cannot be right, and for a replica without a
            name.
    """

    elastic = True

    def __init__(
        self,
        manager: Any,
        name: str | None,
        configuration: Mapping[str, Any],
        load: Callable[[Any], None],
        state: Callable[[], Any],
    ) -> None:
        _check_manager(manager)
        self._manager = manager
        own_name = manager._replica_id if name is None else name
        if not own_name:
            raise ValueError(
                "the replica has no name, by which it is known when it returns: give"
                ' Manager(replica_id=...) or TorchAllocator(name=...), such as "replica_0"',
            )
        if "nccl" in manager._pg.getBackendName():
            self.device = torch.device("cuda", torch.cuda.current_device())
        else:
            self.device = torch.device("cpu")
        self.names = (own_name,)
        self.rank = 0
        # After a restart under the same name it is another number.
        self._start = secrets.randbits(31)
        self._configuration = json.loads(json.dumps(dict(configuration), default=str))
        # What each rank said of itself, and a checksum of it.
        self._answers: list[bytes] = []
        self._checksum = 0
        # The step of the Manager after the last round.
        self._step: int | None = None
        self._load = load
        self._state = state
        manager.register_state_dict_fn(_STATE_KEY, self._load_of_another, self._state_for_another)

    def _state_for_another(self) -> dict[str, Any]:
        return {
            "name": self.names[self.rank],
            "configuration": self._configuration,
            "allocator": self._state(),
        }

    def _load_of_another(self, state: Mapping[str, Any]) -> None:
        self._ask_all()
        # A replica that does not fit is refused before the others take it into a round.
        configurations = [state["configuration"], self._configuration]
        names = (state["name"], self.names[self.rank])
        if names[0] != names[1]:
            check_configurations(names, configurations)
        self._load(state["allocator"])

    def begin(self, *, leaves: bool) -> None:
        """Begin a round with the replicas that are there, which a replica behind them joins.

        Raises:
            RuntimeError: If something else has taken a step with the Manager, or if it does not
                know how to load a model.
            ValueError: On every replica, if two have the same name, or differ in the configuration.
        """
        if self._step is not None and self._manager.current_step() == self._step + 1:
            raise RuntimeError(
                "the Manager has taken a step of its own, as torchft's OptimizerWrapper does: a"
                " round decides whether a step counts, so give the plain optimizer, and step if"
                " share.committed",
            )
        if set(self._manager._load_state_dict_fns) == {_STATE_KEY}:
            raise RuntimeError(
                "the Manager cannot give the model to a replica that returns: give"
                " Manager(load_state_dict=..., state_dict=...) of the model and the optimizer, or"
                " register them with manager.register_state_dict_fn",
            )
        own = {
            "name": self.names[self.rank],
            "start": self._start,
            "leaves": leaves,
            "configuration": self._configuration,
        }
        text = json.dumps(own).encode()
        while not self._join(text):
            self.commit()
            # without the pause, a replica that is alone would ask many times a second
            time.sleep(_PAUSE)
        rows = [json.loads(each) for each in self._answers]
        names = tuple(row["name"] for row in rows)
        try:
            check_configurations(names, [row["configuration"] for row in rows])
        except ValueError as error:
            self.abandon(error)
            raise
        self.names = names
        self.rank = self._manager.participating_rank()
        self.members = {row["name"]: Member(row["start"], row["leaves"]) for row in rows}

    def _join(self, own_text: bytes) -> bool:
        """Ask for a quorum, and for what its replicas say of themselves.

        Returns:
            Whether they are enough for a step that counts, and all of them have answered.
        """
        self._manager.start_quorum()
        rank = self._manager.participating_rank()
        size = self._manager.num_participants()
        # The length and checksum of each text, and the checksum of all texts that a rank knows.
        table = torch.zeros(size, 3, dtype=torch.float64, device=self.device)
        row = [len(own_text), zlib.crc32(own_text), self._checksum]
        table[rank] = torch.tensor(row, dtype=torch.float64)
        self.all_reduce(table).wait()
        if self.failed or size < self._manager._min_replica_size:
            return False
        numbers = table.long().tolist()
        checksum = zlib.crc32(repr([number[:2] for number in numbers]).encode())
        # All ranks take this way, or none does.
        if all(number[2] == checksum for number in numbers):
            return True
        self.layout = None
        texts = self._summed_texts(own_text, rank, [number[0] for number in numbers])
        if self.failed:
            return False
        self._answers = texts
        self._checksum = checksum
        return True

    def all_reduce(self, tensor: torch.Tensor) -> dist.Work:
        work: dist.Work = self._manager.allreduce(tensor, reduce_op=dist.ReduceOp.SUM)
        return work

    @property
    def failed(self) -> bool:
        return self._manager.errored() is not None

    def check(self, number: int, parts: RankPart[Floats], model: nn.Module) -> None:
        faults = parts.fault.astype(int) % len(Fault)
        failing = [
            name for name, fault in zip(self.names, faults, strict=True) if fault == Fault.FAILED
        ]
        if failing:
            self._manager.report_error(RuntimeError(f"{', '.join(failing)} failed in it"))
        else:
            super().check(number, parts, model)

    def commit(self) -> bool:
        error = self._manager.errored()
        committed: bool = self._manager.should_commit()
        self._step = self._manager.current_step()
        if not committed:
            self._ask_all()
            if error is None:
                reason = "there are too few replicas"
            else:
                reason = str(error.original_exception)
            _LOG.warning("a step is not committed, and its round begins again: %s", reason)
        return committed

    def _ask_all(self) -> None:
        """Let all replicas of the next round say again what they are, and compare their layouts.

        This one may not know what they have agreed on in a round that it was not in to its end.
        """
        self._checksum = 0

    def abandon(self, error: BaseException) -> None:
        self._manager.report_error(RuntimeError(f"{type(error).__name__}: {error}"))
        self.commit()

    def waited_for(self, number: int) -> str:
        return "other replicas"


def _check_manager(manager: Any) -> None:
    torchft = require("torchft", extra="torchft", purpose="TorchAllocator(manager=...)")
    modes = require("torchft.manager", extra="torchft").WorldSizeMode
    if not isinstance(manager, torchft.Manager):
        raise ValueError(f"manager must be a torchft.Manager, not {short(manager)}")  # noqa: TRY004
    if manager._use_async_quorum:
        raise ValueError(
            "the Manager has an asynchronous quorum, with which a replica computes before it is"
            " known who is there, so that no tasks can be shared out: make it with"
            " Manager(use_async_quorum=False)",
        )
    if manager._replica_world_size_mode != modes.DYNAMIC:
        raise ValueError(
            "the Manager keeps spare replicas, whose tasks would not count: make it with"
            " Manager(world_size_mode=WorldSizeMode.DYNAMIC)",
        )
    if manager._group_world_size > 1:
        raise ValueError(
            f"a replica of {manager._group_world_size} processes is not supported, since each of"
            " them would have a share of its own: start each replica with one process",
        )
    if _STATE_KEY in manager._load_state_dict_fns:
        raise ValueError("the Manager has a TorchAllocator already: make a new Manager")
