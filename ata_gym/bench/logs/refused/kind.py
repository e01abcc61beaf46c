"""What a kind of file is that holds no times by rank and step."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

RECORD_TRACES = "record a trace of each rank with torch.profiler"
RECORD_ROWS = (
    "write a row with rank, step and seconds from each rank in each step, before it waits for"
    " others"
)


class Refused(NamedTuple):
    """A kind of file that is recognised, and cannot answer."""

    name: str
    """What people call it."""
    reason: str
    """Why it cannot answer, as the rest of a sentence that begins with the name."""
    cure: str
    """What to record or to do instead, as an order."""
    recognises: Callable[[Path], bool]
    """Whether a file is of this kind; it reads little, and raises nothing."""
