"""Which tests run which lines, and how long each takes: recorded once by a run of all tests.

As a plugin of pytest (``-p tests.mutants.recording``) this file notes the seconds of each test that
passes.
"""

import ast
import json
import os
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from coverage import CoverageData

from tests.mutants.places import Place

DURATIONS = "durations.json"
COVERAGE = "coverage.db"
SAVED_AT = "ATA_GYM_MUTANTS"
"""The environment variable that names the folder of the recording."""

_seconds: dict[str, float] = defaultdict(float)
_failed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        kept = {test: seconds for test, seconds in _seconds.items() if test not in _failed}
        Path(os.environ[SAVED_AT], DURATIONS).write_text(json.dumps(kept), encoding="utf-8")


class Recording:
    """What a run of all tests in the checkout ``root`` left in ``folder``."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._seconds: dict[str, float] = json.loads(
            (folder / DURATIONS).read_text(encoding="utf-8"),
        )
        self._data = CoverageData(str(folder / COVERAGE))
        self._data.read()

    def tests_of(self, place: Place, seconds: float) -> list[str]:
        """Tests that could see a mutant, no more than take so many seconds: its own ones first,
        then the quickest.

        A line that is run when its file is imported, or by machine code, is seen by the tests that
        run functions of its file or of its folder.
        """
        ran = self._contexts(place.file)
        tests = {test for line in self._lines(place) for test in ran.get(line, ())}
        if not tests:
            tests = {test for line in ran.values() for test in line}
            tests |= {test for test in self._seconds if test.startswith(f"{place.tests}/")}
        own = f"{place.tests}/test_{Path(place.file).stem}"
        tests |= {test for test in self._seconds if test.startswith(own) or place.file in test}

        def order(test: str) -> tuple[bool, float]:
            return not test.startswith((place.tests, place.file)), self._seconds[test]

        chosen = []
        total = 0.0
        for test in sorted(tests & self._seconds.keys(), key=order):
            total += self._seconds[test]
            if total > seconds and chosen:
                break
            chosen.append(test)
        return chosen

    @cache  # noqa: B019 - one recording is made
    def _contexts(self, file: str) -> dict[int, set[str]]:
        lines = self._data.contexts_by_lineno(str(self._root / file))
        return {
            line: {one.rpartition("|")[0] for one in tests if one} for line, tests in lines.items()
        }

    def _lines(self, place: Place) -> range:
        tree = ast.parse((self._root / place.file).read_text(encoding="utf-8"))
        statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
        starts = [
            one.lineno for one in statements if one.lineno <= place.line <= (one.end_lineno or 0)
        ]
        return range(max(starts, default=place.line), place.line + 1)
