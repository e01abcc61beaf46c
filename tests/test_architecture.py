"""The rooms of both packages: imports run down only and never in a circle, and folders and files
stay small.
"""

import ast
import re
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import ata_gym
import ata_policies
from ata_gym import bench

PACKAGES = {
    "ata_gym": Path(ata_gym.__file__).parent,
    "ata_policies": Path(ata_policies.__file__).parent,
}

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

FLOOR = {*CORE, "", "zoo", "models"}
ARROWS = {
    **CORE,
    "": {*CORE},  # ata_gym/__init__.py
    "zoo": {*CORE, ""},
    "models": {"utils", "typing"},
    "training": FLOOR,
    "rl": FLOOR,
    "bench": {*FLOOR, "training", "rl"},
    "cluster": {*FLOOR, "bench"},
    "cli": {*FLOOR, "training", "rl", "bench", "cluster"},
    "__main__": {"cli", "utils"},
}
"""The same for all rooms of ata_gym; the zoo counts as one."""

RULES = {
    "facts",
    "explanation",
    "beliefs",
    "observations",
    "setting",
    "policy",
    "planning",
    "allocation",
}
ZOO = {
    "facts": set(),
    "beliefs": {"facts"},
    "observations": {"beliefs"},
    "explanation": set(),
    "planning": {"beliefs"},
    "setting": {"facts"},
    "policy": {"beliefs", "explanation", "facts", "observations", "setting"},
    "learned": RULES - {"allocation", "planning"},
    "allocation": {*RULES, "learned"} - {"allocation"},
    **dict.fromkeys(("race", "dispatch", "lb_bsp"), RULES),
}
"""The rooms of the zoo that policies are made of.

Its other files, such as the registry, may import all of these.
"""

FORBIDDEN = {
    *(
        "base",
        "world",
        "files",
        "sums",
        "samples",
        "simple",
        "trial",
        "recent",
        "watching",
        "attendance",
        "profiles",
    ),
    *("leading", "showing", "tracing", "misc", "common", "extras"),
}
NAMED_SO = {"ata_gym/utils/extras.py"}
"""The extras of the package: a forbidden name that is the term of the field there."""


@cache
def modules() -> dict[str, Path]:
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


@cache
def imported(module: str) -> frozenset[str]:
    """The modules of both packages that a module imports anywhere in its file, for type checkers
    too.
    """
    path = modules()[module]
    names = set()
    if path.name == "__init__.py":
        package = module
    else:
        package = module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            else:
                above = []
            source = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{source}.{alias.name}" for alias in node.names}
    # the rest: classes, functions
    known = {name if name in modules() else name.rpartition(".")[0] for name in names}
    return frozenset(known & modules().keys() - {module})


def room(module: str) -> str:
    package, *parts = module.split(".")
    if package == "ata_policies":
        return "zoo"
    if parts:
        return parts[0]
    return ""


def name_of(path: Path) -> str:
    return next(
        f"{p}/{path.relative_to(f)}" for p, f in PACKAGES.items() if path.is_relative_to(f)
    ).removesuffix("/.")


def may_import(module: str, other: str) -> bool:
    own, its = (name.split(".")[1] if "." in name else "" for name in (module, other))
    if module.startswith("ata_policies") and other.startswith("ata_policies") and own in ZOO:
        return its in {own, *ZOO[own]}
    return room(other) in {room(module), *ARROWS[room(module)]}


def test_imports_run_down() -> None:
    pairs = [(module, other) for module in modules() for other in imported(module)]
    upwards = [
        f"{module} imports {other}" for module, other in pairs if not may_import(module, other)
    ]
    assert not upwards, "\n".join(sorted(upwards))


@pytest.mark.parametrize(
    "folder",
    sorted({path.parent for path in modules().values()}),
    ids=name_of,
)
def test_a_folder_says_what_it_holds_stays_small_and_has_no_circle_of_imports(folder: Path) -> None:
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert said
    assert not re.search(r"\b(imports?|from here)\b", said.partition(">>>")[0]), (
        f"who imports what changes: {said!r}"
    )
    entries = [path for path in folder.iterdir() if not path.name.startswith((".", "__pycache__"))]
    files = [path for path in entries if path.suffix == ".py" and not path.name.startswith("__")]
    parts = [path for path in entries if path.is_dir() and any(path.glob("*.py"))]
    assert len(files) <= 8 or parts, (
        f"{len(files)} files and no parts: {sorted(path.name for path in files)}"
    )
    if folder == PACKAGES["ata_gym"]:
        assert len(entries) <= 17
    below: dict[str, set[str]] = defaultdict(set)
    for module, path in modules().items():
        if path.is_relative_to(folder) and path != folder / "__init__.py":
            own = path.relative_to(folder).parts[0]
            others = [modules()[other] for other in imported(module)]
            inside = {
                other.relative_to(folder).parts[0]
                for other in others
                if other.is_relative_to(folder)
            }
            below[own] |= inside - {own, "__init__.py"}
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_files_are_short_and_have_a_name_that_says_something() -> None:
    lengths = {
        name_of(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules().values()
    }
    assert not {name for name, length in lengths.items() if length > 500}
    assert {name for name in lengths if Path(name).stem in FORBIDDEN} <= NAMED_SO


def test_a_public_method_has_a_docstring_unless_that_of_its_contract_says_it() -> None:
    trees = [
        (name_of(path), ast.parse(path.read_text(encoding="utf-8"))) for path in modules().values()
    ]
    classes = [
        (place, node)
        for place, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    public = [(place, node.body) for place, node in classes if not node.name.startswith("_")]
    methods = [
        (place, one) for place, body in public for one in body if isinstance(one, ast.FunctionDef)
    ]
    described = {one.name for _, one in methods if ast.get_docstring(one)}
    assert not {
        (place, one.name)
        for place, one in methods
        if one.name not in described and one.name[0] != "_"
    }


NAMED_TUPLES = {"_replace", "_asdict", "_make", "_fields"}
"""Public names of Python that begin with an underscore."""


def is_private(name: str) -> bool:
    return (
        name.startswith("_")
        and not name.startswith("__")
        and name != "_"
        and name not in NAMED_TUPLES
    )


def names_in(node: ast.AST) -> list[str]:
    """The names that a piece of code takes from an object or a module, also by ``getattr``."""
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.ImportFrom):
        return [*(node.module or "").split("."), *(alias.name for alias in node.names)]
    if isinstance(node, ast.keyword):
        return [node.arg or ""]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "hasattr", "setattr"}:
        return [
            arg.value
            for arg in node.args
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        ]
    return []


def defined_in(node: ast.AST) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
    ):
        return node.attr
    if isinstance(node, ast.arg):
        return node.arg
    return ""


def test_private_names_of_other_packages_are_those_that_contributing_lists() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in modules().values()}
    nodes = [node for text in texts.values() for node in ast.walk(ast.parse(text))]
    ours = {defined_in(node) for node in nodes}
    used = {name for node in nodes for name in names_in(node) if is_private(name)} - ours
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition("## What is used of other packages that is not public")[2].partition(
        "\n## ",
    )[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    listed = {name for row in rows for name in re.findall(r"\b_\w+", row[0])}
    assert used <= listed, "list them in CONTRIBUTING.md, or do without them"
    assert all(any(name in text for text in texts.values()) for name in listed)
    inner = re.compile(
        r"\bnumba\.core\b|\b(?:numba|numpy|scipy|gymnasium|torch|ray|polars)\._[a-z]",
    )
    assert {name_of(path) for path, text in texts.items() if inner.search(text)} == {
        *("ata_gym/utils/kernels/internals.py", "ata_gym/cluster/on_ray/connection.py"),
    }


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    said = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return (
        (node.end_lineno or 0)
        - node.lineno
        + 1
        - ((first.end_lineno or 0) - first.lineno + 1 if said else 0)
    )


def is_kernel(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        ast.unparse(one).startswith(("kernel(", "helper(", "inlined", "phase"))
        for one in node.decorator_list
    )


def test_functions_fit_a_screen_and_have_few_parameters() -> None:
    """Public options are left out: commands and constructors have as many as a user can set."""
    long = set()
    many = set()
    for path in modules().values():
        place = name_of(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if lines_of(node) > (120 if is_kernel(node) else 75):
                    long.add(node.name)
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                door = (place.startswith("ata_gym/cli/") and node.name[0] != "_") or (
                    place.startswith("ata_gym/bench/studies/") and node.name in bench.__all__
                )
                public = door or node.name == "__init__"
                if (
                    sum(one.arg not in ("self", "cls") for one in given) > 8
                    and not public
                    and not is_kernel(node)
                ):
                    many.add(f"{place}:{node.lineno} {node.name}")
    assert not long
    assert not many


def is_number(value: ast.expr) -> bool:
    """Whether the value of an assignment is a constant, by its name or as it is."""
    if isinstance(value, ast.UnaryOp):
        return is_number(value.operand)
    return (
        isinstance(value, ast.Constant)
        or ast.unparse(value).isupper()
        or ast.unparse(value) in {"math.inf", "math.nan"}
    )


def test_kernels_assign_only_constants_to_slices() -> None:
    """For an array numba compiles the text of an error, too, which takes half a second."""
    arrays = {
        f"{name_of(path)}:{node.lineno} {ast.unparse(node)}"
        for path in modules().values()
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef) and is_kernel(function)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and not is_number(node.value)
        for target in node.targets
        if isinstance(target, ast.Subscript)
        if any(isinstance(part, ast.Slice) for part in ast.walk(target.slice))
    }
    assert not arrays, "copy and copy_rows of ata_gym.utils.compiled take their place"
