"""On which addresses the processes that a test starts can be reached."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address, ip_address
from typing import Any

import pytest

_LOOK_EVERY = 0.1
"""Seconds."""
_TORCHRUN = "pt_elastic"
"""The name that torchrun gives itself; torch lets nobody choose where its store listens."""


class Listening:
    """Where processes below this one, but some, have listened, as (name of the process, address)."""

    def __init__(self, but: Iterable[Any] = ()) -> None:
        self.seen: set[tuple[str, str]] = set()
        self._but = set(but)

    def look(self) -> None:
        """Add who listens now."""
        import psutil

        for process in set(psutil.Process().children(recursive=True)) - self._but:
            with suppress(psutil.Error):  # one that has just ended
                sockets = process.net_connections(kind="tcp")
                self.seen |= {(process.name(), each.laddr.ip) for each in sockets if each.status == psutil.CONN_LISTEN}
        self.seen = {(name, address) for name, address in self.seen if name != _TORCHRUN}

    def check(self, *names: str) -> None:
        """These processes have listened, and none on more than loopback."""
        assert {name for name, _ in self.seen} >= set(names), self.seen
        beyond = {(name, address) for name, address in self.seen if not _is_loopback(address)}
        assert not beyond, beyond


@contextmanager
def listening() -> Iterator[Listening]:
    """Where processes that start in the block listen; they are looked at now and then, and once more at its end."""
    psutil = pytest.importorskip("psutil")
    found, over = Listening(but=psutil.Process().children(recursive=True)), threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_EVERY):
            found.look()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        over.set()
        watching.join()
        found.look()


def _is_loopback(text: str) -> bool:
    address = ip_address(text)
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (inner or address).is_loopback
