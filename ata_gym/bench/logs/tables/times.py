"""Entries of a table as numbers: durations in seconds where their unit is known, and steps."""

import numpy as np
import polars as pl

from ata_gym.pools.traces import durations
from ata_gym.typing import Floats


def seconds_of(column: pl.Series) -> tuple[Floats, str]:
    """Return the durations of a column, (rows,), and their unit.

    The unit is "s" where the name of the column, its type or its entries say what it is, and then
    the durations are seconds; else it is empty, and they are as in the file.

    Args:
        column: The column, under its name in the file.

    Raises:
        ValueError: For an entry that is no duration.
    """
    return np.asarray(durations(pl.DataFrame({"duration": column}))), ""
