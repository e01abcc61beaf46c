import importlib
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import ata_gym
from ata_gym import __main__ as command
from ata_gym.utils.extras import MissingExtraError, load_object, require


@pytest.mark.parametrize("module", ["polars", "polars.io.csv"])
def test_a_missing_module_or_parent_is_one_sentence_with_the_command(module, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    for inner in ("polars.io", "polars.io.csv"):
        monkeypatch.delitem(sys.modules, inner, raising=False)
    with pytest.raises(
        MissingExtraError,
        match=r'^Reading a trace needs polars.*: pip install "ata-gym\[bench\]"$',
    ) as caught:
        require(module, extra="bench", purpose="Reading a trace")
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
    assert type(caught.value) is error


@pytest.mark.filterwarnings("default")
def test_torchrl_is_named_where_it_is_missing(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.delitem(sys.modules, "ata_gym.rl.torchrl", raising=False)
    monkeypatch.setitem(sys.modules, "tensordict", None)
    with pytest.raises(
        MissingExtraError,
        match=r"ata_gym\.rl\.torchrl needs TorchRL: pip install torchrl",
    ):
        importlib.import_module("ata_gym.rl.torchrl")


@pytest.fixture
def _stdout_is_kept(monkeypatch):
    for place in ("ata_gym.utils.process.signals", "ata_gym.__main__"):
        monkeypatch.setattr(f"{place}.ignore_closed_output", lambda: None)


@pytest.mark.usefixtures("_stdout_is_kept")
@pytest.mark.parametrize("missing", ["typer", "rich", "polars", "matplotlib"])
def test_the_command_without_its_extra_says_one_sentence(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    cure = 'pip install "ata-gym[bench]" (ata-gym doctor lists what else is missing)'
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == f"The command ata-gym needs {missing}: {cure}"


@pytest.mark.usefixtures("_stdout_is_kept")
@pytest.mark.filterwarnings("ignore:'ata_gym.__main__' found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize(
    "start",
    [command.main, lambda: runpy.run_module("ata_gym", run_name="__main__")],
)
def test_the_command_names_itself_however_it_is_started(start, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["another", "--help"])
    with pytest.raises(SystemExit) as ended:
        start()
    output = capsys.readouterr()
    assert (ended.value.code, "Usage: ata-gym " in output.out, output.err) == (0, True, "")


def test_an_object_of_a_module_in_the_current_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys,
        "path",
        [place for place in sys.path if place not in ("", str(tmp_path))],
    )
    (tmp_path / "only_here.py").write_text("THERE = 3\nimport json\n")
    (tmp_path / "json.py").write_text("raise RuntimeError")
    assert load_object("thing", "math:floor")(1.5) == 1
    assert str(tmp_path) not in sys.path
    with pytest.raises(
        ValueError,
        match="there is no thing 'nowhere:X': No module named 'nowhere'",
    ):
        load_object("thing", "nowhere:X")
    assert (load_object("thing", "only_here:THERE"), load_object("thing", "json:loads")("1")) == (
        3,
        1,
    )
    assert sys.path[-1] == str(tmp_path)
    monkeypatch.delitem(sys.modules, "only_here")


_WITHOUT_TORCH = """
import importlib, sys

sys.modules["torch"] = None
from ata_gym.utils.extras import MissingExtraError

for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        print(name, "imported")
    except MissingExtraError as error:
        print(name, error)
    except Exception as error:
        sys.exit(f"{name}: {error!r}")
"""


def test_every_module_for_training_is_imported_or_names_its_extra_without_torch():
    root = Path(ata_gym.__file__).parent
    files = [
        file
        for room in (
            "models",
            "training",
            "rl",
            "cluster",
            "bench/studies/training",
            "bench/studies/paper/trained",
            "bench/studies/learning",
        )
        for file in sorted((root / room).rglob("*.py"))
    ]
    names = [".".join(file.relative_to(root.parent).with_suffix("").parts) for file in files]
    names = [name.removesuffix(".__init__") for name in names]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH, *names],
        capture_output=True,
        text=True,
        check=False,
        cwd=root.parent,
    )
    assert done.returncode == 0, done.stderr
    output = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert list(output) == names
    assert output["ata_gym.rl.native_rows"] == output["ata_gym.training.problem"] == "imported"
    for name, extra in {
        "training.trainer.trainer": "train",
        "bench.studies.training.curves": "train",
        "bench.studies.paper.trained.quadratic": "train",
        "training.problems.digits": "train",
        "bench.studies.learning.study": "rl",
        "rl.sb3.policy": "rl",
        "rl.sb3.vec_env": "rl",
        "rl.network": "rl",
        "rl.rllib": "rl",
        "rl.pretraining.learned": "train",
        "training.devices.clock": "train",
        "cluster.torchrun.share": "cluster",
        "cluster.trainers.lightning": "cluster",
    }.items():
        assert output[f"ata_gym.{name}"].endswith(f'needs torch: pip install "ata-gym[{extra}]"')
