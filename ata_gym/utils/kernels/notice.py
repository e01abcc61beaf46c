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
def compiling(kernels: int = 1) -> Iterator[None]:
    """Show how many kernels were compiled for this process, and for how long, while the block compiles so many more.

    Nothing is written to a file or a pipe, nor in a process that another one has started.
    """
    shown = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    if not shown or parent_process() is not None:
        yield
        return
    start, done, first = monotonic(), threading.Event(), len(_spent) + 1
    which = f"kernel {first}" if kernels == 1 else f"kernels {first} to {first + kernels - 1}"

    def tell() -> None:
        while not done.is_set():
            seconds = sum(_spent) + monotonic() - start
            _write(f"ata-gym compiles, once on this machine (half a minute): {which}, {seconds:.0f} s")
            done.wait(_TICK)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        _spent.extend([(monotonic() - start) / kernels] * kernels)
        _write("")


def _write(line: str) -> None:
    sys.stderr.write(f"\r{line:<78}{'' if line else chr(13)}")
    sys.stderr.flush()
