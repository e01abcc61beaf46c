"""The command that runs the tests of this folder, and the table that it fills."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from docs.gpu import __main__ as command
from docs.gpu.page import (
    PAGE,
    ROOT,
    ROW,
    Machine,
    Outcome,
    marked_tests,
    ordered_tests,
    summary,
    with_results,
)
from tests.waiting import until

EXTRAS = (
    "polars",
    "ray",
    "stable_baselines3",
    "sb3_contrib",
    "typer",
    "rich",
    "matplotlib",
    "jinja2",
    "filelock",
)
EXTRAS += ("accelerate", "lightning", "transformers", "tensorboard", "pygame", "yaml", "selenium")


@pytest.fixture
def without_extras(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which no extra but torch can be imported."""
    for name in EXTRAS:
        (tmp_path / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('no {name} here', name='{name}')",
        )
    search = [str(tmp_path), str(ROOT), str(ROOT / "policies"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(search), "CUDA_VISIBLE_DEVICES": ""}


def test_the_table_has_a_row_for_each_marked_test() -> None:
    assert sorted(ordered_tests(PAGE.read_text(encoding="utf-8"))) == sorted(marked_tests())


def test_a_row_takes_what_came_of_all_parameters_and_on_which_machine() -> None:
    test = "tests/a.py::test_b"
    other = "tests/a.py::test_c"
    outcomes = [
        Outcome(test, "passed", figures="eager 2 ms"),
        Outcome(test, "failed", "assert 1 | 2"),
        Outcome(test, "passed"),
        Outcome(other, "skipped", "needs CUDA devices: 2"),
        Outcome(other, "ended its process"),
    ]
    results = summary(outcomes)
    assert results == {
        test: "1 failed (assert 1 / 2), 2 passed; eager 2 ms",
        other: "1 ended its process, 1 skipped (needs CUDA devices: 2)",
    }
    page = (
        "| one | `tests/a.py::test_b` | - | - | - | - | - |\n| two | `tests/a.py::test_d` | as it"
        " was |"
    )
    new = with_results(page, results, Machine("1 x GPU", "580", "2.13", "2026-01-01"))
    assert new.splitlines() == [
        f"| one | `{test}` | {results[test]} | 1 x GPU | 580 | 2.13 | 2026-01-01 |",
        "| two | `tests/a.py::test_d` | as it was |",
    ]
    assert ordered_tests(new) == [test, "tests/a.py::test_d"]


def test_without_a_gpu_and_without_extras_each_test_lacks_only_the_gpu(
    without_extras,
    tmp_path,
) -> None:
    pytest.importorskip("torch")
    before = PAGE.read_bytes()
    log = tmp_path / "log"
    call = [sys.executable, "-m", "docs.gpu", "--log", str(log)]
    done = subprocess.run(
        call,
        cwd=ROOT,
        env=without_extras,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + log.read_text()
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows] == [
        f"| `{match['test']}`" for match in ROW.finditer(before.decode())
    ]
    for _, outcome in rows:
        assert set(outcome.removesuffix(" |").split(", ")) <= {
            f"{count} skipped (needs CUDA devices: {devices})"
            for count in range(20)
            for devices in (1, 2)
        }
    assert PAGE.read_bytes() == before


def test_what_dies_or_does_not_end_is_a_row_and_what_comes_after_it_runs(
    tmp_path,
    monkeypatch,
    capsys,
) -> None:
    (tmp_path / "test_some.py").write_text(
        "import os, threading\n"
        "def test_first(record_property): record_property('speed', 3)\n"
        "def test_dies(): os._exit(3)\n"
        "def test_fails(): assert 1 == 2, 'no'\n"
        "def test_hangs(): threading.Event().wait()\n"
        "def test_last(): pass\n"
        "def test_late(): pass\n",
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "_LONGEST_TEST", 1.0)
    names = ("first", "dies", "fails", "hangs", "last")
    report = command.Report(Machine("-", "-", "-", "-"), has_gpu=False)
    not_reached = command.run(
        [f"test_some.py::test_{name}" for name in names],
        report,
        tmp_path / "log",
        end=float("inf"),
    )
    report.print_rows()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    texts = [row.removesuffix(" |").partition("` | ")[2] for row in rows]
    assert texts[:3] == [
        "1 passed; speed 3",
        "1 ended its process",
        "1 failed (AssertionError: no)",
    ]
    assert texts[3].startswith("1 did not end in ")
    assert (texts[4:], not_reached, report.failed) == (["1 passed"], [], True)
    assert command.run(["test_some.py::test_late"], report, tmp_path / "log", end=0.0) == [
        "test_some.py::test_late",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
def test_a_run_that_is_cut_off_has_printed_its_table(without_extras, tmp_path) -> None:
    pytest.importorskip("torch")
    log = tmp_path / "log"
    call = [sys.executable, "-u", "-m", "docs.gpu", "--log", str(log)]
    told = tmp_path / "told"
    with told.open("w") as output:
        process = subprocess.Popen(
            call,
            cwd=ROOT,
            env=without_extras,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        until(lambda: "| test | outcome |" in told.read_text(), process, "the head of the table")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 1
    assert told.read_text().endswith("cut off\n")
