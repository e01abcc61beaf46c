"""A line in a terminal or a notebook while kernels are compiled.

The first time, this takes half a minute.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from time import monotonic

_TICK = 0.5  # seconds between two changes of the line
_seconds_by_kernel: list[float] = []  # the seconds of each kernel that this process has compiled


@contextmanager
def compiling(kernels: int = 1) -> Iterator[None]:
    """Show the numbers of the kernels that the block compiles, and the seconds so far.

    Nothing is written to a file or a pipe, nor in a process that another one has started.

    Args:
        kernels: The number of kernels that the block compiles.
    """
    is_shown = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    if not is_shown or parent_process() is not None:
        yield
        return
    start = monotonic()
    has_ended = threading.Event()
    first = len(_seconds_by_kernel) + 1
    if kernels == 1:
        label = f"kernel {first}"
    else:
        label = f"kernels {first} to {first + kernels - 1}"

    def write_repeatedly() -> None:
        """Write the line again and again until the block ends."""
        while not has_ended.is_set():
            seconds = sum(_seconds_by_kernel) + monotonic() - start
            message = "ata-gym compiles, once on this machine (half a minute)"
            _write(f"{message}: {label}, {seconds:.0f} s")
            has_ended.wait(_TICK)

    writer = threading.Thread(target=write_repeatedly, daemon=True)
    writer.start()
    try:
        yield
    finally:
        has_ended.set()
        writer.join()
        _seconds_by_kernel.extend([(monotonic() - start) / kernels] * kernels)
        _write("")


def _write(line: str) -> None:
    """Write a line over the last one; an empty line clears it and goes back to its start."""
    sys.stderr.write(f"\r{line:<78}")
    if not line:
        sys.stderr.write("\r")
    sys.stderr.flush()
