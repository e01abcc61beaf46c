"""Errors as text: what went wrong, and where in the code of the user, which is called from deep inside."""

import linecache
import pickle
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PLACE = "_ata_gym_place"
_OURS = frozenset({"ata_gym", "ata_policies"})
_LIBRARY = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")})
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_named: set[str] = set()  # packages that are the user's own even where they are installed


class SentError(RuntimeError):
    """Stands for an error that another process could not read; its text is that of ``described``."""


class RoundError(RuntimeError):
    """An error of a policy that is played; its text says in which round it was raised, and by its name, which."""


def is_ours(module: str) -> bool:
    """Whether a module, by its dotted name, is part of ata-gym."""
    return module.partition(".")[0] in _OURS


def note_own(module: str) -> None:
    """Note that the user named something in a module: its package is the user's own."""
    _named.add(module.partition(".")[0])


def is_installed(file: str | Path) -> bool:
    """Whether a file belongs to Python itself or to an installed package."""
    path = Path(file)
    return not _PACKAGES.isdisjoint(path.parts) or any(path.is_relative_to(place) for place in _LIBRARY)


def described(error: BaseException) -> str:
    """An error with its type, and file, line and source of the place where a user's own code raised it, if it did.

    >>> described(ZeroDivisionError("division by zero")), described(KeyError())
    ('ZeroDivisionError: division by zero', 'KeyError')
    """
    if isinstance(error, SentError):
        return str(error)
    place = place_of(error)
    words = str(error) if isinstance(error, RoundError) else f"{type(error).__name__}: {error}".removesuffix(": ")
    return words if place is None else f"{words} ({place})"


def explained(error: BaseException) -> str:
    """The text of ``described``; of a ValueError of ours the message alone, since it is a whole sentence."""
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
        if module.partition(".")[0] in _named or not is_installed(file):
            found = f"{_shown(file)}, line {line}{f': {source}' * bool(source)}"
    if found is None and error.__cause__ is not None:
        return place_of(error.__cause__)
    return found


def portable(error: Exception) -> Exception:
    """The error that a process sends to another one: with its place, or a SentError if it cannot be made again."""
    setattr(error, _PLACE, place_of(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        sent = SentError(described(error))
        sent.__cause__ = error
        return sent
    return error


def _shown(file: str) -> str:  # a path relative to the current folder if it lies in there, otherwise as it is
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
