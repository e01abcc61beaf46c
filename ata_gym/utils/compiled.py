"""A typed decorator over numba that turns a loop over one row into a NumPy gufunc."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

Scalar = Callable[..., Any]


inlined: Callable[[Scalar], Scalar] = numba.njit(inline="always")
"""Compile a scalar helper of a kernel into the kernel's own loops, so that they vectorise; see :func:`helper`."""


def helper(*fastmath: str) -> Callable[[Scalar], Scalar]:
    """Compile a helper of a kernel, with LLVM's fast-math flags of these names for the operations inside it.

    Keep helpers in the kernel's own file: numba's cache does not see an edit in another one.
    """
    decorate: Callable[[Scalar], Scalar] = numba.njit(fastmath=set(fastmath))
    return decorate


class Gufunc:
    """A loop over one row, compiled at the first call into a gufunc that broadcasts over rows.

    Arrays are handed over C-contiguous, and the loop is compiled for that, so that it vectorises. The machine code is
    cached beside the source or in numba's user cache; where neither can be written, each process compiles anew.
    """

    def __init__(self, loop: Callable[..., None], types: str, layout: str, writable: tuple[int, ...]) -> None:
        self.__doc__ = loop.__doc__
        self._loop, self._types, self._layout, self._writable = loop, types, layout, writable
        self._ufunc: Callable[..., Any] | None = None

    def __call__(self, *arrays: Any) -> Any:
        """Run the kernel over the broadcast leading axes of ``arrays``."""
        if self._ufunc is None:
            self._ufunc = self._compile()
        contiguous = np.asarray  # a local name: this line takes a good part of the time of a small step
        return self._ufunc(*[contiguous(array, order="C") for array in arrays])

    def _compile(self) -> Callable[..., Any]:
        def build(cache: bool) -> Any:
            decorate = numba.guvectorize(
                [self._types.replace(":]", "::1]")],
                self._layout,
                writable_args=self._writable,
                cache=cache,
                nopython=True,
            )
            return decorate(self._loop)

        try:
            with _one_process():
                self._owner = build(cache=True)
        except (RuntimeError, OSError):  # numba: "no locator available", or a cache on a read-only disk
            self._owner = build(cache=False)
        ufunc: Callable[..., Any] = self._owner.ufunc  # NumPy's own, without numba's wrapper around it
        return ufunc


@contextmanager
def _one_process() -> Iterator[None]:
    """Let one process of a user at a time fill the cache; the others wait until it has done so.

    numba caches a gufunc in two parts, whose names hold a count of what their process had compiled before. Parts from
    two processes do not fit together: calling them is a segmentation fault, in every later process too.
    """
    user = os.environ.get("USERNAME", "") if sys.platform == "win32" else str(os.getuid())
    with (Path(tempfile.gettempdir()) / f"ata-gym-{user}.lock").open("ab") as lock:  # closing it unlocks it
        if sys.platform == "win32":
            msvcrt.locking(lock.fileno(), msvcrt.LK_LOCK, 1)
        else:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def gufunc(types: str, layout: str, writable: tuple[int, ...] = ()) -> Callable[[Callable[..., None]], Gufunc]:
    """Compile a loop over one row lazily; ``types`` and ``layout`` as in ``numba.guvectorize``.

    ``writable`` names the positions of arguments that the loop fills, for outputs whose size no input gives.

    >>> import numpy as np
    >>> @gufunc("void(float64[:], float64[:])", "(n)->()")
    ... def total(x, out):
    ...     out[0] = x.sum()
    >>> total(np.ones((2, 3)))
    array([3., 3.])
    """
    return lambda loop: Gufunc(loop, types, layout, writable)
