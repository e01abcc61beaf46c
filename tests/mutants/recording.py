"""Which tests run which lines, and how long each takes: recorded once by a run of all tests."""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from coverage import CoverageData

from tests.mutants.places import SOURCES, Place

DURATIONS, COVERAGE = "durations.json", "coverage.db"
SAVED_AT = "ATA_GYM_MUTANTS"
"""The environment variable that names the folder of the recording."""


class Recorder:
    """A plugin of pytest that notes the seconds of each test that passes."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the setup, the call and the teardown of a test."""
        self._seconds[report.nodeid] += report.duration
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file, in the process that gets all reports."""
        if not hasattr(session.config, "workerinput"):
            kept = {test: seconds for test, seconds in self._seconds.items() if test not in self._failed}
            Path(os.environ[SAVED_AT], DURATIONS).write_text(json.dumps(kept), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Add the plugin to a run with ``-p tests.mutants.recording``."""
    config.pluginmanager.register(Recorder())


class Recording:
    """What a run of all tests in the checkout ``root`` left in ``folder``."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._seconds: dict[str, float] = json.loads((folder / DURATIONS).read_text(encoding="utf-8"))
        self._data = CoverageData(str(folder / COVERAGE))
        self._data.read()

    def tests_of(self, place: Place, seconds: float) -> list[str]:
        """Tests that could see a mutant, no more than take so many seconds: its own ones first, then the quickest.

        A line that is run when its file is imported, or by machine code, is seen by the tests that run functions of its
        file; where there are none, by those of the files that import it.
        """
        own, stem = _mirrored(place), Path(place.file).stem
        tests = {test for line in self._lines(place) for test in self._contexts(place.file).get(line, ())}
        files = {place.file}
        while not tests and files:
            tests = {test for file in files for line in self._contexts(file).values() for test in line}
            files = {other for other in self._imports() if not files.isdisjoint(self._imports()[other])} - files
        tests |= {test for test in self._seconds if test.startswith(f"{own}/test_{stem}") or place.file in test}

        def order(test: str) -> tuple[bool, float]:
            return not test.startswith((own, place.file)), self._seconds[test]

        chosen: list[str] = []
        total = 0.0
        for test in sorted(tests & self._seconds.keys(), key=order):
            total += self._seconds[test]
            if total > seconds and chosen:
                break
            chosen.append(test)
        return chosen

    @cache  # noqa: B019 - one recording is made
    def _contexts(self, file: str) -> dict[int, set[str]]:
        """The tests that ran each line of a file."""
        lines = self._data.contexts_by_lineno(str(self._root / file))
        return {line: {one.rpartition("|")[0] for one in tests if one} for line, tests in lines.items()}

    def _lines(self, place: Place) -> range:
        """The lines of the innermost statement that holds a place, up to the place."""
        first = place.line
        for node in ast.walk(_tree(self._root / place.file)):
            if isinstance(node, ast.stmt) and node.lineno <= place.line <= (node.end_lineno or 0):
                first = node.lineno
        return range(first, place.line + 1)

    @cache  # noqa: B019
    def _imports(self) -> dict[str, set[str]]:
        """The files that each file imports."""
        modules = {}
        for folder in SOURCES:
            for path in (self._root / folder).rglob("*.py"):
                parts = path.relative_to((self._root / folder).parent).with_suffix("").parts
                modules[".".join(part for part in parts if part != "__init__")] = path.relative_to(
                    self._root
                ).as_posix()
        found: dict[str, set[str]] = {}
        for file in modules.values():
            nodes = [node for node in ast.walk(_tree(self._root / file)) if isinstance(node, ast.ImportFrom)]
            names = {
                name for node in nodes for one in node.names for name in (node.module, f"{node.module}.{one.name}")
            }
            found[file] = {modules[name] for name in names if name in modules}
        return found


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _mirrored(place: Place) -> str:
    """The folder of the tests of a file."""
    folder = Path(place.file).parent
    return (
        ("tests" / folder.relative_to("ata_gym" if folder.parts[0] == "ata_gym" else "."))
        .as_posix()
        .replace("policies/ata_policies", "policies")
    )
