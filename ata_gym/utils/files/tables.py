"""Reading tables of users with polars, with errors of one sentence, without polars' advice."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ata_gym.utils.extras import require

_ADVICE = re.compile(r"\s*(Consider |You might want |Hint: |\n).*", re.DOTALL)
"""The advice of polars to programmers, who can give it options."""
_PLAIN = {
    "found more fields than defined": "a line has more fields than the line of column names",
    "as dtype `str`": "a quote in it has no end",
    "CSV malformed": "a quote in it has no end",
    "empty CSV": "it is empty",
    "failed to determine supertype": "the entries of a column are of several kinds",
    "could not append value": "the entries of a column are of several kinds",
}
"""What users read in place of what polars says, by a part of that."""


@contextmanager
def reading(subject: str) -> Iterator[None]:
    """Turn an error of polars, or of the file system, into a ValueError.

    Args:
        subject: The first words of the message; the reason follows.

    Raises:
        ValueError: In place of the error.
    """
    pl = require("polars", extra="bench", purpose="Reading a table")
    try:
        yield
    except pl.exceptions.PanicException as error:
        reason = str(error)
        # A message with names of Rust helps no user.
        if "::" in reason:
            reason = "it is damaged"
        raise ValueError(f"{subject}: {reason}") from error
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = next(
            (plain for part, plain in _PLAIN.items() if part in str(error)),
            _ADVICE.sub("", str(error)),
        )
        raise ValueError(f"{subject}: {reason}") from error
