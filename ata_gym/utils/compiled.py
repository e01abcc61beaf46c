"""A typed decorator over numba that turns a loop over one row into a NumPy gufunc."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from ata_gym.utils.kernel_cache import kernel_cache

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
    kept on disk, see ``kernel_cache``; where nothing can be written, each process compiles anew.
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
            with kernel_cache(self._loop, self._types, self._layout, self._writable):
                self._owner = build(cache=True)
        except (RuntimeError, OSError):  # numba: "no locator available"; or there is no temporary folder
            self._owner = build(cache=False)
        ufunc: Callable[..., Any] = self._owner.ufunc  # NumPy's own, without numba's wrapper around it
        return ufunc


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
