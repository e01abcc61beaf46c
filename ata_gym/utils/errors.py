"""Errors in words: what went wrong, and where in a user's own code, which is called from deep inside."""

from __future__ import annotations

import linecache
import pickle
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OURS = {"ata_gym", "ata_policies"}
_INSTALLED = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
_named: set[str] = set()
_PLACE = "_ata_gym_place"


class SentError(RuntimeError):
    """What stands for an error that another process could not read: its words are those of ``described``."""


def note_own(module: str) -> None:
    """Note that the user named something in a module: its package is the user's own, even where it is installed."""
    _named.add(module.partition(".")[0])


def described(error: BaseException) -> str:
    """An error with its type, and the file, the line and the source of it where a user's own code raised it.

    An error of ours or of a library that no code of the user's has called has no such place.

    >>> described(ZeroDivisionError("division by zero")), described(KeyError())
    ('ZeroDivisionError: division by zero', 'KeyError')
    """
    if isinstance(error, SentError):
        return str(error)
    place = place_of(error)
    words = f"{type(error).__name__}: {error}".removesuffix(": ")
    return words if place is None else f"{words} ({place})"


def explained(error: BaseException) -> str:
    """As ``described``; of a ValueError of ours the message alone, since it is a whole sentence.

    >>> explained(ValueError("rounds must be at least 1, not 0"))
    'rounds must be at least 1, not 0'
    """
    plain = isinstance(error, ValueError) and place_of(error) is None
    return str(error) if plain else described(error)


@contextmanager
def named_failure(what: str) -> Iterator[None]:
    """Turn whatever a user's own code raises, or sys.exit in it, into a ValueError that names the code and the place.

    What lack of memory raises passes as it is, and so do ValueError, OSError, ImportError and FloatingPointError that
    no code of the user's raised: they become one sentence anyway.
    """
    try:
        yield
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        sentence = isinstance(error, ValueError | OSError | ImportError | FloatingPointError)
        if sentence and place_of(error) is None:
            raise
        raise ValueError(f"{what} failed: {described(error)}") from error


def place_of(error: BaseException) -> str | None:
    """File, line and source of the user's code that raised an error, or called what did; None if there is none.

    It is the innermost place in a file that is neither ours nor installed, or in a package that the user has named.
    """
    kept: str | None = vars(error).get(_PLACE)
    if kept is not None:
        return kept
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        file, top = frame.f_code.co_filename, str(frame.f_globals.get("__name__")).partition(".")[0]
        linecache.checkcache(file)
        source = linecache.getline(file, line, frame.f_globals).strip()
        if top in _OURS or (file.startswith("<") and not source):
            continue
        if top in _named or not any(Path(file).is_relative_to(room) for room in _INSTALLED):
            found = f"{_shown(file)}, line {line}{f': {source}' * bool(source)}"
    if found is None and error.__cause__ is not None:
        return place_of(error.__cause__)
    return found


def portable(error: Exception) -> Exception:
    """What a process sends for an error: the error, with its place, or its words where it could not be read there.

    A traceback does not go with an error, and many a class of a user's own cannot be made again from its message.
    """
    setattr(error, _PLACE, place_of(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        sent = SentError(described(error))
        sent.__cause__ = error
        return sent
    return error


def _shown(file: str) -> str:
    """A path from the current folder on, where it is in there."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
