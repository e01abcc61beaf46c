"""Damage in any file of a results folder is found, and a kill at any moment is no damage."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ata_gym.bench.experiment.claim import HOLDER
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import Effort, play_all
from ata_gym.bench.experiment.run import Job, PolicyRun, play_to_end
from ata_gym.bench.experiment.store import (
    begin,
    discard,
    open_folder,
    read_frame,
    save_tree,
    verify,
    write_frame,
    write_json,
)
from ata_gym.utils import manifest
from ata_gym.utils.manifest import read_listed, remove_listed, write_listed
from ata_gym.utils.sealed import DamagedError
from tests.flips import unseen


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder with a finished policy, an unfinished one and one that failed."""
    path = tmp_path_factory.mktemp("results") / "out"
    played = Experiment.on_scenario("icml2025-regret", rounds=600, seeds=2)
    folder = open_folder(path, played.config())

    class Fails(PolicyRun):
        def play(self, most):
            raise ZeroDivisionError

    assert play_all(played, ["uta"], folder, effort=Effort(jobs=1)) == {}
    assert list(play_all(played, ["gta"], folder, Fails, effort=Effort(jobs=1))) == ["gta"]
    answers = iter([False, True])
    assert play_to_end(Job(played, "ata", folder), save_every=0.0, stop=lambda: next(answers)) is None
    return path


def test_a_whole_folder_has_no_fault(results):
    checked = verify(results.parent)
    assert {str(one.file.relative_to(results)) for one in checked} == {
        "ata-gym.sha256", "config.json", "failures/gta.txt", "results/uta.parquet", "results/uta.json",
        "allocations/uta.parquet", "allocations/uta.json", "checkpoints/ata.npz", "checkpoints/ata.npz.previous",
        "checkpoints/ata.json", "checkpoints/gta.json",
    }  # fmt: skip
    assert not any(one.fault for one in checked)


def test_a_flipped_byte_in_any_file_is_named(results):
    assert unseen(results) == []


@pytest.mark.parametrize("name", ["results/uta.parquet", "results/uta.json", "checkpoints/ata.npz", manifest.NAME])
def test_every_flipped_byte_is_found(results, name):
    file = results / name
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    try:
        for where in rng.integers(len(whole), size=16):
            damaged = bytearray(whole)
            damaged[where] ^= 1 << rng.integers(8)
            file.write_bytes(damaged)
            assert [one.file for one in verify(results) if one.fault] == [file]
    finally:
        file.write_bytes(whole)


def test_a_missing_file_is_named_and_one_of_the_users_own_is_not(tmp_path):
    folder = open_folder(tmp_path / "out", {})
    write_frame(folder.result("ata"), pl.DataFrame({"round": [1]}), {})
    (folder.path / "notes.txt").write_text("mine")
    assert not [one for one in verify(tmp_path) if one.fault]
    folder.result("ata").unlink()
    assert [(one.file, one.fault) for one in verify(tmp_path) if one.fault] == [
        (folder.result("ata"), "it is missing: the same command makes it anew")
    ]
    (folder.path / manifest.NAME).unlink()
    assert [one.fault for one in verify(tmp_path)] == ["it is missing: bring back a copy of it"]


def test_a_frame_that_the_manifest_does_not_list_is_not_read(tmp_path):
    folder = open_folder(tmp_path / "out", {})
    write_frame(folder.result("ata"), pl.DataFrame({"round": [1]}), {})
    copied = folder.result("uta")
    for ending in (".parquet", ".json"):
        copied.with_suffix(ending).write_bytes(folder.result("ata").with_suffix(ending).read_bytes())
    with pytest.raises(DamagedError, match=r"uta\.json is damaged"):
        read_frame(copied)
    elsewhere = tmp_path / "elsewhere.parquet"
    write_frame(elsewhere, pl.DataFrame({"round": [1]}), {})
    assert read_frame(elsewhere)["round"].to_list() == [1]


class Kill(BaseException):
    """As SIGKILL: nothing of the process changes a file after it."""


def run(path):
    """What a command does to its folder, in short."""
    folder = open_folder(path, {"rounds": 2})
    write_json(path / "about.json", {"command": ["bench"]})
    checkpoint = folder.checkpoint("ata")
    if not folder.finished("ata"):
        begin(checkpoint, {"engine": "this"})
        for step in range(2):
            save_tree(checkpoint, (float(step),))
        write_frame(folder.result("ata"), pl.DataFrame({"round": [1, 2]}), {"engine": "this"})
    discard(checkpoint)
    write_listed(path / "table.md", lambda part: part.write_text("| 1 |"))


def contents(path):
    return {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name[0] != "."}


def test_a_run_that_is_killed_at_any_step_is_whole_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    """A step moves or removes a file; after one is before the next."""
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
    steps, expected = 10**9 - left[0], contents(tmp_path / "whole")
    assert 20 < steps < 60
    for k in range(steps):
        path, left[0] = tmp_path / str(k), k
        with pytest.raises(Kill):
            run(path)
        left[0] = 10**9
        gc.collect()  # the folder is let go
        if (path / manifest.NAME).exists():
            assert [one for one in verify(path) if one.fault] == [], k
        run(path)
        assert contents(path) == expected, k
    gc.unfreeze()


def test_files_that_are_written_side_by_side_are_all_listed(tmp_path):
    folder = open_folder(tmp_path, {})

    def write(k):
        for _ in range(3):
            write_listed(folder.path / f"{k}.txt", lambda part: part.write_text(str(k)))
        if k % 2:
            remove_listed(folder.path / f"{k}.txt")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(12)))
    assert sorted(manifest.read(tmp_path)) == sorted(["config.json", *(f"{k}.txt" for k in range(0, 12, 2))])
    assert not [one for one in verify(tmp_path) if one.fault]


def test_a_file_that_changes_while_it_is_read_is_not_damaged(tmp_path, monkeypatch):
    folder = open_folder(tmp_path, {})
    write_json(path := tmp_path / "about.json", {"k": 0})
    original, times = manifest.read, iter(range(10))

    def read(place):
        found = original(place)
        if next(times) == 0:  # between the reading of the manifest and that of the file
            monkeypatch.setattr(manifest, "read", original)
            write_json(path, {"k": 1})
            monkeypatch.setattr(manifest, "read", read)
        return found

    monkeypatch.setattr(manifest, "read", read)
    assert b"1" in read_listed(path)
    del folder


def test_the_lines_are_those_of_sha256sum(results):
    import hashlib

    lines = (results / manifest.NAME).read_text().splitlines()[:-2]
    assert lines == sorted(lines, key=lambda line: line[66:])
    for line in lines:
        assert line[:64] == hashlib.sha256((results / line[66:]).read_bytes()).hexdigest()


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no results"):
        verify(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        verify(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
