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

POLICIES = ["ata", "gta", "uta"]
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


def test_jobs_in_this_process_go_on_after_ctrl_c_and_end_with_the_same_bytes(tmp_path):
    played = experiment(400)
    whole, stopped = (open_folder(tmp_path / name, played.config()) for name in ("whole", "stopped"))
    assert play_all(played, POLICIES, whole, effort=Effort(jobs=1)) == {}

    def interrupt(policy: str, rounds: int) -> None:
        if policy == POLICIES[1] and 0 < rounds < 300:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        play_all(played, POLICIES, stopped, effort=Effort(jobs=1), progress=interrupt)
    assert [stopped.finished(policy) for policy in POLICIES] == [True, False, False]
    assert stopped.checkpoint(POLICIES[1]).exists()
    play_all(played, POLICIES, stopped, effort=Effort(jobs=1))
    assert result_bytes(whole.path) == result_bytes(stopped.path)
    assert len(result_bytes(whole.path)) == 2 * len(POLICIES)


@pytest.mark.skipif(os.name == "nt", reason="needs the signals of POSIX")
def test_a_killed_command_goes_on_and_ends_with_the_same_bytes(start, tmp_path):
    """After a first checkpoint, and after a first result; SIGTERM comes in the background of a script."""
    played, out = experiment(ROUNDS), tmp_path / "out"
    line = f"bench --scenario icml2025-regret --rounds {ROUNDS} --seeds 2 --policies {','.join(POLICIES)} --jobs 2"
    for how, when in (("TERM", "*.npz"), ("KILL", "*.parquet")):
        process = start(f"{line} --save-every 0.05", out, when, ignored="INT" if how == "TERM" else "")
        if how == "KILL":
            process.kill()
            process.communicate(timeout=PATIENCE)
        else:
            os.killpg(process.pid, signal.SIGTERM)  # as schedulers do
            _, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 143
            assert without_progress(errors) == "ata-gym: stopped by SIGTERM; the same command goes on from here\n"
        wait_for_group(process.pid)
        assert len(result_bytes(out)) < 2 * len(POLICIES)
    for where in (out, tmp_path / "whole"):
        play_all(played, POLICIES, open_folder(where, played.config()), CostRun, Effort(jobs=1))
    assert result_bytes(out) == result_bytes(tmp_path / "whole")
    assert not list(out.glob("checkpoints/*"))
