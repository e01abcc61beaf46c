"""Calls that are made after the import of another package, which is not imported here."""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pkgutil import resolve_name
from types import ModuleType


def after_import(module: str, action: str) -> None:
    """Call a function after the first import of a module.

    If the module is imported already, the call is made now; if it never is, nothing happens.

    Args:
        module: The dotted name of the module.
        action: The function, such as ``package.module:function``.
    """
    if module in sys.modules:
        resolve_name(action)()
    else:
        sys.meta_path.insert(0, _ImportHook(module, action))


class _ImportHook(MetaPathFinder):
    """A finder that acts on the import of one module, and then removes itself.

    Python asks it for each module that is not imported yet.
    """

    def __init__(self, module: str, action: str) -> None:
        self.module = module
        self.action = action

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != self.module or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                resolve_name(self.action)()

            # Each module has a loader of its own, so no other module is affected.
            vars(spec.loader)["exec_module"] = execute_and_act
        return spec
