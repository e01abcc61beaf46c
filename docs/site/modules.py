"""A page for each public module of both packages."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ata_gym
import ata_policies
from docs.site.named import SECTIONS, summary, table


def write(folder: Path, left_out: dict[str, str]) -> None:
    """Write the pages to ``folder/api``; ``left_out`` gets what fails to import."""
    found = [*_found(ata_gym, left_out), *_found(ata_policies, left_out)]
    names = [module.__name__ for module in found]
    (folder / "api").mkdir()
    for module in found:
        _import_types(module)
        for kind in [*vars(module).values()]:
            if getattr(kind, "__module__", "") == module.__name__:
                _own_words(kind)
        page = folder / "api" / f"{module.__name__}.rst"
        page.write_text(_page(module, names), encoding="utf-8")


def _found(package: types.ModuleType, left_out: dict[str, str]) -> Iterator[types.ModuleType]:
    yield package
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if found.name in left_out or found.name.rpartition(".")[2].startswith("_"):
            continue
        try:
            module = importlib.import_module(found.name)
            # what it loads on first use may need an extra, too
            for name in getattr(module, "__all__", ()):
                getattr(module, name)
        except ImportError as error:
            left_out[found.name] = str(error)
            continue
        if found.ispkg:
            yield from _found(module, left_out)
        else:
            yield module


def _import_types(module: types.ModuleType) -> None:
    """Import what a module imports for type checkers alone, so that its annotations are known."""
    source = inspect.getsource(module)
    if "TYPE_CHECKING:" in source:
        for node in ast.parse(source).body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                exec(ast.unparse(node.body), vars(module))


def _own_words(kind: Any) -> None:
    """Take from a class what is not for a page of the API.

    Python's own words on the fields of a named tuple go, so that only what stands under a field is
    told; an env has its own page.
    """
    for field in getattr(kind, "_fields", ()):
        if isinstance(kind, type) and field in vars(kind):
            getattr(kind, field).__doc__ = None
    about = getattr(kind, "__doc__", None) or ""
    if SECTIONS in about:
        kind.__doc__ = f"{summary(kind)}\n\n:doc:`Its page </envs/{kind.__name__}>` says more."
    elif "\n```" in inspect.cleandoc(about):
        kind.__doc__ = f"{summary(kind)}\n\n:doc:`/commands` says more."


def _page(module: types.ModuleType, names: list[str]) -> str:
    name = module.__name__
    lines = [name, "=" * len(name), "", f".. automodule:: {name}", ""]
    passed_on = []
    for one in getattr(module, "__all__", ()):
        value = getattr(module, one)
        where = getattr(value, "__module__", name)
        if where != name and where in names and hasattr(value, "__qualname__"):
            passed_on.append((f":py:obj:`{one} <{where}.{value.__qualname__}>`", summary(value)))
    if passed_on:
        lines += [".. rubric:: Names to import from here", "", *table(("name", ""), passed_on)]
    parts = [one for one in names if one.rpartition(".")[0] == name]
    if parts:
        lines += [".. rubric:: Modules", "", ".. toctree::", "   :maxdepth: 1", ""]
        lines += [f"   {one.rpartition('.')[2]} <{one}>" for one in parts]
    return "\n".join([*lines, ""])
