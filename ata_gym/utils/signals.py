"""What may end a command: Ctrl-C and SIGTERM, on which a run saves first, and readers of its output that go away."""

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
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
    ``ata-gym ... &`` of a script with Ctrl-C ignored. Where other code makes another error of these, as Python does
    while it makes a class, they are raised all the same.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _raise} if _begun.get() else {}
    with _handled({which: how for which, how in handlers.items() if signal.getsignal(which) is signal.SIG_DFL}):
        try:
            yield
        except Exception as error:
            if interrupt := _interrupt_behind(error):
                raise interrupt from None
            raise


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__ if error.__cause__ is None else error.__cause__
    return error


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C and SIGTERM back inside the block, so that it ends where everything is saved.

    The block gets a function that says whether a signal came, and the end of the block raises its error:
    KeyboardInterrupt, or TerminatedError for SIGTERM in the block of ``raising``. A second signal raises its error at
    once. Threads other than the main one get no signals, so nothing is held back there.
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
    """Keep the handlers of Ctrl-C and SIGTERM, which a library changes inside the block.

    What the library sets for Ctrl-C is undone at the end of the block. What it sets for SIGTERM has no effect, and a
    SIGTERM is handled at the end, so that the library is not interrupted. In a thread other than the main one this does
    nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    usual = signal.signal

    def set_handler(which: int, handler: Any) -> Any:
        return signal.getsignal(which) if which == signal.SIGTERM else usual(which, handler)

    kept = {signal.SIGINT: signal.getsignal(signal.SIGINT), signal.SIGTERM: lambda which, _: came.append(which)}
    try:
        with _handled({which: handler for which, handler in kept.items() if signal.getsignal(which) is not None}):
            signal.signal = set_handler  # type: ignore[assignment]
            try:
                yield
            finally:
                signal.signal = usual
    finally:
        for which in came:
            signal.raise_signal(which)


@contextmanager
def alarms_cancelled() -> Iterator[None]:
    """Cancel each alarm that is set inside the block, within a second; if one is set before, nothing is done.

    Where a signal such as SIGTERM meets the handler of a library in C++, this handler may set an alarm that aborts the
    process some seconds later, also where the signal is dealt with by then: so does that of abseil, after 3 s.
    """
    if not hasattr(signal, "setitimer") or signal.getitimer(signal.ITIMER_REAL)[0] > 0.0:  # Windows has none
        yield
        return
    over = threading.Event()

    def cancel() -> None:
        while not over.wait(0.5):
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    watching = threading.Thread(target=cancel, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
        signal.setitimer(signal.ITIMER_REAL, 0.0)


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


def outlive_readers() -> None:
    """Drop what is written to a closed stdout or stderr, or to a pipe without a reader; a full disk is an error.

    A closed stream gets the null device, so that no file that is opened later takes its place. What the encoding of a
    stream does not have, such as bytes of a file's name that are no text, is written with backslashes.
    """
    while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest number that is free
        pass
    os.close(spare)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream: Any = getattr(sys, name)
        form: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "line_buffering": True}
        if stream is not None:
            stream.flush()
            form = {key: getattr(stream, key) for key in form}
            form["errors"] = "backslashreplace" if form["errors"] == "strict" else form["errors"]
        setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(_Pipe(number, "w", closefd=False)), **form))


@contextmanager
def whole_output(command: str) -> Iterator[None]:
    """Where stdout cannot be written, as on a full disk, end with one sentence and exit code 2."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        with suppress(OSError):  # of stderr
            print(f"{command}: {error}", file=sys.stderr)
        raise SystemExit(2) from error


class _Pipe(io.FileIO):
    """A stream that may lose its reader; any other error is raised once."""

    lost = False

    def write(self, content: Any) -> int:
        """Write, or do nothing if there is no reader."""
        if self.lost:
            return len(content)
        try:
            return super().write(content)
        except OSError as error:
            self.lost = True
            if not isinstance(error, BrokenPipeError):
                raise
            return len(content)
