"""Names of a package whose modules are imported when a name is first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ata_gym.utils.imports.garbage import no_garbage


def lazy_names(
    package: str,
    modules: Mapping[str, str],
    check: Callable[[str], None] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of a package (PEP 562).

    An import may take a while, so it waits until a name is used.

    Args:
        package: The dotted name of the package.
        modules: For each name, the module below the package that has it; a name whose module has
            the same name is the module itself.
        check: Called with a name before its module is imported; it raises an error where the import
            cannot work.

    Example:
        >>> modules = {"scenario_names": "scenarios", "pools": "pools"}
        >>> find, list_names = lazy_names("ata_gym", modules)
        >>> find("pools").__name__, "five-workers" in find("scenario_names")(), list_names()
        ('ata_gym.pools', True, ['pools', 'scenario_names'])
    """

    def find(name: str) -> Any:
        """Import the object of a name."""
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if check is not None:
            check(name)
        with no_garbage():
            module = import_module(f"{package}.{modules[name]}")
        if modules[name] == name:
            return module
        return getattr(module, name)

    return find, lambda: sorted(modules)
