"""A folder for results is ours, and one process's at a time."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys

import pytest

from ata_gym.bench.experiment.claim import LOCK, claim
from ata_gym.bench.experiment.store import open_folder
from ata_gym.utils import manifest
from tests.waiting import PATIENCE

CLAIM = """
import sys
from pathlib import Path
from ata_gym.bench.experiment.claim import claim
try:
    held = claim(Path(sys.argv[1]))
except ValueError as error:
    sys.exit(str(error))
"""


def another_process(path):
    command = [sys.executable, "-c", CLAIM, path]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)


def test_a_folder_is_one_processes_until_it_lets_go(tmp_path):
    path = tmp_path / "out"
    folder = open_folder(path, {})
    refused = another_process(path)
    assert refused.returncode == 1
    assert f"is in use by process {os.getpid()} on " in refused.stderr
    copy = pickle.loads(pickle.dumps(folder))  # as a worker process gets it
    assert copy == folder
    assert copy.claim is None
    del folder
    gc.collect()
    assert another_process(path).returncode == 0
    assert sorted(file.name for file in path.iterdir()) == [
        LOCK, ".ata-gym.sums.lock", manifest.NAME, "checkpoints", "config.json", "results",
    ]  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_takes_nothing_away(tmp_path):
    code = f"""
import os, sys
from pathlib import Path
from ata_gym.bench.experiment.claim import HOLDER, claim
held = claim(Path({str(tmp_path / "out")!r}))
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
assert (Path({str(tmp_path / "out")!r}) / HOLDER).exists()
print("ready", flush=True)
sys.stdin.read()
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    assert f"in use by process {holder.pid} " in another_process(tmp_path / "out").stderr
    holder.communicate(timeout=PATIENCE)
    assert another_process(tmp_path / "out").returncode == 0


def test_a_process_may_claim_what_it_holds(tmp_path):
    first = claim(tmp_path / "out")
    assert claim(tmp_path / "out") is first


@pytest.mark.parametrize("name", ["thesis.txt", ".part-mine", "results"])
def test_a_folder_with_foreign_files_is_refused_and_left_as_it_is(tmp_path, name):
    (tmp_path / "deep").mkdir()
    for file in (tmp_path / name, tmp_path / "deep" / ".part-1-x"):
        file.write_text("precious")
    with pytest.raises(ValueError, match="holds files that are not of ata-gym"):
        open_folder(tmp_path, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["deep", name])
    assert (tmp_path / "deep" / ".part-1-x").read_text() == "precious"


def test_only_half_written_files_of_ours_are_cleared(tmp_path):
    folder = open_folder(tmp_path, {})
    foreign = tmp_path / "plots" / ".part-of-my-thesis"
    foreign.parent.mkdir()
    foreign.write_text("precious")
    ours = folder.path / "results" / ".part-7-ata.parquet"
    ours.write_text("half")
    open_folder(tmp_path, {})
    assert foreign.exists()
    assert not ours.exists()


def test_a_folder_without_a_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="its name is empty"):
        open_folder("", {})
    assert not list(tmp_path.iterdir())


def test_of_two_configurations_started_together_one_is_refused_in_words(tmp_path):
    command = [sys.executable, "-m", "ata_gym", "bench", "--scenario", "icml2025-regret", "--policies", "uta"]
    started = [
        subprocess.Popen(
            [*command, "--rounds", rounds, "--seeds", "1", "--out", str(tmp_path / "out")],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for rounds in ("20", "30")
    ]  # fmt: skip
    errors = [process.communicate(timeout=PATIENCE)[1] for process in started]
    codes = [process.returncode for process in started]
    assert sorted(codes) == [0, 2], errors
    assert any(words in errors[codes.index(2)] for words in ("is in use by", "another configuration"))
