"""Tables of a user's own, read with polars; what is wrong with one is a sentence, without polars' own advice."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile

from ata_gym.utils.extras import require

_ADVICE = re.compile(r"\s*(Consider |You might want |Hint: |\n).*", re.DOTALL)
"""What polars advises a programmer, who can give it options."""

_PLAIN = {"found more fields than defined": "a line has more fields than the line of column names"}
"""Our words for what polars says."""


@contextmanager
def reading(what: str, more: str = "") -> Iterator[None]:
    r"""Turn an error of polars, or of the file system, into a ValueError of one sentence: ``what``, why, and ``more``.

    Some damage makes polars panic, which writes a backtrace to stderr: it is held back.

    >>> pl = require("polars", extra="bench")
    >>> with reading("the file cannot be read"):
    ...     pl.read_csv(b"a,b\n1,2,3")
    Traceback (most recent call last):
        ...
    ValueError: the file cannot be read: a line has more fields than the line of column names
    """
    pl = require("polars", extra="bench", purpose="Reading a table")
    try:
        with _backtraces_held():
            yield
    except pl.exceptions.PanicException as error:
        said = str(error)
        raise ValueError(f"{what}: {'it is damaged' if '::' in said else said}{more}") from error  # no words of Rust's
    except (pl.exceptions.PolarsError, OSError) as error:
        said = str(error)
        reason = next((ours for theirs, ours in _PLAIN.items() if theirs in said), _ADVICE.sub("", said))
        raise ValueError(f"{what}: {reason}{more}") from error


@contextmanager
def _backtraces_held() -> Iterator[None]:
    """Keep what is written to stderr by the block, and write it afterwards unless it is a panic's."""
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
            if b"panicked at" not in (said := held.read()):
                os.write(2, said)
