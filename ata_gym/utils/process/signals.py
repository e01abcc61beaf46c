"""The ends of a command by Ctrl-C, SIGTERM, and readers of its output that go away.

On the signals, a run saves first.
"""

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
    """The process got SIGTERM, which schedulers send before they kill it.

    Its exit code differs from the exit code of Ctrl-C.
    """


_SIGNALS = signal.SIGINT, signal.SIGTERM

_is_command: ContextVar[bool] = ContextVar("is_command", default=False)
"""Whether a command runs in the block of ``quiet_start``."""


@contextmanager
def quiet_start() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the command at once and quietly while it imports its modules.

    There is no traceback. If Python was not started with the command, this does nothing.
    """
    # The command is among the first arguments, after options of Python.
    names = {Path(argument).name for argument in sys.orig_argv[1:8]}
    is_command = (
        bool(names & {"ata-gym", "ata_gym"})
        and threading.current_thread() is threading.main_thread()
    )
    handlers: dict[int, Any] = {}
    if is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        handlers[signal.SIGINT] = signal.SIG_DFL
    token = _is_command.set(is_command)
    try:
        with _handled(handlers):
            yield
    finally:
        _is_command.reset(token)


@contextmanager
def raising() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise errors inside the block, so that a command saves.

    It works in the block of :func:`quiet_start`. A signal that the process ignores stays ignored,
    and the other one still raises: a shell starts ``ata-gym ... &`` of a script with Ctrl-C
    ignored. Where other code turns these errors into another one, as Python does while it makes a
    class, the errors are still raised.
    """
    new_handlers: dict[int, Any] = {}
    if _is_command.get():
        new_handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _raise}
    handlers = {
        number: handler
        for number, handler in new_handlers.items()
        if signal.getsignal(number) is signal.SIG_DFL
    }
    with _handled(handlers):
        try:
            yield
        except Exception as error:
            if interrupt := _interrupt_behind(error):
                raise interrupt from None
            raise


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt in the chain of causes and contexts of an error; None if there is none."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        if error.__cause__ is None:
            error = error.__context__
        else:
            error = error.__cause__
    return error


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C and SIGTERM back inside the block, so that it ends where everything is saved.

    The block gets a function that says whether a signal came, and the end of the block raises its
    error: KeyboardInterrupt, or TerminatedError for SIGTERM in the block of ``raising``. A second
    signal raises its error at once. Threads other than the main one get no signals, so nothing is
    held back there.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    raising_handlers = {signal.default_int_handler, _raise}
    signals = [number for number in _SIGNALS if signal.getsignal(number) in raising_handlers]

    def hold(number: int, frame: FrameType | None) -> None:
        """Note the first signal, and raise the error of the second one."""
        if received:
            _raise(number, frame)
        received.append(number)

    with _handled(dict.fromkeys(signals, hold)):
        yield lambda: bool(received)
    if received:
        _raise(received[0], None)


@contextmanager
def postponed() -> Iterator[None]:
    """Call the handlers of signals that come inside the block at its end, in their order.

    Without it, a handler may raise an error while compiled code calls Python back, as the compiler
    of numba does. The compiled code then prints and drops the error, and goes on. In a thread other
    than the main one nothing is postponed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[tuple[int, FrameType | None]] = []
    handlers = {int(number): signal.getsignal(number) for number in signal.valid_signals()}
    usual_handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        with _handled(
            dict.fromkeys(usual_handlers, lambda number, frame: received.append((number, frame)))
        ):
            yield
    finally:
        for number, frame in received:
            usual_handlers[number](number, frame)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Keep the handlers of Ctrl-C and SIGTERM, which a library changes inside the block.

    The library's handler of Ctrl-C is undone at the end of the block. Its handler of SIGTERM has no
    effect, and a SIGTERM is handled at the end, so that the library is not interrupted. In a thread
    other than the main one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    set_signal = signal.signal

    def set_handler(number: int, handler: Any) -> Any:
        """Set a handler as ``signal.signal`` does, but none of SIGTERM."""
        if number == signal.SIGTERM:
            return signal.getsignal(number)
        return set_signal(number, handler)

    kept_handlers = {
        signal.SIGINT: signal.getsignal(signal.SIGINT),
        signal.SIGTERM: lambda number, _: received.append(number),
    }
    # A handler that was not set from Python is None, and could not be set again.
    handlers: dict[int, Any] = {
        number: handler
        for number, handler in kept_handlers.items()
        if signal.getsignal(number) is not None
    }
    try:
        with _handled(handlers):
            signal.signal = set_handler  # type: ignore[assignment]
            try:
                yield
            finally:
                signal.signal = set_signal
    finally:
        for number in received:
            signal.raise_signal(number)


@contextmanager
def alarms_cancelled() -> Iterator[None]:
    """Cancel each alarm that is set inside the block, within a second.

    If an alarm is set before the block, nothing is done. Where a signal such as SIGTERM meets the
    handler of a library in C++, this handler may set an alarm that aborts the process some seconds
    later, even if the signal has been handled by then: the handler of abseil does so after 3 s.
    """
    # Windows has no alarms.
    if not hasattr(signal, "setitimer") or signal.getitimer(signal.ITIMER_REAL)[0] > 0.0:
        yield
        return
    ended = threading.Event()

    def cancel() -> None:
        """Cancel the alarm every half second until the block ends."""
        while not ended.wait(0.5):
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    watching = threading.Thread(target=cancel, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        signal.setitimer(signal.ITIMER_REAL, 0.0)


@contextmanager
def _handled(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Use these handlers inside the block, and the old ones again afterwards.

    The old ones come back even if a handler raises an error.
    """
    with ExitStack() as stack:
        for number, handler in handlers.items():
            stack.callback(signal.signal, number, signal.signal(number, handler))
        yield


def _raise(number: int, frame: FrameType | None) -> None:
    """Raise the error of a signal."""
    del frame
    if number == signal.SIGTERM:
        raise TerminatedError
    raise KeyboardInterrupt


def ignore_closed_output() -> None:
    """Drop the output to a closed stdout or stderr, or to a pipe without a reader.

    A full disk is an error. A closed stream gets the null device, so that no file that is opened
    later takes its place. Characters that the encoding of a stream does not have, such as bytes of
    a file's name that are no text, are written with backslashes.
    """
    # ``os.open`` takes the lowest number that is free, so each closed stream gets the null device.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream: Any = getattr(sys, name)
        options: dict[str, Any] = {
            "encoding": "utf-8",
            "errors": "backslashreplace",
            "line_buffering": True,
        }
        if stream is not None:
            stream.flush()
            options = {key: getattr(stream, key) for key in options}
            if options["errors"] == "strict":
                options["errors"] = "backslashreplace"
        pipe = io.BufferedWriter(_Pipe(number, "w", closefd=False))
        setattr(sys, name, io.TextIOWrapper(pipe, **options))


@contextmanager
def whole_output(command: str) -> Iterator[None]:
    """End with one sentence and exit code 2 where stdout cannot be written, as on a full disk.

    Args:
        command: The name of the command, for the sentence.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        # stderr may be full, too.
        with suppress(OSError):
            print(f"{command}: {error}", file=sys.stderr)
        raise SystemExit(2) from error


class _Pipe(io.FileIO):
    """A stream that may lose its reader; any other error is raised once."""

    lost = False
    """Whether an error has come."""

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
