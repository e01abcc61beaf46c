"""Mutations of a file: what disks, editors, other tools and other versions do to it."""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

_PIECES = (b"NaN", b"-1", b"1e400", b"null", b"{}", b'"', b"\0", b"9" * 40, b"\xff\xfe", b"\n")
_VALUES = (
    *(None, True, -1, 0, 1.5, float("nan"), float("inf"), 10**30, 1e300, "", "x", "1,5"),
    *("\ud800", [], [1], {}, {"a": [1]}, "long " * 40),
)
"""Values of every type of JSON, and some that are out of range."""


def truncated(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut off, as where a process was killed."""
    return content[: int(rng.integers(len(content) + 1))]


def empty(content: bytes, rng: np.random.Generator) -> bytes:
    """Nothing, or as good as nothing."""
    del content
    return (b"", b"\n", b"{}", b"[]", b"\0" * 512)[rng.integers(5)]


def flipped(content: bytes, rng: np.random.Generator) -> bytes:
    """Some bits the other way round."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 3, 30])):
        if changed:
            changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def replaced(content: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes put in, or others in their place."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 3, 20])):
        place = int(rng.integers(len(changed) + 1))
        piece = _PIECES[rng.integers(len(_PIECES))]
        # a length of 0 puts the piece in
        changed[place : place + int(rng.choice([0, len(piece), 60]))] = piece
    return bytes(changed)


def with_other_lines(content: bytes, rng: np.random.Generator) -> bytes:
    """Lines doubled, removed, and in another order."""
    lines = content.splitlines(keepends=True)
    for _ in range(rng.choice([1, 3, 10])):
        place = int(rng.integers(len(lines) + 1))
        how = rng.integers(3)
        if how == 0:
            lines[place:place] = lines[place : place + 1]
        elif how == 1:
            del lines[place : place + 1]
        else:
            lines[place:] = lines[place:][::-1]
    return b"".join(lines)


def with_other_words(content: bytes, rng: np.random.Generator) -> bytes:
    """A number or a name of another kind, here or everywhere."""
    words = sorted({*re.findall(rb"[A-Za-z_]+|-?[0-9.]+", content[:100_000])})
    if not words:
        return content
    word = words[rng.integers(len(words))]
    value = _VALUES[rng.integers(len(_VALUES))]
    text = str(value).encode(errors="surrogatepass")
    return content.replace(word, text, int(rng.choice([1, -1])))


def with_other_numbers(content: bytes, rng: np.random.Generator) -> bytes:
    """All numbers with a fraction in another unit, without sign, or in another notation."""
    how = rng.integers(4)

    def other(match: re.Match[bytes]) -> bytes:
        number = float(match[0])
        text = (f"{1e9 * number:.0f}", f"{-number}", f"{number:.3e}", f"{number}".replace(".", ","))
        return text[how].encode()

    return re.sub(rb"\b[0-9]{1,15}\.[0-9]{1,9}\b", other, content)


def packed(content: bytes, rng: np.random.Generator) -> bytes:
    """Compressed under its old name, whole, cut off, or with a bad checksum."""
    content = gzip.compress(content, mtime=0)
    how = rng.integers(4)
    if how == 0:
        return content
    if how == 1:
        return content[: -int(rng.integers(1, len(content)))]
    if how == 2:
        return content[:-6] + b"\0\0" + content[-4:]
    return flipped(content, rng)


def recoded(content: bytes, rng: np.random.Generator) -> bytes:
    """In another encoding, or with other ends of lines."""
    text = content.decode("utf-8", errors="replace")
    how = rng.integers(5)
    if how == 0:
        return text.encode("utf-16")
    if how == 1:
        return b"\xef\xbb\xbf" + content
    if how == 2:
        return text.replace("e", "\xe9").encode("latin-1", errors="replace")
    if how == 3:
        return content.replace(b"\n", b"\r\n")
    return content.replace(b"\n", b"\r")


def with_other_fields(content: bytes, rng: np.random.Generator) -> bytes:
    """JSON with fields of another type, out of range, missing, or under another name.

    What is no JSON is returned as it is.
    """
    lines = [content]
    if content.count(b"\n") > 1:
        lines = content.splitlines()
    with suppress(ValueError, RecursionError):
        documents = [json.loads(line) for line in lines]
        for _ in range(rng.choice([1, 2, 8])):
            place = int(rng.integers(len(documents)))
            documents[place] = _with_other_field(documents[place], rng)
        return "\n".join(json.dumps(document) for document in documents).encode()
    return content


def _with_other_field(document: Any, rng: np.random.Generator) -> Any:
    homes = [home for home in _homes(document) if home]
    if not homes:
        return _VALUES[rng.integers(len(_VALUES))]
    home = homes[rng.integers(len(homes))]
    keys = list(home) if isinstance(home, dict) else range(len(home))
    key = keys[rng.integers(len(keys))]
    how = rng.integers(5)
    if how == 0:
        del home[key]
    elif how == 1 and isinstance(home, dict):
        home[f"{key}2"] = home.pop(key)
    elif how == 2:
        home[key] = [home[key]]
    elif how == 3 and isinstance(home[key], list | dict):
        # a list for an object, and an object for a list
        entries = home[key]
        if isinstance(entries, dict):
            home[key] = list(entries.values())
        else:
            home[key] = {str(place): entry for place, entry in enumerate(entries)}
    else:
        home[key] = _VALUES[rng.integers(len(_VALUES))]
    return document


def _homes(value: Any) -> Iterator[Any]:
    """All lists and objects in a document."""
    if isinstance(value, dict):
        entries = list(value.values())
    elif isinstance(value, list):
        entries = value
    else:
        return
    yield value
    for entry in entries:
        yield from _homes(entry)


MUTATIONS: dict[str, Callable[[bytes, np.random.Generator], bytes]] = {
    function.__name__: function
    for function in (
        *(truncated, empty, flipped, replaced, with_other_lines, with_other_words),
        *(with_other_numbers, packed, recoded, with_other_fields),
    )
}
"""Each changes the content of a file."""
