"""Ctrl-C and SIGTERM: a run that is asked to end saves first."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any


class TerminatedError(KeyboardInterrupt):
    """The process got SIGTERM, which schedulers send before they kill it; it ends as on Ctrl-C, with another code."""


_SIGNALS = signal.SIGINT, signal.SIGTERM

_begun: ContextVar[bool] = ContextVar("begun", default=False)
"""Whether this is the process of a command, in the block of ``quiet_start``."""


@contextmanager
def quiet_start() -> Iterator[None]:
    """While the command imports what it needs, Ctrl-C and SIGTERM end it at once and without a traceback.

    Where anything else imports ata-gym, as seen by how Python was started, this does nothing.
    """
    names = {Path(argument).name for argument in sys.orig_argv[1:8]}
    ours = bool(names & {"ata-gym", "ata_gym"}) and threading.current_thread() is threading.main_thread()
    usual = ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    before = _begun.set(ours)
    try:
        with _handled({signal.SIGINT: signal.SIG_DFL} if usual else {}):
            yield
    finally:
        _begun.reset(before)


@contextmanager
def raising() -> Iterator[None]:
    """In the block of a command that :func:`quiet_start` began, Ctrl-C and SIGTERM raise errors, so that it saves.

    A signal that the process was told to ignore stays ignored, and changes nothing about the other one: a shell starts
    ``ata-gym ... &`` of a script with Ctrl-C ignored.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _raise} if _begun.get() else {}
    with _handled({which: how for which, how in handlers.items() if signal.getsignal(which) is signal.SIG_DFL}):
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
    held = [which for which in _SIGNALS if signal.getsignal(which) in heard]

    def hold(which: int, frame: FrameType | None) -> None:
        if came:
            _raise(which, frame)
        came.append(which)

    with _handled(dict.fromkeys(held, hold)):
        yield lambda: bool(came)
    if came:
        _raise(came[0], None)


@contextmanager
def postponed() -> Iterator[None]:
    """Call the handlers of signals that come inside the block at its end, in their order.

    Compiled code that calls Python back, as numba's compiler does, prints and drops what a handler raises in the
    callback, and goes on as if no signal had come. In a thread other than the main one nothing is postponed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    handlers = {int(which): signal.getsignal(which) for which in signal.valid_signals()}
    usual = {which: handler for which, handler in handlers.items() if callable(handler)}
    try:
        with _handled(dict.fromkeys(usual, lambda which, frame: came.append((which, frame)))):
            yield
    finally:
        for which, frame in came:
            usual[which](which, frame)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Undo what a library does to the handlers of Ctrl-C and SIGTERM inside the block."""
    mine = {which: signal.getsignal(which) for which in _SIGNALS}
    main = threading.current_thread() is threading.main_thread()
    with _handled({which: handler for which, handler in mine.items() if main and handler is not None}):
        yield


@contextmanager
def _handled(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Handle signals in this way inside the block; afterwards all are as before, also if one of them raises then."""
    with ExitStack() as stack:
        for which, handler in handlers.items():
            stack.callback(signal.signal, which, signal.signal(which, handler))
        yield


def _raise(which: int, frame: FrameType | None) -> None:
    del frame
    raise TerminatedError if which == signal.SIGTERM else KeyboardInterrupt
