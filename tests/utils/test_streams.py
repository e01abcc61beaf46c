"""A command whose stdout or stderr is closed, or whose reader has gone, ends as any other."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs the pipes of POSIX")

COMMAND = shlex.join([sys.executable, "-m", "ata_gym"])


def test_a_reader_that_has_gone_is_no_fault():
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(f"{COMMAND} --version", shell=True, stdout=writer, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    ended = subprocess.run(f"{COMMAND} --nothing >&-", shell=True, stderr=writer, check=False)
    assert ended.returncode == 2
    os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence():
    ended = subprocess.run(f"{COMMAND} methods >/dev/full", shell=True, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (2, b"ata-gym: [Errno 28] No space left on device\n")
