"""Imports without a look for garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage() -> Iterator[None]:
    """Look for no garbage inside the block, as far as Python's collector is on.

    What an import makes stays, and to look for garbage in it takes a quarter of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
