import subprocess
import sys

import pytest

from ata_gym.utils.extras import MissingExtraError, require


def test_an_installed_submodule_is_returned_itself():
    import xml.dom.minidom

    assert require("xml.dom.minidom", extra="bench") is xml.dom.minidom


@pytest.mark.parametrize("module", ["polars", "polars.io", "polars.io.csv"])
def test_a_missing_module_or_parent_is_one_sentence_with_the_command(module, monkeypatch):
    for name in ("polars", "polars.io", "polars.io.csv"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError) as caught:
        require(module, extra="bench", purpose="Reading a trace")
    assert isinstance(caught.value, MissingExtraError)
    assert str(caught.value).startswith("Reading a trace needs polars")
    assert str(caught.value).endswith(': pip install "ata-gym[bench]"')
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("import a_module_that_is_not_there", ModuleNotFoundError),
        ("import broken_module_more", ModuleNotFoundError),  # a longer name with the same beginning
        ("from json import a_name_that_is_not_there", ImportError),
        ("raise RuntimeError('a driver is too old')", RuntimeError),
        ("raise ModuleNotFoundError('no name given')", ModuleNotFoundError),
    ],
)
def test_an_installed_but_broken_module_shows_its_own_error(body, error, tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error) as caught:
        require("broken_module", extra="train")
    assert not isinstance(caught.value, MissingExtraError)


@pytest.mark.parametrize("missing", ["typer", "rich", "polars", "matplotlib"])
def test_the_command_without_its_extra_says_one_sentence_and_exits_1(missing):
    code = f"import sys; sys.modules[{missing!r}] = None; from ata_gym.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f'The command ata-gym needs {missing}: pip install "ata-gym[bench]"\n'
    assert done.stdout == ""


@pytest.mark.parametrize("command", [["-m", "ata_gym"], ["-c", "from ata_gym.__main__ import main; main()"]])
def test_the_command_names_itself_however_it_is_started(command):
    done = subprocess.run([sys.executable, *command, "--help"], capture_output=True, text=True, check=True)
    assert "Usage: ata-gym " in done.stdout
    assert done.stderr == ""
