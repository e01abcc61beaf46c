"""JSON from outside: a text becomes plain data or one sentence, and rules say what its fields may hold.

A rule is a function of a name and a value, as ``whole_number`` is: it raises ValueError, which names the field.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ata_gym.utils.atomic import read_source
from ata_gym.utils.validation import as_float, short

Rule = Callable[[str, Any], object]

_DEEPEST = 50
"""Lists and objects in each other; Python's own recursion, as that of ``repr``, ends at a thousand."""


def parse_object(content: str | bytes) -> dict[str, Any]:
    """The object that a JSON text holds; ValueError, which says what is wrong with it, if it holds none.

    >>> parse_object("[" * 100_000)
    Traceback (most recent call last):
        ...
    ValueError: its lists and objects are nested too deeply
    """
    found = _parsed(content)
    if not isinstance(found, dict):
        raise ValueError(f"it holds no object, but {short(found)}")  # noqa: TRY004
    return found


def parse_list(content: str | bytes) -> list[Any]:
    """The list that a JSON text holds; ValueError as of ``parse_object``."""
    found = _parsed(content)
    if not isinstance(found, list):
        raise ValueError(f"it holds no list, but {short(found)}")  # noqa: TRY004
    return found


def _parsed(content: str | bytes) -> Any:
    too_deep = "its lists and objects are nested too deeply"
    try:
        found = json.loads(content)
    except RecursionError:
        raise ValueError(too_deep) from None
    level = [found]
    for _ in range(_DEEPEST):
        level = [child for one in level for child in _inside(one)]
    if level:
        raise ValueError(too_deep)
    return found


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; FileNotFoundError, or ValueError that names the file and says what is wrong."""
    content = read_source(path)
    try:
        return parse_object(content)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as a JSON object: {error}") from error


def fields(rules: Mapping[str, Rule], may_lack: Collection[str] = (), others: Rule | None = None) -> Rule:
    """The rule of an object with these fields; others may follow, which keep the rule for ``others`` if it is given.

    >>> fields({"policies": items(fields({"name": text}))})("", {"policies": [{"name": "ata"}, {"name": 5}]})
    Traceback (most recent call last):
        ...
    ValueError: policies[1].name must be text, not 5
    """

    def check(name: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{name or 'it'} must be an object, not {short(value)}")  # noqa: TRY004
        for key in rules:
            if key not in value and key not in may_lack:
                raise ValueError(f"{_inner(name, key)} is missing")
        for key, one in value.items():
            text("the name of a field", key)
            if rule := rules.get(key, others):
                rule(_inner(name, key), one)

    return check


def items(rule: Rule) -> Rule:
    """The rule of a list whose items keep a rule."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, list):
            raise ValueError(f"{name} must be a list, not {short(value)}")  # noqa: TRY004
        for place, one in enumerate(value):
            rule(f"{name}[{place}]", one)

    return check


def nullable(rule: Rule) -> Rule:
    """The rule of a value that may be null."""
    return lambda name, value: None if value is None else rule(name, value)


def number(name: str, value: Any) -> None:
    """The rule of a finite number."""
    if not math.isfinite(as_float(value)):
        raise ValueError(f"{name} must be a finite number, not {short(value)}")


def text(name: str, value: Any) -> None:
    """The rule of a text that every file and terminal can hold."""
    if not isinstance(value, str) or not _is_unicode(value):
        raise ValueError(f"{name} must be text, not {short(value)}")


def inner_path(name: str, value: Any) -> None:
    """The rule of a path, with /, that leads no way out of the folder to which it is relative."""
    text(name, value)
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name} must be a path inside the folder, not {short(value)}")


def _is_unicode(value: str) -> bool:  # JSON may hold half of a character
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _inner(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key
