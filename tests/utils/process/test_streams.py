"""A command whose stdout or stderr is closed, or whose reader has gone, ends as any other."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ata_gym.utils.process.signals import ignore_closed_output

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs the pipes of POSIX")


def ended(prepare: Callable[[], object]) -> int:
    """The exit code of a child process that prints and then opens a file, whose number is the
    code.
    """
    child = os.fork()
    if child == 0:
        prepare()
        sys.stdout = None
        ignore_closed_output()
        for _ in range(2):
            print("a line", flush=True)
        os._exit(os.open(os.devnull, os.O_RDONLY))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_reader_that_has_gone_or_a_closed_stream_is_no_fault() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for prepare in (lambda: os.dup2(writer, 1), lambda: os.close(1), lambda: os.closerange(1, 3)):
        assert ended(prepare) > 2
    os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", ["ata_gym scenarios", "ata_gym --version"])
def test_a_full_disk_is_one_sentence(arguments: str) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", *arguments.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"(ata-gym|doctor): \[Errno 28\] No space left on device\n", done.stderr)


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict"])
def test_what_an_encoding_does_not_have_is_written_with_backslashes(encoding: str) -> None:
    code = (
        "from ata_gym.utils.process.signals import ignore_closed_output; ignore_closed_output();"
        " print('\\udcff \u00b1')"
    )
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env=environment,
    )
    assert done.stdout in (b"\\udcff \xc2\xb1\n", b"\\udcff \\xb1\n")
