"""What tests marked ``gpu`` need and may do, and the table of how they ended."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

INDUCTOR = (
    "ignore::DeprecationWarning:torch",  # of Python's own modules that torch.compile still uses
    "ignore:TensorFloat32 tensor cores:UserWarning",  # a hint that less exact products are faster
    "ignore:.*libdevice:UserWarning",  # Triton's own is used where there is no CUDA toolkit
)
"""What torch.compile may warn of; any other warning fails the test."""


def warnings_of_inductor(test: Any) -> Any:
    """Let a test use torch.compile, although warnings are errors."""
    for allowed in INDUCTOR:
        test = pytest.mark.filterwarnings(allowed)(test)
    return test


NEEDS = "gpu"
"""The property of a test that has the marker; a report's keywords hold names of parameters, too."""


def lacking(marker: pytest.Mark) -> str | None:
    """Why a test marked ``gpu``, or ``gpu(2)`` for two devices, cannot run here; None where it can."""
    torch = pytest.importorskip("torch")
    there, needed = torch.cuda.device_count(), marker.args[0] if marker.args else 1
    devices = "a CUDA device" if needed == 1 else f"{needed} CUDA devices"
    return f"needs {devices}, and torch {torch.__version__} sees {there}" if there < needed else None


def table(ended: dict[str, list[Any]], asked: bool) -> Iterator[str]:
    """A line for each device and each test marked ``gpu``: outcome, name, and its figures or why it was skipped.

    ``ended`` has pytest's reports by outcome. There is none where all were skipped, unless they were ``asked`` for.
    """
    rows = [
        (report.nodeid.partition("::")[2], outcome, _said(outcome, report))
        for outcome in ("passed", "failed", "error", "skipped")
        for report in ended.get(outcome, ())
        if NEEDS in dict(getattr(report, "user_properties", ()))
    ]
    counts = {outcome: sum(row[1] == outcome for row in rows) for _, outcome, _ in rows}
    if not rows or (counts.keys() == {"skipped"} and not asked):
        return
    torch = sys.modules.get("torch")
    for index in range(torch.cuda.device_count() if torch else 0):
        yield f"cuda:{index} is {torch.cuda.get_device_name(index)}, torch {torch.__version__}"
    width = max(len(name) for name, *_ in rows)
    for name, outcome, said in sorted(rows):
        yield f"{outcome:8}{name:{width}}  {said}".rstrip()
    yield ", ".join(f"{count} {outcome}" for outcome, count in counts.items())


def _said(outcome: str, report: Any) -> str:
    if outcome == "skipped":
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return ", ".join(f"{name}: {value}" for name, value in report.user_properties if name != NEEDS)
