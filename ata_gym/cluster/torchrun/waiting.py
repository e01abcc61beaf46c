"""The ranks that all others wait for, named in the log while they are waited for."""

import logging
import os
from contextlib import AbstractContextManager
from threading import Event, Thread
from time import monotonic
from weakref import ref

import torch.distributed as dist

from ata_gym.cluster.torchrun.ranks import Ranks

_log = logging.getLogger("ata_gym.cluster")
_TIMES = 5.0  # how much longer than the longest wait so far a rank is waited for before it is named
_EACH = 0.5  # seconds between two looks


class Waiting(AbstractContextManager["Waiting"]):
    """Watches how long this rank waits for the others at the end of a round: inside the context, it does.

    After ``least`` seconds, and five times its longest wait of the rounds before, a waiting rank says so in the store
    of the process group, and the first of those that wait logs the names of the others, as a warning, once in a round.
    A thread looks from time to time, so that rounds cost nothing. RuntimeError without a process group.
    """

    def __init__(self, ranks: Ranks, least: float) -> None:
        self._ranks, self._least = ranks, least
        self.longest = 0.0  # seconds
        self._since: float | None = None
        self._round, self._named = 0, False
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store = dist.distributed_c10d.PrefixStore(
            f"ata_gym/waiting/{attempt}", dist.distributed_c10d._get_default_store()
        )
        if ranks.size > 1:
            Thread(target=_watch, args=(ref(self),), daemon=True, name="ata_gym waiting").start()

    def at(self, number: int) -> "Waiting":
        """Wait at the end of a round of this number."""
        self._round, self._named = number, False
        return self

    def __enter__(self) -> "Waiting":
        self._since = monotonic()
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._since is not None
        self.longest, self._since = max(self.longest, monotonic() - self._since), None

    def look(self) -> None:
        """Name those that are waited for, if it takes too long."""
        since = self._since
        if since is None or self._named or monotonic() - since < max(self._least, _TIMES * self.longest):
            return
        self._store.set(f"{self._round}/{self._ranks.rank}", "")
        waits = [self._store.check([f"{self._round}/{rank}"]) for rank in range(self._ranks.size)]
        late = [name for name, waiting in zip(self._ranks.names, waits, strict=True) if not waiting]
        if late and waits.index(True) == self._ranks.rank:
            _log.warning("round %d: waiting for %s for %.1f s", self._round, ", ".join(late), monotonic() - since)
            self._named = True


def _watch(waiting: "ref[Waiting]") -> None:
    pause = Event()
    while (here := waiting()) is not None:
        try:
            here.look()
        except RuntimeError:  # the store has ended before this process
            return
        del here
        pause.wait(_EACH)
