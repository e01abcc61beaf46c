"""Ctrl-C and SIGTERM: a run that is asked to end saves first."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


class TerminatedError(KeyboardInterrupt):
    """The process got SIGTERM, which schedulers send before they kill it; it ends as on Ctrl-C, with another code."""


@contextmanager
def quiet_start() -> Iterator[None]:
    """While the command imports what it needs, Ctrl-C and SIGTERM end it at once and without a traceback.

    Where anything else imports ata-gym, as seen by how Python was started, this does nothing.
    """
    names = {Path(argument).name for argument in sys.orig_argv[1:8]}
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not (usual and names & {"ata-gym", "ata_gym"} and threading.current_thread() is threading.main_thread()):
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def raise_on_sigterm() -> None:
    """From now on SIGTERM raises :class:`TerminatedError` in the main thread; for commands, not for libraries."""
    signal.signal(signal.SIGTERM, _raise)


@contextmanager
def raising() -> Iterator[None]:
    """In the block of a command that :func:`quiet_start` began, Ctrl-C and SIGTERM raise errors, so that it saves."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    raise_on_sigterm()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C and SIGTERM back inside the block, so that it ends at a place where all is saved.

    The block gets a function that says whether one of them came, and its end raises it. A second one is raised at once.
    In a thread other than the main one, which gets no signals, nothing is held back.

    Raises
    ------
    KeyboardInterrupt
        At the end of the block, if Ctrl-C came inside it.
    TerminatedError
        If SIGTERM came, and ``raise_on_sigterm`` was called before.

    Examples
    --------
    >>> with stop_requested() as stop:
    ...     steps = 0
    ...     while steps < 3 and not stop():
    ...         steps += 1
    >>> steps
    3
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {which: signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)}
    held = [which for which, handler in before.items() if handler in {signal.default_int_handler, _raise}]

    def hold(which: int, frame: FrameType | None) -> None:
        if came:
            _raise(which, frame)
        came.append(which)

    for which in held:
        signal.signal(which, hold)
    try:
        yield lambda: bool(came)
    finally:
        for which in held:
            signal.signal(which, before[which])
    if came:
        _raise(came[0], None)


def _raise(which: int, frame: FrameType | None) -> None:
    del frame
    raise TerminatedError if which == signal.SIGTERM else KeyboardInterrupt
