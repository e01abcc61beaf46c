"""A test without an end fails, leaves no process, and does not keep the others from being run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE, until, without_progress

CONFIG = Path(__file__).parents[1] / "pyproject.toml"
HANGING = """
import signal, subprocess, sys, time
from pathlib import Path

def test_that_waits():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"])
    Path("pid").write_text(str(child.pid))
    try:
        child.wait()
    finally:
        child.kill()
        child.wait()

def test_that_looks_for_no_signal():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(900)

def test_that_comes_after():
    Path("came").touch()
"""


@pytest.mark.skipif(os.name == "nt", reason="needs the signals of POSIX")
def test_a_test_without_an_end_is_ended_and_the_others_are_run(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "test_hanging.py").write_text(HANGING)
    limits = ["-o", "timeout=2", "-o", "faulthandler_timeout=4"]
    command = [sys.executable, "-m", "pytest", "-c", CONFIG, "-n", "1", "-p", "no:cacheprovider", *limits, tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "Failed: Timeout (>2.0s) from pytest-timeout" in done.stdout
    assert "crashed while running 'test_hanging.py::test_that_looks_for_no_signal'" in done.stdout
    assert (tmp_path / "came").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_wait_ends_where_the_process_does() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.exit('no luck')"], stderr=subprocess.PIPE, text=True
    )
    with pytest.raises(AssertionError, match=r"the result did not come; exit code 1: \(None, 'no luck\\n'\)"):
        until(lambda: False, process, about="the result")
    numbers = iter(range(3))
    assert until(lambda: next(numbers)) == 1


def test_lines_of_progress_are_left_out() -> None:
    line = "ata-gym: 40% done after 0.5 minutes (uta 4 of 10)\n"
    assert without_progress(f"{line}ata-gym: stopped\n{line}") == "ata-gym: stopped\n"
