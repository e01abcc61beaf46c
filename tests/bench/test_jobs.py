"""Policies side by side: the layout changes nothing, a kill costs nothing, a failure harms nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ata_gym.bench.cost_regret import CostRun
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import Effort, play_all
from ata_gym.bench.experiment.store import open_folder
from tests.fuzz.kills import wait_for_group
from tests.waiting import PATIENCE, without_progress

POLICIES = ["gta", "ofta", "ata-empirical-icml", "ata", "uta"]
THREE = ["ata", "gta", "uta"]
ROUNDS = 8_000
"""More than are played between the first checkpoint and the kill."""


UNGUARDED = """
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import Effort, play_all
from ata_gym.bench.experiment.store import open_folder

experiment = Experiment.on_scenario("icml2025-regret", rounds=5, seeds=1)
folder = open_folder("out", experiment.config())
for error in play_all(experiment, ["uta", "ofta"], folder, effort=Effort(jobs=2)).values():
    print(error)
"""


def test_a_script_that_does_not_guard_what_it_runs_is_told_so(tmp_path):
    """Each process imports the script and fails there; the system has killed none for lack of memory."""
    (tmp_path / "script.py").write_text(UNGUARDED)
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    sentences = ended.stdout.splitlines()
    assert len(sentences) == 2
    assert all("ended before it began" in said and "if __name__ == '__main__':" in said for said in sentences)
    assert "memory" not in ended.stdout


def experiment(rounds: int) -> Experiment:
    return Experiment.on_scenario("icml2025-regret", rounds=rounds, seeds=2)


def result_bytes(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((path / "results").iterdir())}


def test_results_do_not_depend_on_the_number_of_processes(tmp_path):
    played, told = experiment(400), []
    for jobs in (1, 2):
        folder = open_folder(tmp_path / str(jobs), played.config())
        progress = (lambda *now: told.append(now)) if jobs == 2 else lambda *_: None
        assert play_all(played, POLICIES, folder, effort=Effort(jobs=jobs), progress=progress) == {}
    assert result_bytes(tmp_path / "1") == result_bytes(tmp_path / "2")
    assert len(result_bytes(tmp_path / "1")) == 2 * 5
    assert {policy for policy, _ in told} == set(POLICIES)
    assert max(rounds for _, rounds in told) == 400


LINE = f"bench --scenario icml2025-regret --rounds {ROUNDS} --seeds 2 --policies {','.join(THREE)} --save-every 0.05"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("uninterrupted")
    played = experiment(ROUNDS)
    play_all(played, THREE, open_folder(out, played.config()), CostRun, Effort(jobs=1))
    return result_bytes(out)


@pytest.mark.skipif(os.name == "nt", reason="needs the signals of POSIX")
@pytest.mark.parametrize(("jobs", "how", "when"), [
    (1, "INT", "*.previous"), (2, "TERM", "*.parquet"), (2, "KILL", "*.npz"),
])  # fmt: skip
def test_a_killed_command_goes_on_and_ends_with_the_same_bytes(start, tmp_path, uninterrupted, jobs, how, when):
    """After a first checkpoint, a second one, and a first result; SIGTERM comes in the background of a script."""
    out, line = tmp_path / "out", f"{LINE} --jobs {jobs}"
    process = start(line, out, when, ignored="INT" if how == "TERM" else "")
    if how == "KILL":
        process.kill()
        process.communicate(timeout=PATIENCE)
    else:
        os.killpg(process.pid, signal.Signals[f"SIG{how}"])  # as a terminal and schedulers do
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == {"INT": 130, "TERM": 143}[how]
        stopped = f"ata-gym: stopped{' by SIGTERM' * (how == 'TERM')}; the same command goes on from here\n"
        assert without_progress(errors) == stopped
    wait_for_group(process.pid)
    assert len(result_bytes(out)) < 2 * 3
    played = experiment(ROUNDS)
    play_all(played, THREE, open_folder(out, played.config()), CostRun, Effort(jobs=1))
    assert result_bytes(out) == uninterrupted
    assert not list(out.glob("checkpoints/*"))
