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

OPEN = """
import sys
from ata_gym.bench.experiment.store import open_folder
try:
    open_folder(sys.argv[1], {"rounds": int(sys.argv[2])})
except ValueError as error:
    sys.exit(str(error))
"""


def others(path, *rounds):
    """The exit codes of processes that open the folder side by side, with the last line that each wrote."""
    started = [
        subprocess.Popen([sys.executable, "-c", OPEN, path, str(one)], stderr=subprocess.PIPE, text=True)
        for one in rounds
    ]
    errors = [process.communicate(timeout=PATIENCE)[1] for process in started]
    return sorted((process.returncode, error) for process, error in zip(started, errors, strict=True))


def test_a_folder_is_one_processes_until_it_lets_go(tmp_path):
    path = tmp_path / "out"
    folder = open_folder(path, {"rounds": 1})
    ((code, error),) = others(path, 1)
    assert code == 1
    assert f"is in use by process {os.getpid()} on " in error
    copy = pickle.loads(pickle.dumps(folder))  # as a worker process gets it
    assert copy == folder
    assert copy.claim is None
    del folder
    gc.collect()
    assert others(path, 1) == [(0, "")]
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
    with pytest.raises(ValueError, match=f"in use by process {holder.pid} "):
        claim(tmp_path / "out")
    holder.communicate(timeout=PATIENCE)
    claim(tmp_path / "out")


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
    taken, (code, error) = others(tmp_path / "out", 20, 30)
    assert taken == (0, "")
    assert code == 1
    assert any(words in error for words in ("is in use by", "another configuration"))
