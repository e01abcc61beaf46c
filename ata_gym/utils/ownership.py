"""Whose code a module is: of ata-gym, of a package that is installed, or of the user."""

from __future__ import annotations

import sysconfig
from pathlib import Path

_OURS = frozenset({"ata_gym", "ata_policies"})
_LIBRARY = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")})
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_named: set[str] = set()


def is_ours(module: str) -> bool:
    """Whether a module, by its dotted name, is part of ata-gym.

    >>> is_ours("ata_policies.registry"), is_ours("json.decoder")
    (True, False)
    """
    return module.partition(".")[0] in _OURS


def note_own(module: str) -> None:
    """Note that the user named something in a module: its package is the user's own, even where it is installed."""
    _named.add(module.partition(".")[0])


def is_named(module: str) -> bool:
    """Whether the user named something in the package of a module, see :func:`note_own`."""
    return module.partition(".")[0] in _named


def is_installed(file: str | Path) -> bool:
    """Whether a file belongs to Python itself or to an installed package.

    >>> import json, numpy
    >>> is_installed(json.__file__), is_installed(numpy.__file__), is_installed("my_policies.py")
    (True, True, False)
    """
    path = Path(file)
    return not _PACKAGES.isdisjoint(path.parts) or any(path.is_relative_to(place) for place in _LIBRARY)
