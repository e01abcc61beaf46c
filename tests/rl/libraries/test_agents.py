"""The scripts in notebooks/agents: each runs, and its agent beats uniform; the table there names tests that exist."""

from __future__ import annotations

import importlib.util
import re
import runpy
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
AGENTS = ROOT / "notebooks" / "agents"
NEEDS = {
    "sb3": "stable_baselines3", "sb3_contrib": "sb3_contrib", "cleanrl": "torch",
    "torchrl": "torchrl", "tianshou": "tianshou", "rllib": "tree",
}  # fmt: skip
ELSEWHERE = ("torchrl", "tianshou", "rllib")
"""They have environments of their own."""


def marked(library: str) -> Any:
    missing = importlib.util.find_spec(NEEDS[library]) is None
    marks = [pytest.mark.skipif(missing, reason=f"{NEEDS[library]} is not installed")]
    return pytest.param(library, marks=[*marks, pytest.mark.library] if library in ELSEWHERE else marks)


def test_each_library_has_one_and_each_is_short() -> None:
    paths = {path.name: path for path in AGENTS.glob("*.py")}
    assert paths.keys() == {f"with_{library}.py" for library in NEEDS}
    assert max(len(path.read_text(encoding="utf-8").splitlines()) for path in paths.values()) <= 40


@pytest.mark.parametrize("library", [marked(library) for library in NEEDS])
def test_each_agent_learns(library: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(AGENTS / f"with_{library}.py"), run_name="__main__")
    if library == "rllib":
        sys.modules["ray"].shutdown()
    returns = [float(number) for number in re.findall(r"^\w+: (-\d+\.\d+)$", capsys.readouterr().out, re.MULTILINE)]
    assert len(returns) == 2
    assert returns[0] > 0.97 * returns[1]


def rows_of_the_table() -> list[list[str]]:
    lines = (AGENTS / "README.md").read_text(encoding="utf-8").splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("| Library | Env |"))
    rows = takewhile(lambda line: line.startswith("|"), lines[first + 2 :])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]


def test_the_table_names_tests_that_there_are() -> None:
    rows = rows_of_the_table()
    assert len(rows) >= 15
    for row in rows:
        for file, test in re.findall(r"`(test_\w+)::(test_\w+)`", row[-1]):
            (path,) = (ROOT / "tests").rglob(f"{file}.py")
            assert f"def {test}(" in path.read_text(encoding="utf-8")
        assert "::" in row[-1]


def test_the_table_has_the_versions_that_are_installed_for_the_tests() -> None:
    """Those of constraints.txt, or of the sessions of nox."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8") + (ROOT / "noxfile.py").read_text(encoding="utf-8")
    for row in rows_of_the_table():
        library, version = row[0], row[3]
        name = {"Stable-Baselines3": "stable_baselines3", "sb3-contrib": "sb3-contrib", "RLlib": "ray[rllib]"}
        if library == "sb3-contrib" or library.startswith("CleanRL"):  # without a version of their own
            continue
        assert f"{name.get(library, library.lower())}=={version}" in pins
