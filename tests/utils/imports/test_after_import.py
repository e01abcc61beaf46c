"""Calls after the import of another package: once, in any order, and none without the import."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from ata_gym.utils.imports.after_import import after_import

MINARI = """
from functools import singledispatch
@singledispatch
def serialize_space(space, to_string=True):
    raise NotImplementedError(space)
class Readers(dict):
    def register(self, name):
        return lambda read: self.setdefault(name, read)
deserialize_space = Readers()
"""
"""The functions of Minari with which spaces are registered; it is not installed here."""

USE = """
import sys
for name in sys.argv[1:]:
    __import__(name)
    earlier = sys.argv[1 : sys.argv.index(name) + 1]
    assert "minari" in earlier or "minari" not in sys.modules
import json
from ata_gym.envs.spaces import Allocation, RaceAllocation
from minari.serialization import deserialize_space, serialize_space
for space in (Allocation(3, 5), RaceAllocation(2, 4), Allocation(3, 5, rows=2)):
    for data in (serialize_space(space, to_string=False), json.loads(serialize_space(space))):
        read_space = deserialize_space[data["type"]](data)
        assert type(read_space) is type(space) and read_space == space
"""


@pytest.mark.parametrize(
    "order",
    [("ata_gym", "minari"), ("minari", "ata_gym"), ("ata_gym.envs.spaces", "minari")],
)
def test_minari_knows_our_spaces_whatever_is_imported_first(
    order: tuple[str, str],
    tmp_path: Path,
) -> None:
    package = tmp_path / "minari"
    package.mkdir()
    (package / "__init__.py").write_text("from minari import serialization\n", encoding="utf-8")
    (package / "serialization.py").write_text(MINARI, encoding="utf-8")
    root = Path(importlib.import_module("ata_gym").__file__ or "").parents[1]
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(root)!r}]\n{USE}"
    subprocess.run([sys.executable, "-c", code, *order], check=True, timeout=120)


CALLS: list[str] = []


def called() -> None:
    CALLS.append("called")


def test_the_call_is_made_once_and_the_module_is_imported_as_ever(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "imported_late.py").write_text(
        "import imported_never_before\nx = 1\n",
        encoding="utf-8",
    )
    (tmp_path / "imported_never_before.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    after_import("imported_late", f"{__name__}:called")
    after_import("not_installed_at_all", f"{__name__}:called")
    try:
        late = importlib.import_module("imported_late")
        assert (late.x, CALLS) == (1, ["called"])
        importlib.reload(late)
        after_import("imported_late", f"{__name__}:called")
        assert CALLS == ["called", "called"]
        with pytest.raises(ModuleNotFoundError, match="not_installed_at_all"):
            importlib.import_module("not_installed_at_all")
    finally:
        sys.meta_path[:] = finders
    assert CALLS == ["called", "called"]
