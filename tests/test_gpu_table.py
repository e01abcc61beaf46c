from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.gpu_table import NEEDS, table


def report(name: str, *, marked: bool = True, figures: tuple[tuple[str, object], ...] = (), skip: str = "") -> Any:
    return SimpleNamespace(
        nodeid=f"tests/test_x.py::{name}",
        keywords={name: 1, "gpu": 1},  # as of a test with a parameter of that name
        user_properties=[*([(NEEDS, True)] if marked else []), *figures],
        longrepr=("test_x.py", 1, f"Skipped: {skip}"),
    )


def test_figures_and_reasons_stand_beside_the_tests() -> None:
    ended = {
        "passed": [report("test_b", figures=(("step (ms)", 0.2), ("graphs", "3.00 times eager"))), report("test_c")],
        "skipped": [report("test_a", skip="needs 2 CUDA devices, and torch 2 sees 1"), report("other", marked=False)],
        "warnings": [SimpleNamespace()],
    }
    lines = [line for line in table(ended, asked=False) if " is " not in line]
    assert lines == [
        "skipped test_a  needs 2 CUDA devices, and torch 2 sees 1",
        "passed  test_b  step (ms): 0.2, graphs: 3.00 times eager",
        "passed  test_c",
        "2 passed, 1 skipped",
    ]


def test_there_is_no_table_of_skipped_tests_that_nobody_asked_for() -> None:
    ended = {"skipped": [report("test_a", skip="needs a CUDA device")]}
    assert not list(table(ended, asked=False))
    assert list(table(ended, asked=True))[-2:] == ["skipped test_a  needs a CUDA device", "1 skipped"]
    assert not list(table({"passed": [report("other", marked=False)]}, asked=True))
