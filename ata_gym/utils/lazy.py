"""Names of a package whose modules are imported when a name is first used, since that takes a while."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str], check: Callable[[str], None] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of a package (PEP 562).

    - ``homes``: for each name the module below the package that has it; a name at home in itself is that module.
    - ``check``: called with a name before its module is imported; it raises an error where that cannot work.

    >>> find, list_names = lazy_names("ata_gym", {"scenario_names": "scenarios", "pools": "pools"})
    >>> find("pools").__name__, "five-workers" in find("scenario_names")(), list_names()
    ('ata_gym.pools', True, ['pools', 'scenario_names'])
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if check is not None:
            check(name)
        module = import_module(f"{package}.{homes[name]}")
        return module if homes[name] == name else getattr(module, name)

    return find, lambda: sorted(homes)
