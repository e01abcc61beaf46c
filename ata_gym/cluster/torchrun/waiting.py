"""The ranks that all others wait for, named in the log while they are waited for."""

import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from threading import Event, Thread
from time import monotonic
from weakref import ref

import torch.distributed as dist

_LOG = logging.getLogger("ata_gym.cluster")
_LONGEST_WAIT_FACTOR = 5.0
"""A rank is named after so many times the longest wait so far."""
_LOOK_SECONDS = 0.5
"""The seconds between two looks."""


class Waiting(AbstractContextManager["Waiting"]):
    """Watches how long this rank waits for the others at the end of a round.

    Inside the context, the rank waits. After ``least`` seconds, and five times its longest wait of
    the rounds before, a waiting rank says so in the store of the process group. The first of the
    waiting ranks logs the names of the others, as a warning, once in a round. A thread looks from
    time to time, so that rounds cost nothing.

    Args:
        names: The names of all ranks.
        rank: The place of this rank among them.
        least: The seconds after which a rank may be named.

    Raises:
        RuntimeError: Without a process group.
    """

    def __init__(self, names: Sequence[str], rank: int, least: float) -> None:
        self._names = names
        self._rank = rank
        self._least = least
        self.longest = 0.0
        """The longest wait so far, in seconds."""
        self._wait_start: float | None = None
        self._round = 0
        self._named = False
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store = dist.distributed_c10d.PrefixStore(
            f"ata_gym/waiting/{attempt}",
            dist.distributed_c10d._get_default_store(),
        )
        if len(names) > 1:
            Thread(target=_watch, args=(ref(self),), daemon=True, name="ata_gym waiting").start()

    def in_round(self, number: int) -> "Waiting":
        """Wait at the end of a round of this number."""
        self._round = number
        self._named = False
        return self

    def __enter__(self) -> "Waiting":
        self._wait_start = monotonic()
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._wait_start is not None
        self.longest = max(self.longest, monotonic() - self._wait_start)
        self._wait_start = None

    def look(self) -> None:
        """Name the ranks that are waited for, if it takes too long."""
        start = self._wait_start
        if (
            start is None
            or self._named
            or monotonic() - start < max(self._least, _LONGEST_WAIT_FACTOR * self.longest)
        ):
            return
        self._store.set(f"{self._round}/{self._rank}", "")
        waits = [self._store.check([f"{self._round}/{rank}"]) for rank in range(len(self._names))]
        late = [name for name, waiting in zip(self._names, waits, strict=True) if not waiting]
        # Only the first of the ranks that wait logs.
        if late and waits.index(True) == self._rank:
            _LOG.warning(
                "round %d: waiting for %s for %.1f s",
                self._round,
                ", ".join(late),
                monotonic() - start,
            )
            self._named = True


def _watch(waiting: "ref[Waiting]") -> None:
    """Look again and again, until the object that is watched is gone."""
    pause = Event()
    while (watched := waiting()) is not None:
        try:
            watched.look()
        except RuntimeError:
            # The store has ended before this process.
            return
        # A strong reference would keep the object alive during the pause.
        del watched
        pause.wait(_LOOK_SECONDS)
