"""The rule for real hyperparameters; whole ones have ``ata_gym.checks.whole_number``."""

from __future__ import annotations

import math
import numbers


def real(name: str, value: object, above: float = 0.0, up_to: float = math.inf) -> float:
    """Return ``value`` as a float, or raise ValueError unless it is finite, above ``above`` and at most ``up_to``.

    >>> real("shape", 4)
    4.0
    >>> real("shape", 0.0)
    Traceback (most recent call last):
        ...
    ValueError: shape must be a finite number above 0, not 0.0
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
        number = float(value)
        if above < number <= up_to:
            return number
    limit = "" if up_to == math.inf else f" and at most {up_to:g}"
    raise ValueError(f"{name} must be a finite number above {above:g}{limit}, not {value!r}")
