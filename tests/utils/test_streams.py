"""A command whose stdout or stderr is closed, or whose reader has gone, ends as any other."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs the pipes of POSIX")

COMMAND = [sys.executable, "-m", "ata_gym", "methods"]


def test_a_closed_stdout_is_no_fault(tmp_path):
    shell = f"{shlex.join(COMMAND)} >&- 2>{shlex.quote(str(tmp_path / 'errors'))}"
    assert subprocess.run(["sh", "-c", shell], check=False).returncode == 0
    assert (tmp_path / "errors").read_text() == ""


@pytest.mark.parametrize("gone", ["stdout", "stderr"])
def test_a_reader_that_has_gone_is_no_fault(gone):
    """The unread stream is a pipe without a reader; the other one is read."""
    reader, writer = os.pipe()
    os.close(reader)
    other = "stderr" if gone == "stdout" else "stdout"
    command = COMMAND if gone == "stdout" else [*COMMAND[:-1], "report", "nowhere"]
    ended = subprocess.run(command, **{gone: writer, other: subprocess.PIPE}, text=True, check=False)
    os.close(writer)
    assert ended.returncode == (0 if gone == "stdout" else 2)
    assert getattr(ended, other) == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence(tmp_path):
    shell = f"{shlex.join(COMMAND)} >/dev/full 2>{shlex.quote(str(tmp_path / 'errors'))}"
    assert subprocess.run(["sh", "-c", shell], check=False).returncode == 2
    assert (tmp_path / "errors").read_text() == "ata-gym: [Errno 28] No space left on device\n"
