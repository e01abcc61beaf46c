"""Optional dependencies and objects of users, imported where they are used."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ata_gym.utils.errors import described, note_user_module, place_of
from ata_gym.utils.imports.garbage import no_garbage


class MissingExtraError(ImportError):
    """An optional dependency is not installed.

    The message is one sentence with the install command.
    """


def require(module: str, extra: str, purpose: str = "This part of ata-gym") -> ModuleType:
    """Import an optional dependency.

    Any error from inside an installed module passes unchanged.

    Args:
        module: The dotted name of the module.
        extra: The extra of ata-gym that installs it.
        purpose: The part of ata-gym that needs it, for the message.

    Raises:
        MissingExtraError: If the module or a package around it is not installed.

    Example:
        >>> try:
        ...     require("no_such_module", extra="bench", purpose="Reading a trace")
        ... except MissingExtraError as error:
        ...     print(error)
        Reading a trace needs no_such_module: pip install "ata-gym[bench]"
    """
    try:
        with no_garbage():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        message = f'{purpose} needs {error.name}: pip install "ata-gym[{extra}]"'
        raise MissingExtraError(message, name=error.name) from None


def load_object(kind: str, name: str) -> Any:
    """Import the object ``package.module:name``.

    If the module is found nowhere else, the current folder is put at the end of ``sys.path``.

    Args:
        kind: The word for the object in errors.
        name: The name, as ``package.module:name``.

    Raises:
        MissingExtraError: If its module needs an extra that is not installed.
        ValueError: If there is no such module or attribute, or the module cannot be imported, even
            if it calls ``sys.exit``.
    """
    module, _, attribute = name.partition(":")
    note_user_module(module)
    try:
        return getattr(_imported(module), attribute)
    except MissingExtraError:
        raise
    except (ModuleNotFoundError, AttributeError) as error:
        if place_of(error) is None:
            reason = str(error)
        else:
            reason = described(error)
    # A module may raise any error when it is imported.
    except (Exception, SystemExit) as error:
        reason = f"importing {module} failed with {described(error)}"
    raise ValueError(f"there is no {kind} {name!r}: {reason}")


def _imported(module: str) -> ModuleType:
    """Import a module, at last from the current folder."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        folder = str(Path.cwd())
        if (
            folder in sys.path
            or error.name is None
            or not f"{module}.".startswith(f"{error.name}.")
        ):
            raise
    sys.path.append(folder)
    return importlib.import_module(module)
