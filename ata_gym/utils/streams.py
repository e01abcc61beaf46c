"""Standard streams that are closed or have no reader any more; a command does its work to the end all the same."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


def outlive_readers() -> None:
    """Drop what is written to a closed stdout or stderr, or to a pipe that has no reader any more.

    A closed stream gets the null device, so that no file that is opened later takes its place. Other errors, such as a
    full disk, are raised.
    """
    while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest number that is free
        pass
    os.close(spare)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream: Any = getattr(sys, name)
        form: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "line_buffering": True}
        if stream is not None:
            stream.flush()
            form = {key: getattr(stream, key) for key in form}
        setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(_Pipe(number, "w", closefd=False)), **form))


class _Pipe(io.FileIO):
    """A stream that may lose its reader; any other error is raised once."""

    lost = False

    def write(self, content: Any) -> int:
        """Write, or do nothing if there is no reader."""
        if self.lost:
            return len(content)
        try:
            return super().write(content)
        except OSError as error:
            self.lost = True
            if not isinstance(error, BrokenPipeError):
                raise
            return len(content)
