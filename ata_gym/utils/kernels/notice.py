"""A line in a terminal or a notebook while kernels are compiled, which takes half a minute the first time."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from time import monotonic

_TICK = 0.5  # seconds between two changes of the line
_spent: list[float] = []  # the seconds that each kernel took which this process has compiled


@contextmanager
def compiling() -> Iterator[None]:
    """Show how many kernels this process has compiled, and for how long, while the block compiles another one.

    Nothing is written to a file or a pipe, nor in a process that another one has started.
    """
    shown = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    if not shown or parent_process() is not None:
        yield
        return
    start, done = monotonic(), threading.Event()

    def tell() -> None:
        while not done.is_set():
            seconds = sum(_spent) + monotonic() - start
            _write(f"ata-gym compiles, once on this machine (half a minute): kernel {len(_spent) + 1}, {seconds:.0f} s")
            done.wait(_TICK)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        _spent.append(monotonic() - start)
        _write("")


def _write(line: str) -> None:
    sys.stderr.write(f"\r{line:<78}{'' if line else chr(13)}")
    sys.stderr.flush()
