import gc
import os
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.policy_run import Job, PolicyRun, play_to_end
from ata_gym.bench.store import folder as store
from ata_gym.bench.store.claim import HOLDER
from ata_gym.bench.store.folder import open_folder, read_frame, verify, write_frame, write_json
from ata_gym.utils.files import manifest
from ata_gym.utils.files.manifest import read_checked, remove_listed, write_listed
from ata_gym.utils.files.sealed import DamagedError
from tests.bench.by_hand import play_all
from tests.flips import unseen


class Fails(PolicyRun):
    def play(self, most):
        raise ZeroDivisionError


def test_each_file_of_a_whole_folder_is_looked_at_and_its_damage_is_named(tmp_path):
    played = Experiment.on_scenario("icml2025-regret", rounds=600, seeds=2)
    folder = open_folder(tmp_path / "out", played.config())
    assert play_all(played, ["uta"], folder, effort=Effort(jobs=1)) == {}
    assert list(play_all(played, ["gta"], folder, Fails, effort=Effort(jobs=1))) == ["gta"]
    answers = iter([False, True])
    assert (
        play_to_end(Job(played, "ata", folder), save_every=0.0, stop=lambda: next(answers)) is None
    )
    assert {str(one.file.relative_to(folder.path)) for one in verify(tmp_path)} == {
        "ata-gym.sha256",
        "config.json",
        "failures/gta.txt",
        "results/uta.parquet",
        "results/uta.json",
        "allocations/uta.parquet",
        "allocations/uta.json",
        "checkpoints/ata.npz",
        "checkpoints/ata.npz.previous",
        "checkpoints/ata.json",
        "checkpoints/gta.json",
    }
    assert unseen(folder.path) == []
    lines = (folder.path / manifest.NAME).read_text().splitlines()[:-2]  # as sha256sum writes them
    assert lines == sorted(lines, key=lambda line: line[66:])
    assert all(
        line[:64] == sha256((folder.path / line[66:]).read_bytes()).hexdigest() for line in lines
    )


@pytest.mark.parametrize(
    ("folder", "error"),
    [("", "holds no results"), ("none", "there is no folder")],
)
def test_a_folder_without_results_is_refused(tmp_path, folder, error):
    with pytest.raises((ValueError, FileNotFoundError), match=error):
        verify(tmp_path / folder)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_named_and_one_of_the_users_own_is_not(tmp_path):
    folder = open_folder(tmp_path / "out", {})
    frame = pl.DataFrame({"round": [1]})
    write_frame(folder.result("ata"), frame, {})
    (folder.path / "notes.txt").write_text("mine")
    assert not [one for one in verify(tmp_path) if one.fault]
    copied = folder.result("uta")
    elsewhere = tmp_path / "elsewhere.parquet"
    for ending in (".parquet", ".json"):
        copied.with_suffix(ending).write_bytes(
            folder.result("ata").with_suffix(ending).read_bytes(),
        )
    # as the manifest does not list it
    with pytest.raises(
        DamagedError,
        match=r"uta\.json is damaged",
    ):
        read_frame(copied)
    write_frame(elsewhere, frame, {})
    assert read_frame(elsewhere)["round"].to_list() == [1]
    folder.result("ata").unlink()
    assert [(one.file, one.fault) for one in verify(tmp_path) if one.fault] == [
        (folder.result("ata"), "it is missing: the same command makes it anew"),
    ]
    (folder.path / manifest.NAME).unlink()
    assert [one.fault for one in verify(tmp_path)] == ["it is missing: bring back a copy of it"]


class Kill(BaseException):
    """As SIGKILL: nothing of the process changes a file after it."""


def run(path):
    folder = open_folder(path, {"rounds": 2})
    write_json(path / "about.json", {"command": ["bench"]})
    checkpoint = folder.checkpoint("ata")
    if not folder.finished("ata"):
        store.begin(checkpoint, {"engine": "this"})
        for step in range(2):
            store.save_tree(checkpoint, (float(step),))
        write_frame(folder.result("ata"), pl.DataFrame({"round": [1, 2]}), {"engine": "this"})
    store.discard(checkpoint)
    write_listed(path / "table.md", lambda part: part.write_text("| 1 |"))


def contents(path):
    return {
        file.name: file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name[0] != "."
    }


def test_a_run_that_is_killed_at_any_step_is_whole_and_ends_with_the_same_bytes(
    tmp_path,
    monkeypatch,
):
    left = [10**9]

    def counted(name):
        original = getattr(Path, name)

        def step(path, *arguments, **named):
            if name == "replace" or not path.name.startswith((".part-", HOLDER)):
                left[0] -= 1
                if left[0] < 0:
                    raise Kill
            return original(path, *arguments, **named)

        monkeypatch.setattr(Path, name, step)

    for name in ("replace", "unlink"):
        counted(name)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the machine does not stop here
    gc.freeze()  # a collection looks at what is made from here on, and is quick
    run(tmp_path / "whole")
    steps = 10**9 - left[0]
    expected = contents(tmp_path / "whole")
    assert 20 < steps < 60
    for k in range(steps):
        path = tmp_path / str(k)
        left[0] = k
        with pytest.raises(Kill):
            run(path)
        left[0] = 10**9
        gc.collect()  # the folder is let go
        if (path / manifest.NAME).exists():
            assert [one for one in verify(path) if one.fault] == [], k
        run(path)
        assert contents(path) == expected, k
    gc.unfreeze()


def test_a_damaged_file_that_was_about_to_change_is_not_taken_for_whole(tmp_path, monkeypatch):
    out = tmp_path / "out"
    path = tmp_path / "out" / "table.md"
    replace = Path.replace

    def killed(part, target):
        if target == path:
            raise Kill
        return replace(part, target)

    open_folder(out, {})
    write_listed(path, lambda part: part.write_text("old"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(Kill):
            write_listed(path, lambda part: part.write_text("new"))
    sums = [sha256(text).hexdigest() for text in (b"old", b"new")]
    for content, kept in ((b"torn", sums), (b"new", sums[1:])):
        path.write_bytes(content)
        gc.collect()  # the folder is let go
        open_folder(out, {})
        assert manifest.read(out)["table.md"] == kept
        assert [one.file for one in verify(out) if one.fault] == ([path] if kept == sums else [])


def test_files_that_are_written_side_by_side_are_all_listed(tmp_path):
    folder = open_folder(tmp_path, {})

    def write(k):
        for _ in range(3):
            write_listed(folder.path / f"{k}.txt", lambda part: part.write_text(str(k)))
        if k % 2:
            remove_listed(folder.path / f"{k}.txt")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(12)))
    assert set(manifest.read(tmp_path)) == {"config.json", *(f"{k}.txt" for k in range(0, 12, 2))}
    assert not [one for one in verify(tmp_path) if one.fault]


def test_a_file_that_changes_while_it_is_read_is_not_damaged(tmp_path, monkeypatch):
    folder = open_folder(tmp_path, {})
    path = tmp_path / "about.json"
    original = manifest.read
    write_json(path, {"k": 0})

    def read(place):
        found = original(place)
        monkeypatch.undo()
        write_json(path, {"k": 1})  # after the manifest is read, before the file is
        return found

    monkeypatch.setattr(manifest, "read", read)
    assert b"1" in read_checked(path)
    del folder
