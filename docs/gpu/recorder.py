"""A plugin of pytest that writes a line of JSON when a test begins, and one when it has ended.

Lines are written at once, so that they are kept when the process is ended by force.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FILE = "ATA_GYM_GPU_LINES"
"""The variable of the environment that names the file."""


def _write(**line: str) -> None:
    with Path(os.environ[FILE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins."""
    _write(started=nodeid)


def pytest_runtest_logreport(report: Any) -> None:
    """A phase of a test has ended: its call, or a set-up or an end that is not passed."""
    if report.when != "call" and report.outcome == "passed":
        return
    reason = ""
    if report.outcome == "skipped":
        reason = str(report.longrepr[2]).removeprefix("Skipped: ").partition(", and")[0]
    elif report.outcome == "failed":
        lines = str(report.longreprtext).strip().splitlines()
        errors = [line for line in lines if line.startswith("E ")]
        reason = (errors or lines or [""])[0].removeprefix("E").strip()[:200]
    figures = ", ".join(f"{name} {value}" for name, value in report.user_properties)
    _write(ended=report.nodeid, result=report.outcome, reason=reason, figures=figures)
