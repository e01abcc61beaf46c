"""A typed decorator over numba that makes a gufunc of a loop over one row, and its threads."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
from ata_gym.utils.kernels.internals import has_known_internals, only_for_kernels
from ata_gym.utils.kernels.notice import compiling
from ata_gym.utils.kernels.processes import compile_in_processes, is_compiling_process
from ata_gym.utils.process.machine import processors
from ata_gym.utils.process.signals import postponed
from ata_gym.utils.validation import whole_number

Scalar = Callable[..., Any]

_LEAST_WORK = 2**17
"""The least numbers that threads share: fewer are computed before another thread has begun."""

_MOST_PROCESSES = 4
"""Processes that compile at most: the slowest kernel takes a third of the time of all."""

_count: ContextVar[int] = ContextVar("threads", default=1)

_in_processes: dict[str, Future[bool]] = {}
"""The kernels that other processes compile or have compiled for this one."""

inlined: Callable[[Scalar], Scalar] = numba.njit(inline="always")
"""Compile a helper into its caller, see :func:`helper`.

It is for scalar helpers, so that loops vectorise. It is also for helpers that are called in one
place and call others, since LLVM optimises each caller together with all that it calls.
"""

# ``_nrt`` is an option of numba that is not public.
_uncounted: dict[str, Any]
if has_known_internals():
    _uncounted = {"_nrt": False}
else:
    _uncounted = {}
phase: Callable[[Scalar], Scalar] = numba.njit(forceinline=True, **_uncounted)
"""Compile a part of a kernel that takes arrays, in named tuples too, and makes none.

The owners of its arrays are not counted, and it becomes a part of the machine code of the kernel:
both would otherwise take longer than the work of a short loop.
"""


def helper(*fastmath: str) -> Callable[[Scalar], Scalar]:
    """Compile a helper of kernels; ``fastmath`` names flags of LLVM for its operations."""
    decorate: Callable[[Scalar], Scalar] = numba.njit(fastmath=set(fastmath))
    return decorate


@phase
def copy(source: NDArray[Any], target: NDArray[Any]) -> None:
    """Copy an array into another one of the same length.

    For ``target[:] = source`` numba compiles the text of an error, too: half a second.

    Args:
        source: The numbers, shape (k,).
        target: The array that gets them, shape (k,).
    """
    for i in range(len(source)):
        target[i] = source[i]


@phase
def copy_rows(source: NDArray[Any], target: NDArray[Any]) -> None:
    """Copy each row of an array into another one of the same shape, as ``copy`` does.

    Args:
        source: The numbers, shape (j, k).
        target: The array that gets them, shape (j, k).
    """
    for i in range(len(source)):
        copy(source[i], target[i])


@helper("reassoc", "nsz")
def dot(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the sum of x_k y_k, added in any order, so that it vectorises.

    Args:
        x: The numbers x_k, shape (k,).
        y: The numbers y_k, shape (k,).
    """
    total = 0.0
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


class Gufunc:
    """A loop over one row, compiled at the first call into a gufunc that broadcasts over rows.

    Arrays are made C-contiguous, and the loop is compiled for such arrays, so that it vectorises.
    The machine code is kept on disk, see ``kernel_cache``. It is compiled anew when the loop, or
    anything that it calls in any file, is edited. If nothing can be written, each process compiles
    it. Within ``ata_gym.threads`` several threads share the rows.

    Args:
        loop: The function, with annotations of ``ata_gym.typing``.
        layout: The layout of its arrays, as in ``numba.guvectorize``.
        writable: The positions of arguments that the loop fills.
    """

    def __init__(self, loop: Callable[..., None], layout: str, writable: tuple[int, ...]) -> None:
        self.__doc__ = loop.__doc__
        self._axes = [
            len(names.split(",")) if names else 0 for names in re.findall(r"\(([^)]*)\)", layout)
        ]
        self._loop = loop
        self._layout = layout
        self._writable = writable
        self._signature = _signature(loop, self._axes)
        self._ufunc: Callable[..., Any] | None = None

    def __call__(self, *arrays: Any) -> Any:
        ufunc = self._ufunc or self.compile()
        # A local name is quicker; this loop takes a good part of the time of a small step.
        contiguous = np.asarray
        inputs = [contiguous(array, order="C") for array in arrays]
        if (count := _count.get()) > 1:
            return self._in_blocks(ufunc, inputs, count)
        return ufunc(*inputs)

    def compile(self) -> Callable[..., Any]:
        """Compile the loop, or load its machine code, and return NumPy's gufunc.

        Where a process compiles it already, this waits for it.
        """
        future = _in_processes.get(f"{self._loop.__module__}:{self._loop.__name__}")
        if future is not None and not future.cancel() and not future.done():
            with compiling():
                future.result()
        with postponed():
            self._ufunc = self._compile()
        return self._ufunc

    @property
    def kept(self) -> bool:
        """Whether there is machine code here or on disk, or there can be none on disk."""
        if self._ufunc is not None:
            return True
        return is_kept(self._loop, str(self._signature), self._layout, self._writable)

    def _in_blocks(
        self,
        ufunc: Callable[..., Any],
        inputs: list[NDArray[Any]],
        threads: int,
    ) -> Any:
        """Call the gufunc on blocks of rows, each in a thread, if the work is worth it."""
        # ``extra_axes`` counts the axes of each array that the gufunc broadcasts over; ``split``
        # marks the arrays that have a first axis of all rows.
        extra_axes = [array.ndim - axes for array, axes in zip(inputs, self._axes, strict=False)]
        rows = max(
            len(array) if count else 1 for array, count in zip(inputs, extra_axes, strict=True)
        )
        split = [
            count == 1 and len(array) == rows
            for array, count in zip(inputs, extra_axes, strict=True)
        ]
        blocks = min(threads, rows)
        work = sum(array.size for array, is_split in zip(inputs, split, strict=True) if is_split)
        # Two blocks must not write to the same array.
        independent = max(extra_axes) <= 1 and all(split[k] for k in self._writable)
        if blocks < 2 or work < _LEAST_WORK or not independent:
            return ufunc(*inputs)
        ends = [rows * k // blocks for k in range(blocks + 1)]
        block_inputs = [
            [
                array[first:last] if is_split else array
                for array, is_split in zip(inputs, split, strict=True)
            ]
            for first, last in pairwise(ends)
        ]
        results = run_together([partial(ufunc, *arrays) for arrays in block_inputs])
        if isinstance(results[0], tuple):
            return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))
        if results[0] is None:
            return None
        return np.concatenate(results)

    def _compile(self) -> Any:
        """Compile or load the loop; the owner of the machine code is kept, too."""

        def build(loop: Scalar, cache: bool) -> Any:
            """Compile a loop, through numba's cache or without it."""
            options = {"writable_args": self._writable, "cache": cache, "nopython": True}
            with only_for_kernels():
                return numba.guvectorize([self._signature], self._layout, **options)(loop)

        options = (str(self._signature), self._layout, self._writable)
        try:
            with kernel_cache(self._loop, *options) as (loop, cached):
                self._owner = build(loop, cached)
        # There is no temporary folder, or it is full.
        except OSError:
            self._owner = build(self._loop, cache=False)
        # This is NumPy's own gufunc, without numba's wrapper around it.
        return self._owner.ufunc


def kernel(layout: str, writable: tuple[int, ...] = ()) -> Callable[[Callable[..., None]], Gufunc]:
    """Compile a loop over one row lazily.

    The types follow from its annotations, which are aliases of ``ata_gym.typing``. An array has as
    many axes as the layout says, and a number is an array of length 1.

    Args:
        layout: The layout of the arrays, as in ``numba.guvectorize``.
        writable: The positions of arguments that the loop fills, for outputs whose size no input
            gives.

    Example:
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
    """The kernels that modules define, by their names ``module:name``."""
    members = (
        (module, *item) for module in modules for item in vars(import_module(module)).items()
    )
    return {
        f"{m}:{name}": value
        for m, name, value in members
        if isinstance(value, Gufunc) and value._loop.__module__ == m
    }


def compile_together(modules: Sequence[str]) -> list[Future[bool]]:
    """Begin to compile the kernels of modules side by side, in processes of their own.

    It is for kernels that will be called soon, and take long. A kernel that is called meanwhile
    waits for the process that compiles it, or is compiled at once where none has begun. Nothing is
    done if the kernels of the first module are compiled, or on a single processor. Nothing is done
    either where several processes may call this at once, as the ranks of torchrun, in a frozen
    program, which would start itself, and in a process that compiles: it imports the module of a
    kernel, which may call this.

    Args:
        modules: The dotted names of modules.

    Returns:
        For each kernel that was not compiled, whether it is, once that is known.
    """
    single_process = (
        os.environ.get("LOCAL_WORLD_SIZE", "1") == "1"
        and parent_process() is None
        and not is_compiling_process()
        and not hasattr(sys, "frozen")
    )
    if not single_process or all(gufunc.kept for gufunc in kernels_in(modules[:1]).values()):
        return []
    # what processes compile already is not compiled twice
    missing = [
        name
        for name, gufunc in kernels_in(modules).items()
        if not gufunc.kept and name not in _in_processes
    ]
    if (count := min(_MOST_PROCESSES, processors(), len(missing))) < 2:
        return []
    futures = compile_in_processes(missing, count)
    _in_processes.update(futures)
    return list(futures.values())


def _signature(loop: Callable[..., None], axes: list[int]) -> Any:
    """Return the signature of a loop, with TypeError for an annotation without a dtype."""
    annotations = {name: alias for name, alias in loop.__annotations__.items() if name != "return"}
    arrays = []
    for (name, alias), count in zip(annotations.items(), axes, strict=True):
        if alias not in DTYPES:
            place = f"{loop.__module__}.{loop.__qualname__}"
            raise TypeError(
                f"{place}: {name} is {alias!r}, and a kernel takes the arrays of"
                " ata_gym.typing.DTYPES",
            )
        arrays.append(numba.types.Array(numba.from_dtype(DTYPES[alias]), max(count, 1), "C"))
    return numba.void(*arrays)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run kernels over many rows in ``count`` threads within this block, with the same bits.

    It applies to envs, policies and functions that this thread calls. It is faster from about a
    thousand rows of 51 workers on; kernels over fewer rows take hardly longer than the hand-over to
    another thread, and run in this one.

    Args:
        count: The number of threads.

    Raises:
        ValueError: If the count is not a whole number of at least 1.

    Example:
        >>> import gymnasium, ata_gym, ata_policies
        >>> env_id = "ata_gym/TaskAllocation-v0"
        >>> envs = gymnasium.make_vec(env_id, num_envs=512, scenario="icml2025-regret")
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
    """Call functions at the same time, and return their results.

    The first one runs in this thread, and each other in a thread of its own. They must release the
    interpreter's lock.

    Args:
        parts: The functions, at least one.
    """
    futures = [_executor().submit(part) for part in parts[1:]]
    return [parts[0](), *(future.result() for future in futures)]


@cache
def _executor() -> ThreadPoolExecutor:
    """The threads of this process, which start as they are needed."""
    return ThreadPoolExecutor(max_workers=256, thread_name_prefix="ata-gym-kernel")


# A child process has none of these threads. Not every system has forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_executor.cache_clear)
    os.register_at_fork(after_in_child=_in_processes.clear)
