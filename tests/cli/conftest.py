"""Commands, run in this process."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ata_gym.cli import app
from ata_gym.utils.extras import MissingExtraError


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in an empty folder: it ends with the expected exit code, never with a traceback."""
    monkeypatch.chdir(tmp_path)

    def command(line: str, code: int = 0) -> Result:
        result = CliRunner().invoke(app, shlex.split(line))
        if isinstance(result.exception, MissingExtraError):
            raise result.exception
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert result.exit_code == code, result.output
        return result

    return command


@pytest.fixture
def refused(run: Callable[..., Result]) -> Callable[[str], str]:
    """Run a command that is refused in one sentence, and return the sentence."""

    def command(line: str) -> str:
        result = run(line, code=2)
        assert result.stderr.startswith("ata-gym: ")
        assert result.stderr.count("\n") == 1
        assert "Traceback" not in result.output
        return result.stderr

    return command
