"""What is done after the import of another package, which is not imported here."""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pkgutil import resolve_name
from types import ModuleType


def after_import(module: str, action: str) -> None:
    """Call ``action``, such as ``package.module:function``, after the first import of ``module``.

    If it is imported already, the call is made now; if it never is, nothing happens.
    """
    if module in sys.modules:
        resolve_name(action)()
    else:
        sys.meta_path.insert(0, _Once(module, action))


class _Once(MetaPathFinder):
    """Python asks it for each module that is not imported yet; it finds the one, as others do, and is gone."""

    def __init__(self, module: str, action: str) -> None:
        self.module, self.action = module, action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
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

            vars(spec.loader)["exec_module"] = execute_and_act  # of this loader alone: each module has its own
        return spec
