"""JSON documents in which one field has another type, or is missing."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

VALUES = (None, True, 7, -1, 1.5, float("inf"), 10**30, "x", "\ud800", [1], {})
"""Values of every type of JSON, and some that are out of range."""

_MISSING = object()


class Mutation(NamedTuple):
    field: str
    """As errors name it, such as policies[0].name."""
    value: Any
    document: dict[str, Any]


def mutations(document: dict[str, Any]) -> Iterator[Mutation]:
    """The document with each field, and each item of a list, in turn of every other type, out of
    range or missing.

    Of the items of a list only the first and the last are changed.
    """
    for path in _paths(document):
        for value in (*VALUES, _MISSING):
            changed = copy.deepcopy(document)
            home: Any = changed
            for part in path[:-1]:
                home = home[part]
            before = home[path[-1]]
            if value is _MISSING:
                if isinstance(home, list):
                    continue
                del home[path[-1]]
            elif type(value) is type(before) and value not in (-1, "\ud800", float("inf"), 10**30):
                continue
            else:
                home[path[-1]] = value
            yield Mutation(_name(path), "missing" if value is _MISSING else value, changed)


def _shortened(note: Any) -> Any:
    """A note with two entries for each object whose entries are of one kind."""
    if isinstance(note, list):
        return [_shortened(one) for one in note]
    if not isinstance(note, dict):
        return note
    short = {
        name: dict(list(one.items())[:2]) if name in ("facts", "code") else one
        for name, one in note.items()
    }
    return {name: _shortened(one) for name, one in short.items()}


def refused_by_field(path: Path, read: Callable[[], object]) -> set[str]:
    """Whatever has another type is refused; the fields of which some other document is as good."""
    whole = _shortened(json.loads(path.read_text()))
    taken = set()
    path.write_text(json.dumps(whole))
    read()
    for one in mutations(whole):
        path.write_text(json.dumps(one.document))
        try:
            read()
            taken.add(one.field)
        except ValueError as error:
            said = str(error)
            if path.name not in said or one.field not in said:
                raise AssertionError(f"{one.field} = {one.value!r}: {said}") from error
    path.write_text(json.dumps(whole))
    return taken


def read_or_refused(path: Path, read: Callable[[], Any]) -> Any:
    """What is read of a damaged file, or None if it is refused in a sentence that names it."""
    try:
        return read()
    except ValueError as error:
        said = str(error)
        if str(path) not in said or len(said) > 1500:
            raise AssertionError(said) from error
    return None


def _paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys: list[Any]
    if isinstance(value, dict):
        keys = list(value)
    else:
        keys = []
    if isinstance(value, list) and value:
        keys = sorted({0, len(value) - 1})
    for key in keys:
        yield (*before, key)
        yield from _paths(value[key], (*before, key))


def _name(path: tuple[Any, ...]) -> str:
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in path
    ).removeprefix(".")
