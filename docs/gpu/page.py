"""The page of the tests that need a GPU, ``tests/gpu/README.md``: a row for each test."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "tests" / "gpu" / "README.md"
ROW = re.compile(r"^\| (?P<risk>.+?) \| `(?P<test>tests/\S+::\w+)` \| .* \|$", re.MULTILINE)


class Outcome(NamedTuple):
    """What came of a test with one set of parameters, or of a part of it."""

    test: str
    """The file and the name of the test, without parameters."""
    result: str
    """``passed``, ``failed``, ``skipped`` or ``did not end``."""
    reason: str = ""
    """Why it was skipped, or the last line of its error."""
    figures: str = ""
    """What it measured."""


class Machine(NamedTuple):
    """What the tests ran on."""

    device: str
    driver: str
    torch: str
    date: str


def marked() -> set[str]:
    """The tests marked ``gpu``, each by its file and name."""
    tests = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        marks_of_all = [text for text in map(ast.unparse, body) if text.startswith("pytestmark = ")]
        for test in body:
            if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
                continue
            marks = [*marks_of_all, *map(ast.unparse, test.decorator_list)]
            # A mark inside of parametrize belongs to one set of parameters alone.
            if any(
                "pytest.mark.gpu" in mark
                for mark in marks
                if not mark.startswith("pytest.mark.parametrize")
            ):
                tests.add(f"{path.relative_to(ROOT).as_posix()}::{test.name}")
    return tests


def in_order(page: str) -> list[str]:
    """The tests of the page's table, in the order of its rows: what is worth its time most."""
    return [row["test"] for row in ROW.finditer(page)]


def summary(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """How many cases of each test passed, what failed, and what was measured."""
    by_test: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_test[outcome.test].append(outcome)
    return {test: _in_words(parts) for test, parts in by_test.items()}


def _in_words(outcomes: list[Outcome]) -> str:
    counts = Counter(
        f"{one.result} ({one.reason})" if one.reason else one.result for one in outcomes
    )
    words = [f"{count} {what}" for what, count in sorted(counts.items())]
    return "; ".join([", ".join(words), *(one.figures for one in outcomes if one.figures)]).replace(
        "|",
        "/",
    )


def written(page: str, results: Mapping[str, str], machine: Machine) -> str:
    """A page with results in the rows of its table; the other rows stay as they are."""

    def row(match: re.Match[str]) -> str:
        if match["test"] not in results:
            return match[0]
        cells = (match["risk"], f"`{match['test']}`", results[match["test"]], *machine)
        return f"| {' | '.join(cells)} |"

    return ROW.sub(row, page)
