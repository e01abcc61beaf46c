"""Errors as text: what went wrong, and where in the code of the user, which is called from deep inside."""

from __future__ import annotations

import linecache
import pickle
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ata_gym.utils.ownership import is_installed, is_named, is_ours

_PLACE = "_ata_gym_place"


class SentError(RuntimeError):
    """Stands for an error that another process could not read; its text is that of ``described``."""


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
    """Return the text of ``described``; of a ValueError of ours the message alone, since it is a whole sentence.

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
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
        linecache.checkcache(file)
        source = linecache.getline(file, line, frame.f_globals).strip()
        if is_ours(module) or (file.startswith("<") and not source):
            continue
        if is_named(module) or not is_installed(file):
            found = f"{_shown(file)}, line {line}{f': {source}' * bool(source)}"
    if found is None and error.__cause__ is not None:
        return place_of(error.__cause__)
    return found


def portable(error: Exception) -> Exception:
    """The error that a process sends to another one: the error itself, with its place, or a SentError.

    A traceback is not sent with an error, and many classes of users cannot be made again from a message.
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
    """A path relative to the current folder if it lies in there, otherwise as it is."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
