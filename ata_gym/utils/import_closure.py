"""The modules that a module imports, directly or through others, as far as users edit them."""

import ast
import hashlib
import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ata_gym.utils.errors import is_installed, is_ours

_Reference = tuple[str, str]  # a module, and the name that is taken from it; an empty name stands for the whole module


class _Source(NamedTuple):
    """The parts of a Python file that count."""

    checksum: str
    homes: dict[str, _Reference]  # the places from which it imports names, by name
    imports: tuple[_Reference, ...]
    uses: tuple[_Reference, ...]  # the attributes of imported modules that it uses, as in ``package.name``


def import_closure(roots: Iterable[str], apart: Iterable[str] = ()) -> dict[str, str]:
    """Checksums of modules and of all modules that they import anywhere in their files, by name.

    The source counts without docstrings, comments and layout. The standard library and installed packages do not count,
    except ata-gym itself and the packages of the roots. The packages around a module count, since they are run with it;
    a package of ata-gym counts only by what it does itself, and by the modules of the names that are taken from it.

    Modules and packages ``apart`` do not count, nor do modules that only these import.

    >>> list(import_closure(["ata_gym.simulation.keys"], apart=["ata_gym.utils"]))
    ['ata_gym.simulation.keys', 'ata_gym.typing']
    """
    roots = list(roots)
    tops = {root.partition(".")[0] for root in roots}
    found: dict[str, str] = {}
    todo: list[_Reference] = [(root, "") for root in roots]
    known = set(todo)
    while todo:
        name, wanted = todo.pop()
        if wanted and _file(f"{name}.{wanted}", tops):
            more: list[_Reference] = [(f"{name}.{wanted}", "")]
        elif any(f"{name}.".startswith(f"{package}.") for package in apart) or not (file := _file(name, tops)):
            continue
        else:
            more = _visit(name, wanted, file, found)
        todo += [each for each in more if each not in known]
        known |= set(more)
    return dict(sorted(found.items()))


def _visit(name: str, wanted: str, file: Path, found: dict[str, str]) -> list[_Reference]:
    package = file.name == "__init__.py"
    source = _parsed(file.read_bytes(), name, package)
    ours, more = package and is_ours(name), [*source.imports, *source.uses]
    above = [(name.rpartition(".")[0], "")] if "." in name else []
    if ours and wanted in source.homes:
        return [source.homes[wanted], *above]
    if ours and (not wanted or wanted.startswith("__")):
        more = [each for each in source.uses if is_ours(each[0])]
    if more or not ours:
        found[name] = source.checksum
    return [*more, *above]


def _file(name: str, tops: set[str]) -> Path | None:
    """The file of a module; None if there is none, or it belongs to an installed package beside ours and ``tops``."""
    top, *parts = name.split(".")
    counts = is_ours(top) or top in tops
    within = [place.joinpath(*parts) for place in _places(top) if counts or not is_installed(place)]
    files = [file for one in within for file in (one, one / "__init__.py", one.parent / f"{one.name}.py")]
    return next((file for file in files if file.is_file()), None)


def _places(top: str) -> list[Path]:
    if top in sys.stdlib_module_names:
        return []
    found = sys.modules.get(top)
    try:
        spec = find_spec(top) if found is None else None
    except (ImportError, ValueError):
        return []
    folders = getattr(found, "__path__", None) or getattr(spec, "submodule_search_locations", None)
    file = getattr(found, "__file__", None) or getattr(spec, "origin", None)
    return [Path(place) for place in folders or ([file] if file else [])]


@cache
def _parsed(content: bytes, name: str, package: bool) -> _Source:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return _Source(_checksum(content), {}, (), ())
    inside = name.split(".") if package else name.split(".")[:-1]
    homes: dict[str, _Reference] = {}
    imports, uses = dict[_Reference, None](), dict[_Reference, None]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imports[alias.name, ""] = None
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                homes[alias.asname or whole] = whole, ""
        elif isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) + 1 - node.level] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                reference = source, "" if alias.name == "*" else alias.name
                imports[reference] = None
                homes[alias.asname or alias.name] = reference
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (base := _dotted(node.value, homes)):
            uses[base, node.attr] = None
        elif isinstance(getattr(node, "body", None), list):
            node.body = [each for each in node.body if not _is_docstring(each)]  # type: ignore[attr-defined]
    return _Source(_checksum(ast.unparse(tree).encode()), homes, tuple(imports), tuple(uses))


def _dotted(node: ast.expr, homes: dict[str, _Reference]) -> str:
    """The dotted name that an expression such as ``package.module`` stands for; empty if it is no name of a module."""
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, homes)
        return base and f"{base}.{node.attr}"
    if isinstance(node, ast.Name) and node.id in homes:
        return ".".join(part for part in homes[node.id] if part)
    return ""


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
