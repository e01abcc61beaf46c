"""Task times measured on real machines, which ship with the package."""

from __future__ import annotations

from importlib import resources

import numpy as np

from ata_gym.pools.constructors import trace
from ata_gym.pools.pool import Pool

_PREFIX, _SUFFIX = "measured-", ".csv"


def measured(name: str = "cpu", end: str = "wrap") -> Pool:
    """Replay task by task, in seconds, what ``ata-gym measure`` recorded on a real machine.

    Parameters
    ----------
    name
        "cpu": gradients of the problem ``digits`` on a processor, computed once per task by worker 0, twice by worker
        1, ..., eight times by worker 7; 150 tasks each. How it was made: ``ata_gym/data/README.md``.
    end
        "wrap": start over at the end of a record. "truncate": end the episode before a round that the record
        cannot fill.

    Raises
    ------
    ValueError
        If there is no such recording, or ``end`` is another word.

    Examples
    --------
    >>> pool = measured("cpu")
    >>> pool.n, len(pool.record(0)), bool((np.diff(pool.mean()) > 0).all())
    (8, 150, True)
    """
    folder = resources.files("ata_gym") / "data"
    files = {file.name.removeprefix(_PREFIX).removesuffix(_SUFFIX): file for file in folder.iterdir()}
    names = sorted(name for name, file in files.items() if file.name.startswith(_PREFIX))
    if name not in names:
        raise ValueError(f"there is no recording {name!r}; there is {', '.join(names)}")
    with files[name].open(encoding="utf-8") as file:
        columns = np.loadtxt(file, delimiter=",", skiprows=1)
    worker, duration = columns[:, 0], columns[:, 2]
    return trace([duration[worker == i] for i in np.unique(worker)], replay="task", end=end)
