"""Kernels are compiled without what numba makes of their helpers for Python, which takes a quarter of the time.

numba gives each function that a kernel calls a wrapper for Python and machine code of its own. Neither is ever run: the
code of a helper becomes a part of the kernel.
"""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numba
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext
from numba.core.dispatcher import _DispatcherBase
from numba.core.lowering import BaseLower

_NEWEST = (0, 68)  # the last version of numba that is known to work inside as below; a newer one compiles as usual


class _Helper:
    """What stands for the machine code of a helper; Python code that calls it runs the function as it is written."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


@contextmanager
def only_for_kernels() -> Iterator[None]:
    """Compile in the block without machine code for helpers, and without Python's collection of garbage."""
    with ExitStack() as stack:
        stack.enter_context(global_compiler_lock)
        if gc.isenabled():
            gc.disable()  # most of what a compiler makes lives as long as the kernel, and is looked at again and again
            stack.callback(gc.enable)
        if tuple(numba.version_info.short) <= _NEWEST:
            parts: dict[tuple[Any, str], Callable[..., Any]] = {
                (BaseLower, "create_cpython_wrapper"): lambda *_, **__: None,
                (BaseLower, "create_cfunc_wrapper"): lambda *_: None,
                (CPUContext, "get_executable"): lambda *_: _Helper(),
                (_DispatcherBase, "add_overload"): _add_overload,
            }
            for (kind, name), part in parts.items():
                stack.callback(setattr, kind, name, getattr(kind, name))
                setattr(kind, name, part)
        yield


def _add_overload(dispatcher: Any, compiled: Any) -> None:
    """Keep a compiled helper for its callers, and not for Python, which would take its entry point for machine code."""
    compiled.entry_point.function = dispatcher.py_func
    library = weakref.proxy(compiled.library)  # whose code is final without being made machine code
    compiled.library._finalize_final_module = lambda: setattr(library, "_finalized", True)
    dispatcher.overloads[tuple(compiled.signature.args)] = compiled
