"""The memory and the processors of the machine."""

import math
import os


def installed_memory() -> float:
    """The memory of the machine in bytes; infinite if the system does not tell it."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    # Not every system has these settings.
    except (AttributeError, ValueError, OSError):
        return math.inf


def processors() -> int:
    """The number of processors that this process may use."""
    # Not every system has this function.
    affinity = getattr(os, "sched_getaffinity", None)
    if affinity:
        return len(affinity(0))
    return os.cpu_count() or 1
