"""A typed decorator over numba that turns a loop over one row into a NumPy gufunc, and the threads that run it."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from itertools import pairwise
from multiprocessing import parent_process
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from ata_gym.typing import DTYPES
from ata_gym.utils.kernels.cache import is_kept, kernel_cache
from ata_gym.utils.kernels.internals import is_known, only_for_kernels
from ata_gym.utils.kernels.notice import compiling
from ata_gym.utils.kernels.processes import compile_in_processes
from ata_gym.utils.machine import processors
from ata_gym.utils.signals import postponed
from ata_gym.utils.validation import whole_number

Scalar = Callable[..., Any]

_LEAST_WORK = 2**17  # the least numbers that threads share: fewer are computed before another thread has begun

_PROCESSES = 4  # compile at most: the slowest kernel alone takes a third of the time that all take

_count: ContextVar[int] = ContextVar("threads", default=1)

inlined: Callable[[Scalar], Scalar] = numba.njit(inline="always")
"""Compile a helper into its caller, see :func:`helper`: a scalar one, so that loops vectorise, or one that is called in
one place and calls others, since LLVM optimises each caller together with all that it calls."""

_uncounted: dict[str, Any] = {"_nrt": False} if is_known() else {}  # an option of numba that is not public
phase: Callable[[Scalar], Scalar] = numba.njit(forceinline=True, **_uncounted)
"""Compile a part of a kernel that takes arrays, in named tuples too, and makes none.

The owners of its arrays are not counted, and it becomes a part of the machine code of the kernel: both would otherwise
take longer than the work of a short loop.
"""


def helper(*fastmath: str) -> Callable[[Scalar], Scalar]:
    """Compile a helper of kernels; ``fastmath`` names flags of LLVM for the operations inside it."""
    decorate: Callable[[Scalar], Scalar] = numba.njit(fastmath=set(fastmath))
    return decorate


@phase
def copy(source: NDArray[Any], target: NDArray[Any]) -> None:
    """As ``target[:] = source``, for which numba compiles the text of an error, too; that takes seconds."""
    for i in range(len(source)):
        target[i] = source[i]


class Gufunc:
    """A loop over one row, compiled at the first call into a gufunc that broadcasts over rows.

    Arrays are made C-contiguous, and the loop is compiled for such arrays, so that it vectorises. The machine code is
    kept on disk, see ``kernel_cache``, and compiled anew when the loop, or anything that it calls in any file, is
    edited; if nothing can be written, each process compiles it. Within ``ata_gym.threads`` several threads share the
    rows.
    """

    def __init__(self, loop: Callable[..., None], layout: str, writable: tuple[int, ...]) -> None:
        self.__doc__ = loop.__doc__
        self._axes = [len(names.split(",")) if names else 0 for names in re.findall(r"\(([^)]*)\)", layout)]
        self._loop, self._layout, self._writable = loop, layout, writable
        self._signature = _signature(loop, self._axes)
        self._ufunc: Callable[..., Any] | None = None

    def __call__(self, *arrays: Any) -> Any:
        ufunc = self._ufunc or self.compile()
        contiguous = np.asarray  # a local name: this line takes a good part of the time of a small step
        inputs = [contiguous(array, order="C") for array in arrays]
        if (count := _count.get()) > 1:
            return self._in_blocks(ufunc, inputs, count)
        return ufunc(*inputs)

    def compile(self) -> Callable[..., Any]:
        """Compile the loop, or load its machine code, before the first call; return NumPy's gufunc."""
        with postponed():
            self._ufunc = self._compile()
        return self._ufunc

    @property
    def kept(self) -> bool:
        """Whether there is machine code of it, in this process or on disk, or there can be none on disk."""
        return self._ufunc is not None or is_kept(self._loop, str(self._signature), self._layout, self._writable)

    def _in_blocks(self, ufunc: Callable[..., Any], inputs: list[NDArray[Any]], threads: int) -> Any:
        extra = [array.ndim - own for array, own in zip(inputs, self._axes, strict=False)]
        rows = max(len(array) if more else 1 for array, more in zip(inputs, extra, strict=True))
        split = [more == 1 and len(array) == rows for array, more in zip(inputs, extra, strict=True)]
        blocks = min(threads, rows)
        work = sum(array.size for array, own in zip(inputs, split, strict=True) if own)
        if blocks < 2 or work < _LEAST_WORK or max(extra) > 1 or not all(split[k] for k in self._writable):
            return ufunc(*inputs)
        ends = [rows * k // blocks for k in range(blocks + 1)]
        given = [
            [array[first:last] if own else array for array, own in zip(inputs, split, strict=True)]
            for first, last in pairwise(ends)
        ]
        results = run_together([partial(ufunc, *arrays) for arrays in given])
        if isinstance(results[0], tuple):
            return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))
        return None if results[0] is None else np.concatenate(results)

    def _compile(self) -> Any:
        def build(loop: Scalar, cache: bool) -> Any:
            options = {"writable_args": self._writable, "cache": cache, "nopython": True}
            with only_for_kernels():
                return numba.guvectorize([self._signature], self._layout, **options)(loop)

        try:
            with kernel_cache(self._loop, str(self._signature), self._layout, self._writable) as (loop, cached):
                self._owner = build(loop, cached)
        except OSError:  # there is no temporary folder, or it is full
            self._owner = build(self._loop, cache=False)
        return self._owner.ufunc  # NumPy's own, without numba's wrapper around it


def kernel(layout: str, writable: tuple[int, ...] = ()) -> Callable[[Callable[..., None]], Gufunc]:
    """Compile a loop over one row lazily; ``layout`` as in ``numba.guvectorize``.

    The types are those of its annotations, aliases such as those of ``ata_gym.typing``. An array has as many axes as
    the layout says, and a number is an array of length 1. ``writable`` names the positions of arguments that the loop
    fills, for outputs whose size no input gives.

    >>> import numpy as np
    >>> from ata_gym.typing import Floats
    >>> @kernel("(n),()->(n)")
    ... def scaled(x: Floats, factor: Floats, out: Floats) -> None:
    ...     out[:] = factor[0] * x
    >>> scaled(np.ones((2, 3)), 2.0)
    array([[2., 2., 2.],
           [2., 2., 2.]])
    """
    return lambda loop: Gufunc(loop, layout, writable)


def kernels_in(modules: Iterable[str]) -> dict[str, Gufunc]:
    """The kernels that modules define, by their names: ``module:name``."""
    found = ((module, *item) for module in modules for item in vars(import_module(module)).items())
    return {f"{m}:{name}": one for m, name, one in found if isinstance(one, Gufunc) and one._loop.__module__ == m}


def compile_together(modules: Sequence[str]) -> None:
    """Compile the kernels of modules side by side, in processes of their own, if those of the first are not compiled.

    It is for kernels that will be called soon, and take long. Nothing is done on a single processor, where several
    processes may do so at once, as the ranks of torchrun, and in a frozen program, which would start itself.
    """
    alone = os.environ.get("LOCAL_WORLD_SIZE", "1") == "1" and parent_process() is None and not hasattr(sys, "frozen")
    if not alone or all(one.kept for one in kernels_in(modules[:1]).values()):
        return
    missing = [name for name, one in kernels_in(modules).items() if not one.kept]
    if (count := min(_PROCESSES, processors(), len(missing))) > 1:
        with compiling(len(missing)):
            list(compile_in_processes(missing, count))


def _signature(loop: Callable[..., None], axes: list[int]) -> Any:
    """The signature of a loop over C-contiguous arrays; TypeError for an annotation that stands for no dtype."""
    annotations = {name: alias for name, alias in loop.__annotations__.items() if name != "return"}
    arrays = []
    for (name, alias), count in zip(annotations.items(), axes, strict=True):
        if alias not in DTYPES:
            place = f"{loop.__module__}.{loop.__qualname__}"
            raise TypeError(f"{place}: {name} is {alias!r}, and a kernel takes the arrays of ata_gym.typing.DTYPES")
        arrays.append(numba.types.Array(numba.from_dtype(DTYPES[alias]), max(count, 1), "C"))
    return numba.void(*arrays)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within this block, kernels over many rows run in ``count`` threads; the results keep their bits.

    It applies to envs, policies and functions that this thread calls. It is faster from about a thousand rows of 51
    workers on; kernels over fewer rows take hardly longer than the hand-over to another thread, and run in this one.
    ValueError if the count is not a whole number of at least 1.

    >>> import gymnasium, ata_gym, ata_policies
    >>> envs = gymnasium.make_vec("ata_gym/TaskAllocation-v0", num_envs=512, scenario="icml2025-regret")
    >>> policy = ata_policies.make("ata", envs)
    >>> with ata_gym.threads(2):
    ...     action, state = policy.predict(envs.reset(seed=0)[0])
    ...     observation = envs.step(action)[0]
    """
    token = _count.set(whole_number("threads", count))
    try:
        yield
    finally:
        _count.reset(token)


def run_together(parts: Sequence[Callable[[], Any]]) -> list[Any]:
    """Call functions that release the interpreter's lock, the first in this thread and each other in one of its own."""
    others = [_executor().submit(part) for part in parts[1:]]
    return [parts[0](), *(other.result() for other in others)]


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=256, thread_name_prefix="ata-gym-kernel")  # they start as they are needed


if hasattr(os, "register_at_fork"):  # not on every system
    os.register_at_fork(after_in_child=_executor.cache_clear)  # a child process has none of these threads
