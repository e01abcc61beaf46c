"""How long tests wait for what happens sooner or later: for a state, never for a length of time."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 600.0
"""Seconds after which what a test waits for counts as never coming: far more than it takes beside
eight busy processes.

The limit of a whole test, in pyproject.toml, is longer, so that a wait says what it waited for.
"""


def until(found: Callable[[], T], process: Any = None, about: str = "it") -> T:
    """What ``found`` returns, once it is true; where a ``process`` is given (Popen), it must not
    end before.

    ``about`` says in an error what was waited for.
    """
    end = time.monotonic() + PATIENCE
    while True:
        ended = process is not None and process.poll() is not None
        if result := found():
            return result
        assert not ended, (
            f"{about} did not come; exit code {process.returncode}: {process.communicate()}"
        )
        assert time.monotonic() < end, f"{about} did not come in {PATIENCE:g} s"
        time.sleep(0.01)


def without_progress(stderr: str) -> str:
    """What a command wrote to stderr, without the lines of progress that it writes every 30
    seconds.
    """
    return "".join(line for line in stderr.splitlines(keepends=True) if "% done after" not in line)
