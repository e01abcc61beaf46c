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
    """The outcome of a test with one set of parameters, or of a part of it."""

    test: str
    """The file and the name of the test, without parameters."""
    result: str
    """``passed``, ``failed``, ``skipped`` or ``did not end``."""
    reason: str = ""
    """Why it was skipped, or the last line of its error."""
    figures: str = ""
    """The figures that it measured."""


class Machine(NamedTuple):
    """What the tests ran on."""

    device: str
    driver: str
    torch: str
    date: str


def marked_tests() -> set[str]:
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


def ordered_tests(page: str) -> list[str]:
    """The tests of the page's table, in the order of its rows: the most useful test first."""
    return [row["test"] for row in ROW.finditer(page)]


def summary(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """The number of cases of each test that passed or failed, and the figures measured."""
    by_test: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_test[outcome.test].append(outcome)
    return {test: _outcome_text(test_outcomes) for test, test_outcomes in by_test.items()}


def _outcome_text(outcomes: list[Outcome]) -> str:
    counts = Counter(
        f"{outcome.result} ({outcome.reason})" if outcome.reason else outcome.result
        for outcome in outcomes
    )
    cases = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    figures = [outcome.figures for outcome in outcomes if outcome.figures]
    return "; ".join([cases, *figures]).replace("|", "/")


def with_results(page: str, results: Mapping[str, str], machine: Machine) -> str:
    """A page with results in the rows of its table; the other rows stay as they are."""

    def row(match: re.Match[str]) -> str:
        if match["test"] not in results:
            return match[0]
        cells = (match["risk"], f"`{match['test']}`", results[match["test"]], *machine)
        return f"| {' | '.join(cells)} |"

    return ROW.sub(row, page)
