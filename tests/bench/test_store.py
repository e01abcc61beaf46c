import gc
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from filelock import FileLock, Timeout

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.store.claim import HOLDER, LOCK, claim, is_ours
from ata_gym.bench.store.folder import (
    Folder,
    begin,
    check_code,
    open_folder,
    save_tree,
    verify,
    write_frame,
)
from ata_gym.bench.store.note import read_note, write_note
from ata_gym.bench.store.provenance import provenance
from ata_gym.utils.files import manifest
from ata_gym.utils.files.atomic import write_whole
from ata_gym.utils.files.sealed import DamagedError, save_checkpoint

CONFIG = {"rounds": 10, "seeds": 2, "pool": "a" * 64}
OPEN = (
    "import sys; from ata_gym.bench.store.folder import open_folder; open_folder(sys.argv[1],"
    " {'rounds': 1})"
)


def test_a_folder_is_one_processes_until_it_lets_go(tmp_path):
    path = tmp_path / "out"
    folder = open_folder(path, {"rounds": 1})
    assert claim(path) is folder.claim
    other = subprocess.run(
        [sys.executable, "-c", OPEN, path],
        capture_output=True,
        text=True,
        check=False,
    )
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
        LOCK,
        ".ata-gym.sums.lock",
        manifest.NAME,
        "checkpoints",
        "config.json",
        "results",
    ]


@pytest.mark.parametrize("name", ["thesis.txt", ".part-mine", "results"])
def test_a_folder_with_foreign_files_is_refused_and_left_as_it_is(tmp_path, name):
    (tmp_path / "deep").mkdir()
    for file in (tmp_path / name, tmp_path / "deep" / ".part-1-x"):
        file.write_text("precious")
    with pytest.raises(ValueError, match="holds files that are not of ata-gym"):
        open_folder(tmp_path, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["deep", name])
    assert (tmp_path / "deep" / ".part-1-x").read_text() == "precious"


ROOMS = (
    "",
    "results",
    "checkpoints",
    "allocations",
    "plots",
    "sources",
    "failures",
    "methods/deep",
)


def test_only_half_written_files_of_ours_are_cleared(tmp_path):
    open_folder(tmp_path, {})
    inner = open_folder(tmp_path / "scenarios" / "one", {})  # it may be another process's
    gc.collect()
    foreign = [
        tmp_path / "plots" / ".part-of-my-thesis",
        tmp_path / ".part-mine",
        inner.path / ".part-7-config.json",
    ]
    ours = [tmp_path / room / ".part-7-ata.parquet" for room in ROOMS]
    for file in (*foreign, *ours):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("half")
    open_folder(tmp_path, {})
    assert [file.exists() for file in (*foreign, *ours)] == [*[True] * 3, *[False] * len(ours)]


@pytest.mark.skipif(os.name == "nt", reason="needs links of POSIX")
@pytest.mark.parametrize(
    "link",
    ["results", "plots", "checkpoints", "scenarios/one", LOCK, manifest.LOCK],
)
def test_a_link_that_leads_out_is_refused_by_every_door_and_what_it_leads_to_stays(tmp_path, link):
    outside = tmp_path / "outside"
    out = tmp_path / "out"
    if link in (LOCK, manifest.LOCK):
        outside.write_text("precious")
    else:
        outside.mkdir()
        (outside / ".part-7-ata.parquet").write_text("precious")
    folder = open_folder(out, {})
    write_note(out, "bench", ["bench"], {})
    del folder
    gc.collect()
    place = out / link
    if place.is_dir():
        place.rmdir()
    else:
        place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(outside)
    for door in (claim, lambda path: open_folder(path, {}), read_note):
        with pytest.raises(ValueError, match=f"{place} is a link that leads out of {out}"):
            door(out)
    assert any("is a link that leads out" in one.fault for one in verify(out))
    if outside.is_file():
        kept = outside
    else:
        kept = outside / ".part-7-ata.parquet"
    assert kept.read_text() == "precious"
    place.unlink()
    (out / "elsewhere").mkdir()
    if link == "plots":
        place.symlink_to("elsewhere")  # inside, a link may lead anywhere
    open_folder(out, {})


@pytest.mark.skipif(os.name == "nt", reason="needs links of POSIX")
def test_a_link_in_a_circle_is_replaced_or_refused_and_a_folder_may_be_a_link(tmp_path):
    circle = tmp_path / "circle"
    real = tmp_path / "real"
    circle.symlink_to(circle)
    write_whole(circle, lambda part: part.write_text("new"))
    assert circle.read_text() == "new"
    (tmp_path / "other").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="other"):
        claim(tmp_path / "other")
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    open_folder(tmp_path / "link", {})
    assert (real / "config.json").exists()


def test_a_folder_that_another_command_claims_at_this_moment_is_not_foreign(tmp_path, monkeypatch):
    def look(path):
        found = is_ours(path)
        (tmp_path / LOCK).touch()
        return found

    monkeypatch.setattr("ata_gym.bench.store.claim.is_ours", look)
    claim(tmp_path)


def test_the_folder_of_a_scenario_is_opened_again(tmp_path):
    for name in ("five-workers", "changing-spot", "changing-permuted-linear-n51", "drawn-6-v1"):
        config = Experiment.on_scenario(name, rounds=2, seeds=1).config()
        folder = open_folder(tmp_path / name, config)
        before = (folder.path / "config.json").read_bytes()
        assert open_folder(tmp_path / name, dict(config)) == folder
        assert (folder.path / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "config", "told"),
    [
        (
            None,
            {**CONFIG, "rounds": 20, "price": 1.5},
            "another configuration: rounds is 10 there and 20 .* null .* 1.5",
        ),
        *((text, CONFIG, "is damaged") for text in ("{", "[1]", "")),
    ],
)
def test_a_folder_of_another_configuration_is_refused_with_what_differs(
    tmp_path,
    text,
    config,
    told,
):
    open_folder(tmp_path, CONFIG)
    file = tmp_path / "config.json"
    if text is not None:
        file.write_text(text)
    before = file.read_text()
    with pytest.raises(ValueError, match=told):
        open_folder(tmp_path, config)
    assert file.read_text() == before


def test_names_of_policies_make_distinct_file_names(tmp_path):
    names = [
        "ata",
        "my.package:Ata",
        "my.package/Ata",
        "../ata",
        "my.package%3AAta",
        "..",
        "ü" * 100,
        "\udcff",
    ]
    names += ["x" * 1000, "x" * 999, "y" + "x" * 999, ":" * 90, "x" * 199 + ":"]
    folder = Folder(tmp_path)
    for room in (
        folder.result,
        folder.allocations,
        folder.checkpoint,
        folder.source,
        folder.failure,
    ):
        paths = {room(name) for name in names}
        assert (len(paths), len({path.parent for path in paths})) == (len(names), 1)
        for path in paths:
            path.parent.mkdir(exist_ok=True)
            for step in (b"first", b"second"):
                save_checkpoint(path, step)
            path.with_name(f"{path.name}.previous").rename(
                path.with_name(f"{path.name}.previous.damaged"),
            )
        assert {path.read_bytes()[:6] for path in paths} == {b"second"}


def test_timings_of_several_policies_are_kept_and_damaged_ones_do_not_stop_a_run(tmp_path):
    folder = open_folder(tmp_path, CONFIG)
    timings = tmp_path / "timings.json"
    folder.note_timing("ata", 2.0, 100)
    folder.note_timing("uta", 4.0, 100)
    uta = {"seconds": 4.0, "rounds_per_second": 25.0}
    assert json.loads(timings.read_text()) == {
        "ata": {"seconds": 2.0, "rounds_per_second": 50.0},
        "uta": uta,
    }
    timings.write_text("[")
    with pytest.warns(UserWarning, match="damaged"):
        folder.note_timing("uta", 4.0, 100)
    assert json.loads(timings.read_text()) == {"uta": uta}


def played(tmp_path):
    folder = open_folder(tmp_path / "out", CONFIG)
    frame = pl.DataFrame({"policy": ["ata"] * 500, "runtime": np.arange(500.0)})
    write_frame(folder.result("ata"), frame, provenance("ata"))
    return folder


@pytest.mark.parametrize("ending", [".parquet", ".json"])
def test_damage_of_a_result_is_noticed(tmp_path, ending):
    folder = played(tmp_path)
    file = folder.result("ata").with_suffix(ending)
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], whole * 2, b""):
        file.write_bytes(content)
        with pytest.raises(DamagedError, match=rf"ata\{ending} is damaged.*delete"):
            folder.results(["ata"])
    assert folder.finished("ata")
    file.unlink()
    assert not folder.finished("ata")


def test_what_other_code_has_made_is_told_apart(tmp_path):
    folder = played(tmp_path)
    experiment = Experiment.on_scenario("icml2025-regret", rounds=10, seeds=2)
    ata, uta = (Job(experiment, name, folder).product() for name in ("ata", "uta"))
    assert (ata.changed(), uta.changed()) == (None, None)
    edited = {**ata.by, "code": {**ata.by["code"], "ata_gym.pools.pool": ""}}
    write_frame(folder.result("ata"), pl.DataFrame({"policy": ["ata"]}), edited)
    begin(folder.checkpoint("uta"), {**uta.by, "code": {**uta.by["code"], "my_const": ""}})
    for _ in range(2):
        save_tree(folder.checkpoint("uta"), (1.0,))
    folder.checkpoint(
        "uta",
    ).unlink()  # a kill between the two steps of a save leaves the one before
    assert (ata.changed(), uta.changed()) == (
        "the code of ata-gym (ata_gym.pools.pool)",
        "the code of uta (my_const)",
    )
    with pytest.raises(
        ValueError,
        match=r"pool\) .* of ata were made; .*my_const\) .* of uta were .*--rerun-changed",
    ):
        check_code([ata, uta], rerun_changed=False)
    assert folder.finished("ata")
    check_code([ata, uta], rerun_changed=True)
    assert not [
        path for path in tmp_path.rglob("*.json") if path.parent.name in ("results", "checkpoints")
    ]
