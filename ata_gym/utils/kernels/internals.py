"""The use of private parts of numba: all of it is in this file, and none of it is needed.

Each part makes compilation quicker, or keeps its result on disk. Where a version of numba lacks a
part, kernels are compiled as numba does by itself, which takes longer and gives the same results.

What a first run saves, where functions are optimised and translated once, as a part of their
kernel: the processor time of an import, a ``make`` and four steps on an empty cache, with numba
0.68, in one process (one run each, beside other work).

======================== ======= =======
policy                   with it without
======================== ======= =======
none, the env alone        2.2 s   2.5 s
``ata``                    7.5 s   9.2 s
``distribution-learner``  29.8 s  51.1 s
======================== ======= =======
"""

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
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


_LIBRARY: Any = _part("numba.core.codegen", "CPUCodeLibrary")
"""The class of numba that holds the code of a function, and the parts that are linked to it."""

_REORDERING = frozenset({"fast", "reassoc"})
"""The flags of ``fastmath`` that let LLVM add in another order."""

_USED_OF_LIBRARIES = (
    "_finalize_dynamic_globals",
    "_get_module_for_linking",
    "_optimize_final_module",
    "finalize",
)


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
    and optimises it together with all that it calls, once more for each function that calls it.
    Nothing of this is ever run: the code of a function becomes a part of the gufunc, where it is
    optimised. The loop of the gufunc itself is such a function, too.
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
    context = _part("numba.core.cpu", "CPUContext")
    parts: list[tuple[Any, str, Callable[..., Any]]] = [
        (lowering, "create_cpython_wrapper", lambda *_, **__: None),
        (lowering, "create_cfunc_wrapper", lambda *_: None),
        (context, "get_executable", lambda *_: _Helper()),
        (_part("numba.core.dispatcher", "_DispatcherBase"), "add_overload", _add_overload),
        # it would write into machine code that is not there
        (_part("numba.core.codegen", "JITCPUCodegen"), "set_env", lambda *_: None),
    ]
    lower = getattr(lowering, "lower", None)
    is_known = has_known_internals() and all(hasattr(_LIBRARY, name) for name in _USED_OF_LIBRARIES)
    if not is_known or lower is None or not all(hasattr(kind, name) for kind, name, _ in parts):
        return []

    def lower_for_callers(lowerer: Any) -> None:
        """Lower a function, whose code becomes a part of its callers."""
        lower(lowerer)
        library = lowerer.library
        # the library must not refer to itself, or its modules would be kept for too long
        weak = weakref.proxy(library)
        # sums that may be reordered are optimised by themselves, so that their order does not
        # depend on what calls them
        flags = getattr(lowerer.context.fastmath, "flags", ())
        library.reorders = not _REORDERING.isdisjoint(flags)
        library.finalize = partial(_end_without_code, weak)
        library._get_module_for_linking = partial(_linked_module, weak)

    return [*parts, (lowering, "lower", lower_for_callers)]


def _add_overload(dispatcher: Any, compiled: Any) -> None:
    """Keep a compiled helper for its callers, and not for Python.

    Python would take its entry point for machine code.
    """
    compiled.entry_point.function = dispatcher.py_func
    dispatcher.overloads[tuple(compiled.signature.args)] = compiled


def _end_without_code(library: Any) -> None:
    """Mark the library of a function as final, without machine code."""
    library._finalize_dynamic_globals()
    for part in library._linking_libraries:
        library._dynamic_globals.extend(part._dynamic_globals)
        library._reload_init.update(part._reload_init)
    if library.reorders:
        _link_parts(library._linking_libraries, library._final_module)
        library._linking_libraries.clear()
        library._optimize_final_module()
    # this is kept on disk as the machine code that there is
    library._compiled_object = b""
    library._finalized = True


def _linked_module(library: Any) -> Any:
    """Return the code of a function and of all that it calls."""
    module = _LIBRARY._get_module_for_linking(library).clone()
    _link_parts(library._linking_libraries, module)
    return module


def _link_parts(libraries: Iterable[Any], module: Any) -> None:
    """Add the code of libraries, and of all that they call, to a module."""
    waiting = list(libraries)
    linked = set()
    while waiting:
        library = waiting.pop()
        if library not in linked:
            linked.add(library)
            module.link_in(_LIBRARY._get_module_for_linking(library), preserve=True)
            waiting.extend(library._linking_libraries)
