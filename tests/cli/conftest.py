"""Commands, run in this process."""

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner, Result

from ata_gym.cli import app
from ata_gym.utils.extras import MissingExtraError
from tests.bench.sketches import sketches  # noqa: F401


def invoke(line: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, shlex.split(line))
    if isinstance(result.exception, MissingExtraError):
        raise result.exception
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in an empty folder: it ends with the expected exit code, never with a
    traceback.
    """
    monkeypatch.chdir(tmp_path)

    return invoke


@pytest.fixture
def refused(run: Callable[..., Result]) -> Callable[[str], str]:
    def command(line: str) -> str:
        result = run(line, code=2)
        assert result.stderr.startswith("ata-gym: ")
        assert result.stderr.count("\n") == 1
        assert "Traceback" not in result.output
        return result.stderr

    return command


class Benched(NamedTuple):
    out: Path
    line: str
    """The command that made it."""
    told: str
    """What it wrote to stdout."""


@pytest.fixture(scope="session")
def whole_bench(tmp_path_factory: pytest.TempPathFactory) -> Benched:
    line = (
        "bench --scenario icml2025-regret --rounds 20 --seeds 2 --jobs 1 --policies ofta,uta,gta"
        " --out out"
    )
    place = tmp_path_factory.mktemp("benched")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        result = invoke(line)
    assert result.stderr == ""
    return Benched(place / "out", line, result.stdout)


@pytest.fixture
def benched(run: Callable[..., Result], whole_bench: Benched, tmp_path: Path) -> Benched:
    del run  # it changes to that folder
    shutil.copytree(whole_bench.out, tmp_path / "out")
    return whole_bench._replace(out=tmp_path / "out")
