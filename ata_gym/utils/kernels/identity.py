"""A checksum of a kernel: the code and the constants of its loop and of all that it calls.

When numba compiles a loop, it freezes all that the loop refers to: helpers in any file, numbers,
arrays. The cache of numba checks the file of the loop alone, and would use old machine code after a
helper in another file was edited.
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

_VERSIONED_PACKAGES = sys.stdlib_module_names | {"numba", "numpy", "scipy", "llvmlite"}
"""Packages whose functions and classes count by name, since their versions are compared."""

_PLAIN_TYPES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    np.generic,
    np.dtype,
)


class UnknownError(Exception):
    """A kernel refers to an object whose content cannot be read."""


def identity(loop: Callable[..., Any]) -> str:
    """A checksum of all that makes the machine code of ``loop``, but its types and the compiler.

    Code counts as bytecode, without docstrings, comments and line numbers. A function may refer, by
    name or in its closure, to plain functions, and to functions compiled by numba, which count with
    their options; to numbers, strings, tuples, dictionaries and arrays; and to names of the
    standard library, numpy, scipy and numba.

    Args:
        loop: The function of the kernel.

    Raises:
        UnknownError: If it refers to anything else, or belongs to no module that was imported.
    """
    return _function(loop, {})


def _function(function: Any, checksums: dict[Any, str]) -> str:
    """The checksum of a function; ``checksums`` holds the checksums of functions so far."""
    if function in checksums:
        return checksums[function]
    # A function that calls itself, directly or through others, counts there by its name.
    checksums[function] = f"{function.__module__}.{function.__qualname__}"
    module = sys.modules.get(function.__module__)
    if module is None or vars(module) is not function.__globals__:
        raise UnknownError(f"{function.__qualname__} belongs to no imported module")
    try:
        closure = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError as error:
        raise UnknownError(f"{function.__qualname__} refers to a name without a value") from error
    defaults = _value((closure, function.__defaults__, function.__kwdefaults__), checksums)
    namespace = function.__globals__
    global_values = [
        (name, _value(namespace[name], checksums))
        for name in sorted(_names(function.__code__) & namespace.keys())
    ]
    content = (
        checksums[function],
        _code(function.__code__, function.__doc__, checksums),
        defaults,
        global_values,
    )
    checksums[function] = _checksum(content)
    return checksums[function]


def _code(code: CodeType, doc: str | None, checksums: dict[Any, str]) -> object:
    """The content of a code object without its docstring and line numbers."""
    # A docstring is the first constant.
    if doc and code.co_consts[:1] == (doc,):
        constants = code.co_consts[1:]
    else:
        constants = code.co_consts
    parts = [
        _code(constant, None, checksums)
        if isinstance(constant, CodeType)
        else _value(constant, checksums)
        for constant in constants
    ]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    arguments = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    return code.co_code, code.co_exceptiontable, names, arguments, parts


def _names(code: CodeType) -> set[str]:
    """The names that a code object, or one inside it, uses."""
    inner = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return {*code.co_names}.union(*inner)


def _value(value: Any, checksums: dict[Any, str]) -> object:
    """The content of a value that a function refers to."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, _PLAIN_TYPES):
        return kind, repr(value)
    if isinstance(value, tuple | list):
        return kind, getattr(value, "_fields", ()), [_value(item, checksums) for item in value]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(_value(item, checksums)) for item in value)
    if isinstance(value, dict):
        return kind, [
            (_value(key, checksums), _value(item, checksums)) for key, item in value.items()
        ]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest = hashlib.sha256(value.tobytes()).hexdigest()
        return kind, repr(value.dtype), value.shape, value.strides, digest
    # The type of a function of another library has a signature.
    if isinstance(value, numba.types.Type):
        return kind, str(value), str(getattr(value, "sig", ""))
    if isinstance(value, DISPATCHER):
        return kind, _compiled(value, checksums)
    return kind, _by_name(value, checksums)


def _compiled(helper: Any, checksums: dict[Any, str]) -> str:
    """The checksum of a helper, with UnknownError if it was compiled with other constants."""
    if helper in checksums:
        return checksums[helper]
    checksums[helper] = f"{helper.__module__}.{helper.__qualname__}"
    if not hasattr(helper, "_can_compile"):
        raise UnknownError(f"{helper!r} does not say whether its types are all that it will have")
    options = sorted(
        (name, repr(_value(option, checksums))) for name, option in helper.targetoptions.items()
    )
    # A helper with fixed types does not compile for others.
    if helper._can_compile:
        signatures = []
    else:
        signatures = [str(signature) for signature in helper.signatures]
    variables = _value(helper.locals, checksums)
    checksum = _checksum((options, signatures, variables, _function(helper.py_func, checksums)))
    # numba would use the machine code that it has, made with the earlier constants.
    if not helper.overloads:
        _checksums_when_compiled[helper] = checksum
    elif _checksums_when_compiled.setdefault(helper, checksum) != checksum:
        raise UnknownError(f"{helper!r} was compiled before what it refers to was changed")
    checksums[helper] = checksum
    return checksum


_checksums_when_compiled: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The checksum of each helper when it was compiled.

numba keeps its machine code as long as the process lives.
"""


def _by_name(value: Any, checksums: dict[Any, str]) -> object:
    """The content of a module, a function or a class, by name where its version counts."""
    if isinstance(value, ModuleType) and _is_versioned(value.__name__):
        return value.__name__
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if name and module and _is_versioned(module):
        return module, name
    if isinstance(value, FunctionType):
        return _function(value, checksums)
    if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
        return module, name, value._fields
    raise UnknownError(f"{value!r} has no content that a checksum could cover")


def _is_versioned(module: str) -> bool:
    """Whether a module belongs to a package whose version counts."""
    return module.partition(".")[0] in _VERSIONED_PACKAGES


def _checksum(content: object) -> str:
    """The SHA-256 of the text of an object."""
    return hashlib.sha256(repr(content).encode()).hexdigest()
