"""The use of private parts of numba: all of it is in this file, and none of it is needed.

Each part makes compilation quicker, or keeps its result on disk. Where a version of numba lacks a
part, kernels are compiled as numba does by itself, which takes longer and gives the same results.

What a first run saves, where helpers get no machine code of their own: the processor time of an
import, a ``make`` and three steps on an empty cache, with numba 0.68 (means of three runs).

======================== ======= =======
policy                   with it without
======================== ======= =======
none, the env alone        3.7 s   4.0 s
``ata``                   10.2 s  11.3 s
``distribution-learner``  44.6 s  57.9 s
======================== ======= =======
"""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from typing import Any

import numba

NEWEST = (0, 68)
"""The last version of numba whose compiler is known to work inside as this file describes.

In a newer version nothing is replaced.
"""


def _part(module: str, name: str) -> Any:
    """The object of a name in a module of numba; None if there is no such module or name."""
    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None


DISPATCHER: Any = _part("numba.core.dispatcher", "Dispatcher") or ()
"""The class of the functions that numba compiles, as ``isinstance`` takes it.

It is an empty tuple where the class is not known.
"""


def has_known_internals() -> bool:
    """Whether the inside of this numba is known."""
    return tuple(numba.version_info.short) <= NEWEST


def compiler_lock() -> AbstractContextManager[Any]:
    """The lock that numba holds while it compiles, so that no other thread compiles meanwhile."""
    numba_lock = _part("numba.core.compiler_lock", "global_compiler_lock")
    lock: AbstractContextManager[Any] = numba_lock or nullcontext()
    return lock


def add_locator(locator: type) -> bool:
    """Add a class that numba asks first in which folder it keeps a compiled function.

    Args:
        locator: The class, of the form of numba's locators.

    Returns:
        Whether it was added: this numba may keep compiled functions in another way.
    """
    implementation = getattr(_part("numba.core.caching", "FunctionCache"), "_impl_class", None)
    locators = getattr(implementation, "_locator_classes", None)
    if not isinstance(locators, list):
        return False
    locators.insert(0, locator)
    return True


class _Helper:
    """An object in place of the machine code of a helper.

    Python code that calls it runs the function as it is written.
    """

    function: Callable[..., Any]
    """The function of the helper."""

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


@contextmanager
def only_for_kernels() -> Iterator[None]:
    """Compile in the block without machine code for helpers, and without garbage collection.

    numba gives each function that a kernel calls a wrapper for Python and machine code of its own,
    which takes a quarter of the time. Neither is ever run: the code of a helper becomes a part of
    the kernel.
    """
    with ExitStack() as stack:
        stack.enter_context(compiler_lock())
        if gc.isenabled():
            # Most objects of a compiler live as long as the kernel, and the collector would visit
            # them again and again.
            gc.disable()
            stack.callback(gc.enable)
        for kind, name, replacement in _replacements():
            stack.callback(setattr, kind, name, getattr(kind, name))
            setattr(kind, name, replacement)
        yield


def _replacements() -> list[tuple[Any, str, Callable[..., Any]]]:
    """The methods of numba that make parts that no helper needs, and their replacements.

    There are none if one of the methods is not known.
    """
    lowering = _part("numba.core.lowering", "BaseLower")
    parts: list[tuple[Any, str, Callable[..., Any]]] = [
        (lowering, "create_cpython_wrapper", lambda *_, **__: None),
        (lowering, "create_cfunc_wrapper", lambda *_: None),
        (_part("numba.core.cpu", "CPUContext"), "get_executable", lambda *_: _Helper()),
        (_part("numba.core.dispatcher", "_DispatcherBase"), "add_overload", _add_overload),
    ]
    if has_known_internals() and all(hasattr(kind, name) for kind, name, _ in parts):
        return parts
    return []


def _add_overload(dispatcher: Any, compiled: Any) -> None:
    """Keep a compiled helper for its callers, and not for Python.

    Python would take its entry point for machine code.
    """
    compiled.entry_point.function = dispatcher.py_func
    # The code of the library is marked as final, without machine code.
    library = weakref.proxy(compiled.library)
    compiled.library._finalize_final_module = lambda: setattr(library, "_finalized", True)
    dispatcher.overloads[tuple(compiled.signature.args)] = compiled
