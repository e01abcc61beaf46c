"""The rooms of both packages: imports run down only and never in a circle, and folders and files stay small."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import ata_gym
import ata_policies

PACKAGES = {"ata_gym": Path(ata_gym.__file__).parent, "ata_policies": Path(ata_policies.__file__).parent}

CORE = {
    "typing": set(),
    "utils": {"typing"},
    "pools": {"utils", "typing"},
    "simulation": {"pools", "utils", "typing"},
    "theory": {"simulation", "pools", "utils", "typing"},
    "changes": {"simulation", "pools", "utils", "typing"},
    "scenarios": {"changes", "simulation", "pools", "utils", "typing"},
    "envs": {"scenarios", "changes", "simulation", "pools", "utils", "typing"},
}
"""The rooms of the core, and from which each may import."""

BELOW_BENCH = {*CORE, "", "zoo"}
ARROWS = {
    **CORE,
    "": {*CORE},  # ata_gym/__init__.py
    "zoo": {*CORE, ""},
    "bench": BELOW_BENCH,
    "training": {*BELOW_BENCH, "bench"},
    "rl": {*BELOW_BENCH, "bench", "training"},
    "cluster": {*BELOW_BENCH, "bench", "training"},
    "cli": {*BELOW_BENCH, "bench", "training", "rl", "cluster"},
    "__main__": {"cli", "utils"},
}
"""The same for all rooms of ata_gym; the zoo counts as one."""

RULES = {"facts", "explanation", "beliefs", "observations", "policy", "planning", "allocation"}
ZOO_ARROWS = {
    "facts": set(),
    "beliefs": {"facts"},
    "observations": {"beliefs"},
    "explanation": set(),
    "planning": {"beliefs"},
    "policy": {"beliefs", "explanation", "facts", "observations"},
    "allocation": RULES - {"allocation"},
    **dict.fromkeys(("race", "dispatch", "lb_bsp", "learned"), RULES),
}
"""The rooms of the zoo that policies are made of. Its other files, such as the registry, may import all of these."""

FORBIDDEN = {
    *("base", "world", "files", "sums", "samples", "simple", "trial", "recent", "watching", "attendance", "profiles"),
    *("leading", "showing", "tracing", "misc", "common", "extras"),
}
NAMED_SO = {"ata_gym/utils/extras.py"}
"""The extras of the package: a forbidden name that is the term of the field there."""
LONG = {"ata_policies/planning/local_search.py"}
"""Files that hold many kernels and their helpers."""
LONG_KERNELS = {"observe_round"}
"""Kernels of more than 120 lines."""


@cache
def modules() -> dict[str, Path]:
    """The file of each module of both packages."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


@cache
def imported(module: str) -> frozenset[str]:
    """The modules of both packages that a module imports anywhere in its file, for type checkers too."""
    path, names = modules()[module], set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{source}.{alias.name}" for alias in node.names}
    known = {name if name in modules() else name.rpartition(".")[0] for name in names}  # the rest: classes, functions
    return frozenset(known & modules().keys() - {module})


def room(module: str) -> str:
    """The room of a module of ata_gym; all of ata_policies is the zoo."""
    package, *parts = module.split(".")
    return "zoo" if package == "ata_policies" else parts[0] if parts else ""


def folders() -> Iterator[Path]:
    """Every folder of both packages that holds Python files."""
    yield from sorted({path.parent for path in modules().values()})


def name_of(path: Path) -> str:
    """A path from its package on."""
    return next(f"{p}/{path.relative_to(f)}" for p, f in PACKAGES.items() if path.is_relative_to(f)).removesuffix("/.")


def test_imports_of_ata_gym_run_down() -> None:
    upwards = [
        f"{module} imports {other}"
        for module in modules()
        for other in imported(module)
        if room(other) not in {room(module), *ARROWS[room(module)]}
    ]
    assert not upwards, "\n".join(sorted(upwards))


def test_imports_of_the_zoo_run_down() -> None:
    upwards = []
    for module in modules():
        own = module.split(".")[1:2]
        if module.startswith("ata_policies.") and own[0] in ZOO_ARROWS:
            for other in imported(module):
                parts = other.split(".")
                if parts[0] == "ata_policies" and (parts[1:2] or [""])[0] not in {own[0], *ZOO_ARROWS[own[0]]}:
                    upwards.append(f"{module} imports {other}")
    assert not upwards, "\n".join(sorted(upwards))


@pytest.mark.parametrize("folder", [pytest.param(folder, id=name_of(folder)) for folder in folders()])
def test_imports_inside_a_folder_run_down(folder: Path) -> None:
    """The files and parts of a folder, each part as one, do not import each other in a circle."""
    entries: dict[str, set[str]] = {}
    for module, path in modules().items():
        if path.is_relative_to(folder):
            own = path.relative_to(folder).parts[0]
            others = [modules()[other] for other in imported(module)]
            inside = {other.relative_to(folder).parts[0] for other in others if other.is_relative_to(folder)}
            entries.setdefault(own, set()).update(inside - {own, "__init__.py"})
    try:
        TopologicalSorter({own: others for own, others in entries.items() if own != "__init__.py"}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("folder", [pytest.param(folder, id=name_of(folder)) for folder in folders()])
def test_a_folder_says_what_it_holds_and_stays_small(folder: Path) -> None:
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert said
    assert not re.search(r"\b(imports?|from here)\b", said.partition(">>>")[0]), f"who imports what changes: {said!r}"
    entries = [path for path in folder.iterdir() if not path.name.startswith((".", "__pycache__"))]
    files = [path for path in entries if path.suffix == ".py" and not path.name.startswith("__")]
    parts = [path for path in entries if path.is_dir() and any(path.glob("*.py"))]
    assert len(files) <= 8 or parts, f"{len(files)} files and no parts: {sorted(path.name for path in files)}"
    if folder == PACKAGES["ata_gym"]:
        assert len(entries) <= 16


def test_no_file_has_a_name_that_says_nothing() -> None:
    named = {name_of(path) for path in modules().values() if path.stem in FORBIDDEN}
    assert named <= NAMED_SO


def test_files_are_short() -> None:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules().values()}
    long = {name: length for name, length in lengths.items() if length > 350 and name not in LONG}
    assert not long


@cache
def functions() -> dict[str, tuple[ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    """Every function of both packages by its place, and its lines of code without the docstring."""
    found = {}
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                said = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
                lines = (node.end_lineno or 0) - node.lineno + 1
                lines -= (first.end_lineno or 0) - first.lineno + 1 if said else 0
                found[f"{name_of(path)}:{node.lineno} {node.name}"] = node, lines
    return found


def is_kernel(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is compiled."""
    return any(ast.unparse(one).startswith(("gufunc(", "helper(", "inlined", "phase")) for one in node.decorator_list)


def test_functions_fit_a_screen() -> None:
    limits = {name: (120 if is_kernel(node) else 60, lines) for name, (node, lines) in functions().items()}
    assert {name.split()[1] for name, (most, lines) in limits.items() if lines > most} <= LONG_KERNELS


def test_functions_have_few_parameters() -> None:
    """Public options are left out: commands and constructors have as many as a user can set."""
    many = {}
    for name, (node, _) in functions().items():
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        number = sum(one.arg not in ("self", "cls") for one in given)
        place = ("ata_gym/cli/", "ata_gym/bench/benchmark.py")
        public = node.name == "__init__" or (name.startswith(place) and not node.name.startswith("_"))
        if number > 8 and not public and not is_kernel(node):
            many[name] = number
    assert not many
