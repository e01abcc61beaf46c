"""Errors as text: the error, and the place in the user's code, which is called from inside."""

import linecache
import pickle
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PLACE = "_ata_gym_place"  # the attribute that keeps the place in an error of another process
_OUR_PACKAGES = frozenset({"ata_gym", "ata_policies"})
_STANDARD_LIBRARY = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")})
_FOLDERS_OF_PACKAGES = frozenset({"site-packages", "dist-packages"})
_user_packages: set[str] = set()  # packages that are the user's own even where they are installed


class SentError(RuntimeError):
    """An error in place of one that another process could not read.

    Its text is the text of ``described``.
    """


class RoundError(RuntimeError):
    """An error of a policy that is played; its text names the policy and the round."""


def is_our_module(module: str) -> bool:
    """Whether a module, by its dotted name, is part of ata-gym."""
    return module.partition(".")[0] in _OUR_PACKAGES


def note_user_module(module: str) -> None:
    """Note that the user named an object in a module, so its package is the user's own."""
    _user_packages.add(module.partition(".")[0])


def is_installed(file: str | Path) -> bool:
    """Whether a file belongs to Python itself or to an installed package."""
    path = Path(file)
    return not _FOLDERS_OF_PACKAGES.isdisjoint(path.parts) or any(
        path.is_relative_to(place) for place in _STANDARD_LIBRARY
    )


def described(error: BaseException) -> str:
    """An error as text, with its type and the place where a user's own code raised it.

    The place is file, line and source; it is left out where no code of a user raised the error.

    Args:
        error: The error.

    Example:
        >>> described(ZeroDivisionError("division by zero")), described(KeyError())
        ('ZeroDivisionError: division by zero', 'KeyError')
    """
    if isinstance(error, SentError):
        return str(error)
    place = place_of(error)
    if isinstance(error, RoundError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
    if place is None:
        return text
    return f"{text} ({place})"


def explained(error: BaseException) -> str:
    """The text of ``described``, or the message alone of a ValueError of this package.

    Such a message is a whole sentence.

    Args:
        error: The error.
    """
    plain = isinstance(error, ValueError) and place_of(error) is None
    if plain:
        return str(error)
    return described(error)


@contextmanager
def named_failure(subject: str) -> Iterator[None]:
    """Turn any error of a user's own code, or its sys.exit, into a ValueError with the place.

    A MemoryError passes as it is. ValueError, OSError, ImportError and FloatingPointError pass,
    too, if no code of the user raised them: they become one sentence anyway.

    Args:
        subject: The name of the code, for the message.

    Raises:
        ValueError: In place of the error.
    """
    try:
        yield
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        sentence = isinstance(error, ValueError | OSError | ImportError | FloatingPointError)
        if sentence and place_of(error) is None:
            raise
        raise ValueError(f"{subject} failed: {described(error)}") from error


def place_of(error: BaseException) -> str | None:
    """File, line and source of the user's code that an error came from, or None.

    It is the innermost place in a file that is neither ours nor installed, or in a package that the
    user has named. The code raised the error, or called the code that did.

    Args:
        error: The error, with its traceback.
    """
    noted_place: str | None = vars(error).get(_PLACE)
    if noted_place is not None:
        return noted_place
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        module = str(frame.f_globals.get("__name__"))
        linecache.checkcache(file)
        source = linecache.getline(file, line, frame.f_globals).strip()
        # Code without a file and without a source is generated, and belongs to no user.
        if is_our_module(module) or (file.startswith("<") and not source):
            continue
        if module.partition(".")[0] in _user_packages or not is_installed(file):
            place = f"{_shown(file)}, line {line}"
            if source:
                place += f": {source}"
    if place is None and error.__cause__ is not None:
        return place_of(error.__cause__)
    return place


def portable(error: Exception) -> Exception:
    """The error that a process sends to another one, with its place.

    It is a SentError if the other process could not make the error again.

    Args:
        error: The error, which gets an attribute for the place.
    """
    setattr(error, _PLACE, place_of(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        sent_error = SentError(described(error))
        sent_error.__cause__ = error
        return sent_error
    return error


def _shown(file: str) -> str:
    """A path relative to the current folder if it is inside, otherwise as it is."""
    path = Path(file)
    folder = Path.cwd()
    if path.is_relative_to(folder):
        return str(path.relative_to(folder))
    return file
