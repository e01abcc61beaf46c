"""JSON from outside: plain data or an error of one sentence, and rules for the fields.

A rule is a function of a name and a value, as ``whole_number`` is: it raises ValueError, which
names the field.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ata_gym.utils.files.atomic import read_source
from ata_gym.utils.validation import as_float, short

Rule = Callable[[str, Any], object]

_MOST_LEVELS = 50
"""Levels of lists and objects at most; Python's own recursion ends at a thousand."""


def parse_object(content: str | bytes) -> dict[str, Any]:
    """Return the object that a JSON text holds.

    Args:
        content: The text, or its bytes.

    Raises:
        ValueError: If it holds none; the message gives the reason.

    Example:
        >>> parse_object("[" * 100_000)
        Traceback (most recent call last):
            ...
        ValueError: its lists and objects are nested too deeply
    """
    data = parse_data(content)
    if not isinstance(data, dict):
        raise ValueError(f"it holds no object, but {short(data)}")  # noqa: TRY004
    return data


def parse_list(content: str | bytes) -> list[Any]:
    """Return the list that a JSON text holds, with ValueError as for ``parse_object``."""
    data = parse_data(content)
    if not isinstance(data, list):
        raise ValueError(f"it holds no list, but {short(data)}")  # noqa: TRY004
    return data


def parse_data(content: str | bytes) -> Any:
    """Return the data that a JSON text holds, with ValueError as for ``parse_object``."""
    too_deep = "its lists and objects are nested too deeply"
    try:
        data = json.loads(content)
    except RecursionError:
        raise ValueError(too_deep) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no whole JSON: {error}") from error
    # The values of one level after the other, without recursion.
    level = [data]
    for _ in range(_MOST_LEVELS):
        level = [child for value in level for child in _inside(value)]
    if level:
        raise ValueError(too_deep)
    return data


def _inside(value: Any) -> Iterable[Any]:
    """The values inside an object or a list."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list):
        return value
    return ()


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Args:
        path: The file.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If it holds no object; the message names the file and gives the reason.
    """
    content = read_source(path)
    try:
        return parse_object(content)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as a JSON object: {error}") from error


def fields(
    rules: Mapping[str, Rule],
    may_lack: Collection[str] = (),
    other_fields: Rule | None = None,
) -> Rule:
    """The rule of an object with certain fields; other fields may follow.

    Args:
        rules: The rules of the fields, by name.
        may_lack: Fields that may be missing.
        other_fields: The rule of all other fields; without it they may hold any value.

    Example:
        >>> rule = fields({"policies": items(fields({"name": text}))})
        >>> rule("", {"policies": [{"name": "ata"}, {"name": 5}]})
        Traceback (most recent call last):
            ...
        ValueError: policies[1].name must be text, not 5
    """

    def check(name: str, value: Any) -> None:
        """Check an object."""
        if not isinstance(value, dict):
            subject = name or "it"
            raise ValueError(f"{subject} must be an object, not {short(value)}")  # noqa: TRY004
        for key in rules:
            if key not in value and key not in may_lack:
                raise ValueError(f"{_inner(name, key)} is missing")
        for key, item in value.items():
            text("the name of a field", key)
            if rule := rules.get(key, other_fields):
                rule(_inner(name, key), item)

    return check


def items(rule: Rule) -> Rule:
    """The rule of a list whose items keep a rule."""

    def check(name: str, value: Any) -> None:
        """Check a list."""
        if not isinstance(value, list):
            raise ValueError(f"{name} must be a list, not {short(value)}")  # noqa: TRY004
        for index, item in enumerate(value):
            rule(f"{name}[{index}]", item)

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
    if not isinstance(value, str) or not is_unicode(value):
        raise ValueError(f"{name} must be text, not {short(value)}")


def inner_path(name: str, value: Any) -> None:
    """The rule of a relative path, with /, that does not leave its folder."""
    text(name, value)
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name} must be a path inside the folder, not {short(value)}")


def is_unicode(value: str) -> bool:
    """Return whether a text holds whole characters: JSON may hold half of one."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _inner(name: str, key: str) -> str:
    """The name of a field inside an object of a name."""
    if name:
        return f"{name}.{key}"
    return key
