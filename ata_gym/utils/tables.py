"""Reading tables of users with polars; an error is one sentence, without the advice of polars."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ata_gym.utils.extras import require

_ADVICE = re.compile(r"\s*(Consider |You might want |Hint: |\n).*", re.DOTALL)
"""The advice of polars to programmers, who can give it options."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn an error of polars, or of the file system, into a ValueError: ``what``, and the reason."""
    pl = require("polars", extra="bench", purpose="Reading a table")
    try:
        yield
    except pl.exceptions.PanicException as error:
        text = str(error)
        raise ValueError(f"{what}: {'it is damaged' if '::' in text else text}") from error  # no names of Rust
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = _ADVICE.sub("", str(error))
        if "found more fields than defined" in reason:
            reason = "a line has more fields than the line of column names"
        raise ValueError(f"{what}: {reason}") from error
