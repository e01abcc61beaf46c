"""Optional dependencies, imported where they are used; an error with the install command where they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message is one sentence with the install command."""


def require(module: str, extra: str, purpose: str = "This part of ata-gym") -> ModuleType:
    """Import an optional dependency.

    Parameters
    ----------
    module
        The module's dotted name, such as ``"polars"``.
    extra
        The extra of ata-gym that installs it.
    purpose
        What needs it, as the subject of the sentence a user reads.

    Returns
    -------
    ModuleType
        The module itself, not its top-level package.

    Raises
    ------
    MissingExtraError
        An ``ImportError``, if the module or a package around it is not installed. Any error from inside an
        installed module passes unchanged.

    Examples
    --------
    >>> require("json.decoder", extra="bench").JSONDecoder().decode("[1]")
    [1]
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
