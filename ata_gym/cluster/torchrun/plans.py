"""Who computes which tasks of a round: the same decision on all ranks, made ahead of the round."""

import copy
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ata_gym.cluster.torchrun.ranks.ranks import Member, Ranks
from ata_gym.typing import Ints, Worker
from ata_policies import Allocator, Propensities

_PLANNER = ThreadPoolExecutor(1, "ata_gym plans")
"""The thread that decides on the next round while the optimiser steps."""


class _Plan(NamedTuple):
    """A plan for the next round."""

    allocator: Allocator
    """The allocator that has made the plan, and is in its place in that round."""
    tasks: Future[dict[Worker, int]]
    propensities: Future[Propensities] | None
    """How likely the tasks are; None if that is not asked for."""


class _Memory(NamedTuple):
    """What a round that does not count leaves as it was."""

    allocator: Allocator
    members: Mapping[str, Member]
    since_change: int


class Plans:
    """The allocator of all ranks, which is the same on each of them, and its plan.

    What a round changes follows from the state of before, the ranks that take part, and what they
    sent. A round that does not count changes nothing. So ranks that have committed the same rounds
    have the same state, also where some of them have begun a round that others have not.

    Args:
        ranks: The ranks.
        make: Makes the allocator of workers with these names.
        check_every: Rounds between two checks, as for ``TorchAllocator``.
        propensities: Whether it is asked how likely each round's tasks are.
    """

    propensities: Propensities | None = None
    """How likely the tasks of the round are that was begun last; None if that is not asked for."""

    def __init__(
        self,
        ranks: Ranks,
        make: Callable[[Sequence[str]], Allocator],
        check_every: int,
        *,
        propensities: bool = False,
    ) -> None:
        self._ranks = ranks
        self._make = make
        self._check_every = check_every
        self._with_propensities = propensities
        self.allocator = make(ranks.names)
        """The allocator; its state is replaced, never changed."""
        self._members: Mapping[str, Member] = {}
        self._next: _Plan | None = None
        self.since_change = 0
        """The rounds since the start, or since other ranks took part."""
        self._before = self._memory()

    def _memory(self) -> _Memory:
        return _Memory(copy.copy(self.allocator), self._members, self.since_change)

    def begin(self, rounds: int, leaves: Callable[[], bool]) -> Ints:
        """Begin a round, and return the number of tasks of each rank, shape (n,).

        Args:
            rounds: The number of rounds that have ended.
            leaves: Whether the worker of this rank takes no tasks; all ranks call it, or none.

        Raises:
            ValueError: On every rank, if no worker is there.
        """
        self._before = self._memory()
        self._take_members(rounds)
        if not self.allocator.workers and not self._ranks.elastic:
            self._take_back(leaves=leaves())
        shares = self.shares()
        if self._next is not None:
            self.allocator = self._next.allocator
            if self._next.propensities is not None:
                self.propensities = self._next.propensities.result()
            self._next = None
        elif self._with_propensities:
            self.propensities = self.allocator.propensities()
        return shares

    def checked(self, rounds: int) -> bool:
        """Whether the round that has begun is one in which the ranks compare all that they know.

        Args:
            rounds: The number of rounds before.
        """
        return self.since_change == 0 or rounds % self._check_every == 0

    def restore(self) -> None:
        """Forget the round that was begun last."""
        self.allocator, self._members, self.since_change = self._before
        self._next = None

    def make_next(self) -> bool:
        """Begin to decide on the next round, if a worker is there, and return whether one is."""
        if not self.allocator.workers:
            return False
        # The state of before can still be saved.
        planner = copy.copy(self.allocator)
        tasks = _PLANNER.submit(planner.allocate)
        propensities = None
        if self._with_propensities:
            # There is one thread, so that the tasks are known when this begins.
            propensities = _PLANNER.submit(planner.propensities)
        self._next = _Plan(planner, tasks, propensities)
        return True

    def shares(self) -> Ints:
        """The number of tasks of each rank in the next round, shape (n,)."""
        if self._next is None:
            tasks = self.allocator.allocate()
        else:
            tasks = self._next.tasks.result()
        return np.array([tasks.get(name, 0) for name in self._ranks.names])

    def own_tasks(self, shares: Ints) -> tuple[int, int]:
        """The number of tasks of this rank, and of its first task.

        Args:
            shares: The number of tasks of each rank, shape (n,).
        """
        rank = self._ranks.rank
        return int(shares[rank]), int(shares[:rank].sum())

    def checksum(self, shares: Ints, rounds: int, *, complete: bool) -> int:
        """A checksum, of 24 bits, of the tasks of each rank, (n,), and maybe of all that is known.

        Args:
            shares: The tasks.
            rounds: The rounds that have ended; a rank whose last round failed after the reduction
                is one behind.
            complete: Whether the state of the allocator counts, too.
        """
        if complete:
            state = json.dumps(self.allocator.state_dict()).encode()
        else:
            state = b""
        total = zlib.crc32(str(rounds).encode(), zlib.crc32(shares.tobytes()))
        return zlib.crc32(state, total) & 0xFFFFFF

    def _take_members(self, rounds: int) -> None:
        """Where ranks come and go, let the ranks of the round be there, and no others."""
        members = self._ranks.members
        if members == self._members:
            return
        self._next = None
        self.since_change = 0
        if rounds == 0:
            self.allocator = self._make(self._ranks.names)
        present = self.allocator.workers
        names = [name for name in self._ranks.names if not members[name].leaves]
        self.allocator.keep_only(names)
        for name in names:
            known = self._members.get(name)
            if name in present and (known is None or known.start != members[name].start):
                self.allocator.restarted(name)
        self._members = members

    def _take_back(self, *, leaves: bool) -> None:
        """Where all workers have left, let those be there that have joined since."""
        texts = self._ranks.exchanged(b"leaves" if leaves else b"joins")
        named = zip(self._ranks.names, texts, strict=True)
        self.allocator.keep_only([name for name, text in named if text == b"joins"])

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of an allocator, whose workers have all started again since.

        Raises:
            ValueError: If it is the state of another one; nothing has changed then.
        """
        self.allocator.load_state_dict(state)
        self._next = None
        self.since_change = 0
        self._members = {}
        # Where ranks come and go, the next round says who is there.
        if not self._ranks.elastic:
            self.allocator.keep_only(sorted(self._ranks.names))
            for name in self._ranks.names:
                self.allocator.restarted(name)

    def state_for_another(self) -> dict[str, Any]:
        """The state for a rank that is behind."""
        members = {name: list(member) for name, member in self._members.items()}
        return {"allocator": self.allocator.state_dict(), "members": members}

    def load_of_another(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of another rank, as if this one had played its rounds."""
        self.allocator.load_state_dict(state["allocator"])
        self._next = None
        self.since_change = 1
        self._members = {name: Member(*member) for name, member in state["members"].items()}
