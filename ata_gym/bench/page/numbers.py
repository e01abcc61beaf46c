"""Numbers of a page, short, and as JSON that can stand in a script element."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

DIGITS = 5  # significant digits of the numbers in pictures

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def compact(value: Any) -> Any:
    """Plain data with ``DIGITS`` significant digits; None for numbers that are not finite.

    >>> compact({"mean": np.array([1.2345678, np.nan]), "round": 123456789})
    {'mean': [1.2346, None], 'round': 123456789}
    """
    if isinstance(value, np.ndarray | np.generic):
        return compact(value.tolist())
    if isinstance(value, Mapping):
        return {name: compact(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [compact(one) for one in value]
    if isinstance(value, float):
        short = float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
        return int(short) if short is not None and short.is_integer() and abs(short) < 1e15 else short
    return value


def script_json(value: Any) -> str:
    r"""JSON that ends no script element and starts no comment, whatever the texts in it hold.

    >>> script_json("</script>")
    '"\\u003c/script\\u003e"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # all that is not ASCII is escaped
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text
