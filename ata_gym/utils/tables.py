"""Reading tables of users with polars; an error is one sentence, without the advice of polars."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile

from ata_gym.utils.extras import require

_ADVICE = re.compile(r"\s*(Consider |You might want |Hint: |\n).*", re.DOTALL)
"""The advice of polars to programmers, who can give it options."""


@contextmanager
def reading(what: str, more: str = "") -> Iterator[None]:
    """Turn an error of polars, or of the file system, into a ValueError: ``what``, the reason, and ``more``.

    Some damage makes polars panic, and write a backtrace to stderr, which is dropped.
    """
    pl = require("polars", extra="bench", purpose="Reading a table")
    try:
        with _backtraces_held():
            yield
    except pl.exceptions.PanicException as error:
        text = str(error)
        raise ValueError(f"{what}: {'it is damaged' if '::' in text else text}{more}") from error  # no names of Rust
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = _ADVICE.sub("", str(error))
        if "found more fields than defined" in reason:
            reason = "a line has more fields than the line of column names"
        raise ValueError(f"{what}: {reason}{more}") from error


@contextmanager
def _backtraces_held() -> Iterator[None]:
    """Hold back what the block writes to stderr, and write it afterwards unless it is that of a panic."""
    try:
        stderr = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    with TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            if b"panicked at" not in (written := held.read()):
                os.write(2, written)
