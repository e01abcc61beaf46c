"""The files of CleanRL run with the changed lines that notebooks/agents/README.md shows, and print their returns."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CLIENTS = ROOT.parent / "shared" / "clients" / "cleanrl"
SHORT = {
    "ppo": ("--total-timesteps", "4000", "--num-steps", "2000", "--num-envs", "2", "--update-epochs", "1"),
    "ppo_continuous_action": ("--total-timesteps", "220", "--num-steps", "110"),
    "dqn": ("--total-timesteps", "830", "--learning-starts", "800"),
    "sac_continuous_action": ("--total-timesteps", "110", "--learning-starts", "100"),
}
"""As few steps as end an episode and take a step of the optimiser."""
IDS = {
    "ppo": "TaskDispatch-flat-start",
    "ppo_continuous_action": "TaskRace-flat-shares",
    "dqn": "TaskAllocation-flat-assign",
    "sac_continuous_action": "TaskAllocation-flat-shares",
}


def changes(name: str) -> list[tuple[str, str]]:
    """The lines of a file that the page changes, and what it puts in their place."""
    page = (ROOT / "notebooks" / "agents" / "README.md").read_text(encoding="utf-8")
    for title, block in re.findall(r"^In ([^\n]*), \d lines:\n\n```diff\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        if f"`{name}.py`" in title:
            return re.findall(r"^-(.*\n)\+(.*\n)", block, re.MULTILINE)
    raise AssertionError(f"the page says nothing of {name}.py")


@pytest.mark.parametrize("name", IDS)
def test_the_page_counts_the_lines_that_it_changes(name: str) -> None:
    page = (ROOT / "notebooks" / "agents" / "README.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| CleanRL's `{name}.py`"))
    assert f"| {len(changes(name))} lines changed" in row
    assert IDS[name] in row
    title = next(line for line in page.splitlines() if re.match(rf"In .*`{name}\.py`", line))
    assert title.endswith(f", {len(changes(name))} lines:")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", IDS)
def test_a_file_runs_with_the_lines_of_the_page(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not CLIENTS.is_dir():
        pytest.skip("CleanRL's files (shared/clients/cleanrl beside the checkout) are not here")
    for module in ("torch", "tyro", "tensorboard"):
        pytest.importorskip(module)
    text = (CLIENTS / "cleanrl" / f"{name}.py").read_text(encoding="utf-8")
    for old, new in changes(name):
        assert text.count(old) == 1
        text = text.replace(old, new)
    script = tmp_path / f"{name}.py"
    script.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(CLIENTS)
    monkeypatch.setattr(
        sys, "argv", [script.name, "--env-id", f"ata_gym:ata_gym/{IDS[name]}-v0", "--no-cuda", *SHORT[name]]
    )
    runpy.run_path(str(script), run_name="__main__")
    returns = re.findall(r"episodic_return=(-?\d+\.\d+)$", capsys.readouterr().out, re.MULTILINE)
    assert returns
    assert max(map(float, returns)) < 0
    assert list((tmp_path / "runs").rglob("events.out.tfevents*"))
