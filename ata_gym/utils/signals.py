"""Ctrl-C and SIGTERM: a run that is asked to end saves first."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any


class TerminatedError(KeyboardInterrupt):
    """The process got SIGTERM, which schedulers send before they kill it; it ends as on Ctrl-C, with another code."""


@contextmanager
def quiet_start() -> Iterator[None]:
    """While the command imports what it needs, Ctrl-C and SIGTERM end it at once and without a traceback.

    Where anything else imports ata-gym, as seen by how Python was started, this does nothing.
    """
    names = {Path(argument).name for argument in sys.orig_argv[1:8]}
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ours = usual and names & {"ata-gym", "ata_gym"} and threading.current_thread() is threading.main_thread()
    with _handled({signal.SIGINT: signal.SIG_DFL} if ours else {}):
        yield


@contextmanager
def raising() -> Iterator[None]:
    """In the block of a command that :func:`quiet_start` began, Ctrl-C and SIGTERM raise errors, so that it saves."""
    begun = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    with _handled({signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _raise} if begun else {}):
        yield


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
        If SIGTERM came, in the block of ``raising``.

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
    heard = {signal.default_int_handler, _raise}
    held = [which for which in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(which) in heard]

    def hold(which: int, frame: FrameType | None) -> None:
        if came:
            _raise(which, frame)
        came.append(which)

    with _handled(dict.fromkeys(held, hold)):
        yield lambda: bool(came)
    if came:
        _raise(came[0], None)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Undo what a library does to the handlers of Ctrl-C and SIGTERM inside the block."""
    mine = {which: signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)}
    main = threading.current_thread() is threading.main_thread()
    with _handled({which: handler for which, handler in mine.items() if main and handler is not None}):
        yield


@contextmanager
def _handled(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """Handle signals in this way inside the block."""
    before = {which: signal.signal(which, handler) for which, handler in handlers.items()}
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


def _raise(which: int, frame: FrameType | None) -> None:
    del frame
    raise TerminatedError if which == signal.SIGTERM else KeyboardInterrupt
