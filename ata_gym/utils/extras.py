"""Optional dependencies and objects of users, imported where they are used."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ata_gym.utils.errors import described, note_own, place_of


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message is one sentence with the install command."""


def require(module: str, extra: str, purpose: str = "This part of ata-gym") -> ModuleType:
    """Import an optional dependency by its dotted name; ``extra`` of ata-gym installs it, and ``purpose`` needs it.

    Raises MissingExtraError if the module or a package around it is not installed. Any error from inside an installed
    module passes unchanged.

    >>> require("no_such_module", extra="bench", purpose="Reading a trace")
    Traceback (most recent call last):
    ...
    ata_gym.utils.extras.MissingExtraError: Reading a trace needs no_such_module: pip install "ata-gym[bench]"
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        message = f'{purpose} needs {error.name}: pip install "ata-gym[{extra}]"'
        raise MissingExtraError(message, name=error.name) from None


def load_object(kind: str, name: str) -> Any:
    """Import the object ``package.module:name``; errors call it a ``kind``.

    If the module is found nowhere else, the current folder is put at the end of ``sys.path``. Raises MissingExtraError
    if its module needs an extra that is not installed, and ValueError if there is no such module or attribute, or the
    module cannot be imported, even if it calls ``sys.exit``.
    """
    module, _, attribute = name.partition(":")
    note_own(module)
    try:
        return getattr(_imported(module), attribute)
    except MissingExtraError:
        raise
    except (ModuleNotFoundError, AttributeError) as error:
        reason = str(error) if place_of(error) is None else described(error)
    except (Exception, SystemExit) as error:  # a module may do anything when it is imported
        reason = f"importing {module} failed with {described(error)}"
    raise ValueError(f"there is no {kind} {name!r}: {reason}")


def _imported(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        here = str(Path.cwd())
        if here in sys.path or error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
    sys.path.append(here)
    return importlib.import_module(module)
