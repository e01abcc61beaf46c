import gc
import os
import pickle
import subprocess
import sys

import pytest
from filelock import FileLock, Timeout

from ata_gym.bench.experiment.claim import HOLDER, LOCK, claim, is_ours
from ata_gym.bench.experiment.store import open_folder
from ata_gym.utils import manifest

OPEN = "import sys; from ata_gym.bench.experiment.store import open_folder; open_folder(sys.argv[1], {'rounds': 1})"


def test_a_folder_is_one_processes_until_it_lets_go(tmp_path):
    path = tmp_path / "out"
    folder = open_folder(path, {"rounds": 1})
    assert claim(path) is folder.claim
    other = subprocess.run([sys.executable, "-c", OPEN, path], capture_output=True, text=True, check=False)
    assert other.returncode == 1
    assert f"is in use by process {os.getpid()} on " in other.stderr
    copy = pickle.loads(pickle.dumps(folder))  # as a worker process gets it
    assert copy == folder
    assert copy.claim is None
    if hasattr(os, "fork"):  # a fork takes nothing away
        child = os.fork()
        if not child:
            del folder
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        assert (path / HOLDER).exists()
    with pytest.raises(Timeout):
        FileLock(path / LOCK).acquire(timeout=0)
    del folder
    gc.collect()
    open_folder(path, {"rounds": 1})
    gc.collect()
    assert sorted(file.name for file in path.iterdir()) == [
        LOCK, ".ata-gym.sums.lock", manifest.NAME, "checkpoints", "config.json", "results",
    ]  # fmt: skip


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
    ours = [folder.path / "results" / ".part-7-ata.parquet", folder.checkpoint("ata").parent / ".part-1-ata.npz"]
    foreign.parent.mkdir()
    for file in (foreign, *ours):
        file.write_text("half")
    open_folder(tmp_path, {})
    assert [file.exists() for file in (foreign, *ours)] == [True, False, False]


def test_a_folder_without_a_name_is_refused():
    with pytest.raises(ValueError, match="its name is empty"):
        open_folder("", {})


def test_a_folder_that_another_command_claims_at_this_moment_is_not_foreign(tmp_path, monkeypatch):
    """Its lock comes right after any look."""

    def look(path):
        found = is_ours(path)
        (tmp_path / LOCK).touch()
        return found

    monkeypatch.setattr("ata_gym.bench.experiment.claim.is_ours", look)
    claim(tmp_path)
