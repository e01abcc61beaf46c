"""Packages whose names are imported when they are used."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = [
    file
    for folder in ("ata_gym", "policies/ata_policies")
    for file in (ROOT / folder).rglob("__init__.py")
    if "lazy_names(" in file.read_text("utf-8")
]


def imports_of_types(file: Path) -> dict[str, str]:
    """The names that a package imports for type checkers, and the module of each."""
    blocks = [
        node
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        alias.asname or alias.name: statement.module or ""
        for block in blocks
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_a_name_is_the_object_that_type_checkers_see(file: Path) -> None:
    package = import_module(".".join(file.parent.relative_to(ROOT).parts).removeprefix("policies."))
    typed = imports_of_types(file)
    assert typed
    for name, module in typed.items():
        assert getattr(package, name) is getattr(import_module(module), name)
    # what is left are modules, which type checkers find by themselves
    for name in set(dir(package)) - typed.keys():
        assert getattr(package, name) is import_module(f"{package.__name__}.{name}")
