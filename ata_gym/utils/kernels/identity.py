"""A checksum of what a kernel is compiled from: the code of its loop and of all that it calls, and their constants.

numba freezes what a loop refers to when it compiles the loop: helpers in any file, numbers, arrays. The cache of numba
looks at the file of the loop alone, and would use old machine code after a helper in another file was edited.
"""

import hashlib
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numba
import numpy as np

from ata_gym.utils.kernels.internals import DISPATCHER

_KNOWN = sys.stdlib_module_names | {"numba", "numpy", "scipy", "llvmlite"}
"""Packages whose functions and classes count by their names, since their versions are compared."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), np.generic, np.dtype)


class UnknownError(Exception):
    """A kernel refers to an object whose content cannot be read."""


def identity(loop: Callable[..., Any]) -> str:
    """A checksum of all that the machine code of ``loop`` is made from, except its types and the compiler.

    Code counts as bytecode, without docstrings, comments and line numbers. A function may refer, by name or in its
    closure, to plain functions, and to functions compiled by numba, which count with their options; to numbers,
    strings, tuples, dictionaries and arrays; and to names of the standard library, numpy, scipy and numba. Raises
    UnknownError if it refers to anything else, or belongs to no module that was imported.
    """
    return _function(loop, {})


def _function(function: Any, seen: dict[Any, str]) -> str:
    if function in seen:
        return seen[function]
    seen[function] = f"{function.__module__}.{function.__qualname__}"
    module = sys.modules.get(function.__module__)
    if module is None or vars(module) is not function.__globals__:
        raise UnknownError(f"{function.__qualname__} belongs to no imported module")
    try:
        around = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError as error:
        raise UnknownError(f"{function.__qualname__} refers to a name without a value") from error
    given = _value((around, function.__defaults__, function.__kwdefaults__), seen)
    space = function.__globals__
    named = [(name, _value(space[name], seen)) for name in sorted(_names(function.__code__) & space.keys())]
    whole = seen[function], _code(function.__code__, function.__doc__, seen), given, named
    seen[function] = _checksum(whole)
    return seen[function]


def _code(code: CodeType, doc: str | None, seen: dict[Any, str]) -> object:
    constants = code.co_consts[1:] if doc and code.co_consts[:1] == (doc,) else code.co_consts
    parts = [_code(each, None, seen) if isinstance(each, CodeType) else _value(each, seen) for each in constants]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    arguments = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    return code.co_code, code.co_exceptiontable, names, arguments, parts


def _names(code: CodeType) -> set[str]:
    inner = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return {*code.co_names}.union(*inner)


def _value(value: Any, seen: dict[Any, str]) -> object:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, _PLAIN):
        return kind, repr(value)
    if isinstance(value, tuple | list):
        return kind, getattr(value, "_fields", ()), [_value(each, seen) for each in value]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(_value(each, seen)) for each in value)
    if isinstance(value, dict):
        return kind, [(_value(key, seen), _value(each, seen)) for key, each in value.items()]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return kind, repr(value.dtype), value.shape, value.strides, hashlib.sha256(value.tobytes()).hexdigest()
    if isinstance(value, numba.types.Type):
        return kind, str(value), str(getattr(value, "sig", ""))  # a function of another library has a signature
    if isinstance(value, DISPATCHER):
        return kind, _compiled(value, seen)
    return kind, _by_name(value, seen)


def _compiled(helper: Any, seen: dict[Any, str]) -> str:
    """A checksum of a helper; UnknownError if a process has compiled it with other constants than it has now."""
    if helper in seen:
        return seen[helper]
    seen[helper] = f"{helper.__module__}.{helper.__qualname__}"
    if not hasattr(helper, "_can_compile"):
        raise UnknownError(f"{helper!r} does not say whether its types are all that it will have")
    options = sorted((name, repr(_value(option, seen))) for name, option in helper.targetoptions.items())
    signatures = [] if helper._can_compile else [str(each) for each in helper.signatures]
    whole = _checksum((options, signatures, _value(helper.locals, seen), _function(helper.py_func, seen)))
    if not helper.overloads:
        _frozen[helper] = whole
    elif _frozen.setdefault(helper, whole) != whole:
        raise UnknownError(f"{helper!r} was compiled before what it refers to was changed")
    seen[helper] = whole
    return whole


_frozen: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The checksum of each helper when it was compiled; numba keeps its machine code as long as the process lives."""


def _by_name(value: Any, seen: dict[Any, str]) -> object:  # modules, functions and classes
    if isinstance(value, ModuleType) and _known(value.__name__):
        return value.__name__
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if name and module and _known(module):
        return module, name
    if isinstance(value, FunctionType):
        return _function(value, seen)
    if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
        return module, name, value._fields
    raise UnknownError(f"{value!r} has no content that a checksum could cover")


def _known(module: str) -> bool:
    return module.partition(".")[0] in _KNOWN


def _checksum(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()
