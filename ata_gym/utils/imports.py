"""Objects of a user's own, by the name of their module."""

from __future__ import annotations

import importlib
from typing import Any

from ata_gym.utils.extras import MissingExtraError


def load_object(kind: str, name: str) -> Any:
    """Import the object ``package.module:name``.

    Parameters
    ----------
    kind
        What it should be, for the message of an error.
    name
        Module and attribute.

    Raises
    ------
    MissingExtraError
        If its module needs an extra that is not installed.
    ValueError
        If there is no such module or attribute, or the module cannot be imported, even if it calls ``sys.exit``.

    Examples
    --------
    >>> load_object("policy", "math:pi")
    3.141592653589793
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except MissingExtraError:
        raise
    except (ModuleNotFoundError, AttributeError) as error:
        reason = str(error)
    except (Exception, SystemExit) as error:  # a module may do anything when it is imported
        reason = f"importing {module} failed with {type(error).__name__}: {error}"
    raise ValueError(f"there is no {kind} {name!r}: {reason}")
