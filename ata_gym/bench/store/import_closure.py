"""The modules that a module imports, directly or through others, as far as users edit them."""

import ast
import hashlib
import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ata_gym.utils.errors import is_installed, is_our_module

_Reference = tuple[str, str]
"""A module, and the name that is taken from it; an empty name means the whole module."""


class _Source(NamedTuple):
    """The parts of a Python file that count."""

    checksum: str
    """The checksum of its code without docstrings, comments and layout."""
    origins: dict[str, _Reference]
    """The places from which it imports names, by name."""
    imports: tuple[_Reference, ...]
    """The modules and names that it imports."""
    uses: tuple[_Reference, ...]
    """The attributes of imported modules that it uses, as in ``package.name``."""


def import_closure(roots: Iterable[str], apart: Iterable[str] = ()) -> dict[str, str]:
    """Checksums of modules and of all modules that they import anywhere in their files, by name.

    The source counts without docstrings, comments and layout. The standard library and installed
    packages do not count, except ata-gym itself and the packages of the roots. The packages around
    a module count, since they are run with it. A package of ata-gym counts only by its own code,
    and by the modules of the names that are taken from it.

    Args:
        roots: The dotted names of the first modules.
        apart: Modules and packages that do not count, nor do modules that only these import.

    Example:
        >>> list(import_closure(["ata_gym.simulation.keys"], apart=["ata_gym.utils"]))
        ['ata_gym.simulation.keys', 'ata_gym.typing']
    """
    roots = list(roots)
    tops = {root.partition(".")[0] for root in roots}
    checksums: dict[str, str] = {}
    queue: list[_Reference] = [(root, "") for root in roots]
    queued = set(queue)
    while queue:
        name, imported_name = queue.pop()
        if imported_name and _file(f"{name}.{imported_name}", tops):
            references: list[_Reference] = [(f"{name}.{imported_name}", "")]
        elif any(f"{name}.".startswith(f"{package}.") for package in apart) or not (
            file := _file(name, tops)
        ):
            continue
        else:
            references = _visit(name, imported_name, file, checksums)
        queue += [reference for reference in references if reference not in queued]
        queued |= set(references)
    return dict(sorted(checksums.items()))


def _visit(
    name: str, imported_name: str, file: Path, checksums: dict[str, str]
) -> list[_Reference]:
    """Note the checksum of a module in ``checksums``, and return the references to follow."""
    package = file.name == "__init__.py"
    source = _parsed(file.read_bytes(), name, package)
    ours = package and is_our_module(name)
    references = [*source.imports, *source.uses]
    if "." in name:
        parents = [(name.rpartition(".")[0], "")]
    else:
        parents = []
    # Of our own package, a name leads to its module; the other imports do not count.
    if ours and imported_name in source.origins:
        return [source.origins[imported_name], *parents]
    if ours and (not imported_name or imported_name.startswith("__")):
        references = [reference for reference in source.uses if is_our_module(reference[0])]
    if references or not ours:
        checksums[name] = source.checksum
    return [*references, *parents]


def _file(name: str, tops: set[str]) -> Path | None:
    """The file of a module; None if there is none, or it belongs to another installed package.

    Installed packages count if they are ours or in ``tops``.
    """
    top, *parts = name.split(".")
    is_counted = is_our_module(top) or top in tops
    paths = [
        place.joinpath(*parts) for place in _places(top) if is_counted or not is_installed(place)
    ]
    files = [
        file
        for path in paths
        for file in (path, path / "__init__.py", path.parent / f"{path.name}.py")
    ]
    return next((file for file in files if file.is_file()), None)


def _places(top: str) -> list[Path]:
    """The folders of a package, or the file of a module; none for the standard library."""
    if top in sys.stdlib_module_names:
        return []
    module = sys.modules.get(top)
    try:
        if module is None:
            spec = find_spec(top)
        else:
            spec = None
    except (ImportError, ValueError):
        return []
    folders = getattr(module, "__path__", None) or getattr(spec, "submodule_search_locations", None)
    if folders:
        return [Path(folder) for folder in folders]
    file = getattr(module, "__file__", None) or getattr(spec, "origin", None)
    if file:
        return [Path(file)]
    return []


@cache
def _parsed(content: bytes, name: str, package: bool) -> _Source:
    """The parts of a file that count; of a file that is no Python, the checksum alone."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return _Source(_checksum(content), {}, (), ())
    if package:
        package_parts = name.split(".")
    else:
        package_parts = name.split(".")[:-1]
    origins: dict[str, _Reference] = {}
    # Dictionaries without values are sets that keep their order.
    imports = dict[_Reference, None]()
    uses = dict[_Reference, None]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imports[alias.name, ""] = None
                if alias.asname:
                    module = alias.name
                else:
                    module = alias.name.partition(".")[0]
                origins[alias.asname or module] = module, ""
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                module_parts = package_parts[: len(package_parts) + 1 - node.level]
            else:
                module_parts = []
            if node.module:
                module_parts = [*module_parts, node.module]
            source = ".".join(module_parts)
            for alias in node.names:
                reference = source, "" if alias.name == "*" else alias.name
                imports[reference] = None
                origins[alias.asname or alias.name] = reference
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Attribute) and (base := _dotted(node.value, origins)):
            uses[base, node.attr] = None
        elif isinstance(body, list):
            statements = [statement for statement in body if not _is_docstring(statement)]
            node.body = statements  # type: ignore[attr-defined]
    return _Source(_checksum(ast.unparse(tree).encode()), origins, tuple(imports), tuple(uses))


def _dotted(node: ast.expr, origins: dict[str, _Reference]) -> str:
    """The dotted name of a module in an expression such as ``package.module``, or "".

    Names count as they were imported.
    """
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, origins)
        return base and f"{base}.{node.attr}"
    if isinstance(node, ast.Name) and node.id in origins:
        return ".".join(part for part in origins[node.id] if part)
    return ""


def _is_docstring(node: ast.stmt) -> bool:
    """Whether a statement is a string alone."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _checksum(content: bytes) -> str:
    """The first 16 digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]
