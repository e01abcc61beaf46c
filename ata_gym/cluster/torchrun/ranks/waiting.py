"""The ranks that all others wait for, named in the log while they are waited for."""

import logging
from contextlib import AbstractContextManager
from threading import Event, Thread
from time import monotonic
from weakref import ref

from ata_gym.cluster.torchrun.ranks.ranks import Ranks

_LOG = logging.getLogger("ata_gym.cluster")
_LONGEST_WAIT_FACTOR = 5.0
"""A rank is named after so many times the longest wait so far."""
_LOOK_SECONDS = 0.5
"""The seconds between two looks."""


class Waiting(AbstractContextManager["Waiting"]):
    """Watches how long this rank waits for the others at the end of a round.

    Inside the context, the rank waits. After ``least`` seconds, and five times its longest wait of
    the rounds before, a waiting rank lets the others know. The first of the
    waiting ranks logs the names of the others, as a warning, once in a round. A thread looks from
    time to time, so that rounds cost nothing.

    Args:
        ranks: The ranks that wait for each other.
        least: The seconds after which a rank may be named.
    """

    def __init__(self, ranks: Ranks, least: float) -> None:
        self._ranks = ranks
        self._least = least
        self.longest = 0.0
        """The longest wait so far, in seconds."""
        self._wait_start: float | None = None
        self._round = 0
        self._named = False
        if ranks.wait:
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
        late = self._ranks.waited_for(self._round)
        if late:
            _LOG.warning(
                "round %d: waiting for %s for %.1f s",
                self._round,
                late,
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
