"""What is used of numba that is not public: all of it is in this file, and none of it is needed.

Each part makes compilation quicker, or keeps its result on disk. Where a version of numba lacks a part, kernels are
compiled as numba does it by itself, which takes longer and gives the same results.
"""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from typing import Any

import numba

NEWEST = (0, 68)
"""The last version of numba whose compiler is known to work inside as this file says; a newer one is left alone."""


def _part(module: str, name: str) -> Any:
    """A name in a module of numba; None if there is no such module or name."""
    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None


DISPATCHER: Any = _part("numba.core.dispatcher", "Dispatcher") or ()
"""The class of the functions that numba compiles, as ``isinstance`` takes it; no class where it is not known."""


def is_known() -> bool:
    """Whether the inside of this numba is known."""
    return tuple(numba.version_info.short) <= NEWEST


def compiler_lock() -> AbstractContextManager[Any]:
    """The lock that numba holds while it compiles, so that another thread does not compile in between."""
    lock: AbstractContextManager[Any] = _part("numba.core.compiler_lock", "global_compiler_lock") or nullcontext()
    return lock


def add_locator(locator: type) -> bool:
    """Ask a class first in which folder numba keeps a compiled function; False if this numba keeps them otherwise."""
    implementation = getattr(_part("numba.core.caching", "FunctionCache"), "_impl_class", None)
    locators = getattr(implementation, "_locator_classes", None)
    if not isinstance(locators, list):
        return False
    locators.insert(0, locator)
    return True


class _Helper:
    """What stands for the machine code of a helper; Python code that calls it runs the function as it is written."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


@contextmanager
def only_for_kernels() -> Iterator[None]:
    """Compile in the block without machine code for helpers, and without Python's collection of garbage.

    numba gives each function that a kernel calls a wrapper for Python and machine code of its own, which takes a
    quarter of the time. Neither is ever run: the code of a helper becomes a part of the kernel.
    """
    with ExitStack() as stack:
        stack.enter_context(compiler_lock())
        if gc.isenabled():
            gc.disable()  # most of what a compiler makes lives as long as the kernel, and is looked at again and again
            stack.callback(gc.enable)
        for kind, name, replacement in _replacements():
            stack.callback(setattr, kind, name, getattr(kind, name))
            setattr(kind, name, replacement)
        yield


def _replacements() -> list[tuple[Any, str, Callable[..., Any]]]:
    """The methods of numba that make what no helper needs, and what stands in their place; none if one is not known."""
    lowering = _part("numba.core.lowering", "BaseLower")
    parts: list[tuple[Any, str, Callable[..., Any]]] = [
        (lowering, "create_cpython_wrapper", lambda *_, **__: None),
        (lowering, "create_cfunc_wrapper", lambda *_: None),
        (_part("numba.core.cpu", "CPUContext"), "get_executable", lambda *_: _Helper()),
        (_part("numba.core.dispatcher", "_DispatcherBase"), "add_overload", _add_overload),
    ]
    if is_known() and all(hasattr(kind, name) for kind, name, _ in parts):
        return parts
    return []


def _add_overload(dispatcher: Any, compiled: Any) -> None:
    """Keep a compiled helper for its callers, and not for Python, which would take its entry point for machine code."""
    compiled.entry_point.function = dispatcher.py_func
    library = weakref.proxy(compiled.library)  # whose code is final without being made machine code
    compiled.library._finalize_final_module = lambda: setattr(library, "_finalized", True)
    dispatcher.overloads[tuple(compiled.signature.args)] = compiled
