"""Ctrl-C and SIGTERM, on which a run saves before it ends."""

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
    """The process got SIGTERM, which schedulers send before they kill it; its exit code is not that of Ctrl-C."""


_SIGNALS = signal.SIGINT, signal.SIGTERM

_begun: ContextVar[bool] = ContextVar("begun", default=False)
"""Whether the block of ``quiet_start`` is that of a command."""


@contextmanager
def quiet_start() -> Iterator[None]:
    """While the command imports its modules, Ctrl-C and SIGTERM end it at once and without a traceback.

    If Python was not started with the command, this does nothing.
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
    """Let Ctrl-C and SIGTERM raise errors inside the block, so that a command saves; see :func:`quiet_start`.

    A signal that the process ignores stays ignored, and the other one raises all the same: a shell starts
    ``ata-gym ... &`` of a script with Ctrl-C ignored.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _raise} if _begun.get() else {}
    with _handled({which: how for which, how in handlers.items() if signal.getsignal(which) is signal.SIG_DFL}):
        yield


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C and SIGTERM back inside the block, so that it ends where everything is saved.

    The block gets a function that says whether a signal came, and the end of the block raises its error. A second
    signal raises its error at once. Threads other than the main one get no signals, so nothing is held back there.

    Raises KeyboardInterrupt at the end of the block, if Ctrl-C came inside it.
    Raises TerminatedError if SIGTERM came, in the block of ``raising``.

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
    raising_handlers = {signal.default_int_handler, _raise}
    held = [which for which in _SIGNALS if signal.getsignal(which) in raising_handlers]

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

    If a handler raises an error while compiled code calls Python back, as the compiler of numba does, the compiled code
    prints and drops the error, and goes on. In a thread other than the main one nothing is postponed.
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
    """Restore the handlers of Ctrl-C and SIGTERM after the block, in which a library may change them."""
    mine = {which: signal.getsignal(which) for which in _SIGNALS}
    main = threading.current_thread() is threading.main_thread()
    with _handled({which: handler for which, handler in mine.items() if main and handler is not None}):
        yield


@contextmanager
def _handled(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Use these handlers inside the block; afterwards the old ones are back, even if a handler raises an error."""
    with ExitStack() as stack:
        for which, handler in handlers.items():
            stack.callback(signal.signal, which, signal.signal(which, handler))
        yield


def _raise(which: int, frame: FrameType | None) -> None:
    del frame
    raise TerminatedError if which == signal.SIGTERM else KeyboardInterrupt
