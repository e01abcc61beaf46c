"""The README stays short, and its policy is played by the command below it; ``test_pages.py`` runs the rest."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ata_gym.cli import app

README = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")


def test_it_fits_on_a_few_screens() -> None:
    assert len(README.splitlines()) <= 150
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 4  # a round, and a door for each kind of user
    assert all(len([line for line in block.splitlines() if line.strip()]) <= 10 for block in blocks)


def test_a_policy_saved_as_told_is_played_by_the_command_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = re.search(
        r"Save this as `(.*?)`:\n\n```python\n(.*?)```\n\n```sh\n(ata-gym bench .*?)```", README, re.DOTALL
    )
    assert saved is not None
    name, block, command = saved.groups()
    (tmp_path / name).write_text(block)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)  # of another test
    words = shlex.split(re.sub("--rounds [0-9]+", "--rounds 40 --jobs 1", command.replace("\\\n", " ")))
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, done.output
    assert f"{Path(name).stem}:" in done.stdout
    page = re.search(r"`(results/\S*?report.html)`", README)
    assert page is not None
    assert name.removesuffix(".py") in (tmp_path / page[1]).read_text(encoding="utf-8")
