import json

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.provenance import provenance
from ata_gym.bench.experiment.run import Job
from ata_gym.bench.experiment.store import Folder, begin, check_code, open_folder, save_tree, write_frame
from ata_gym.utils.sealed import DamagedError

CONFIG = {"rounds": 10, "seeds": 2, "pool": "a" * 64}


def test_the_folder_of_a_scenario_is_opened_again(tmp_path):
    """Also of one whose changes hold tuples, which are lists in the file."""
    for name in ("five-workers", "changing-spot", "changing-permuted-linear-n51", "drawn-6-v1"):
        config = Experiment.on_scenario(name, rounds=2, seeds=1).config()
        folder = open_folder(tmp_path / name, config)
        before = (folder.path / "config.json").read_bytes()
        assert open_folder(tmp_path / name, dict(config)) == folder
        assert (folder.path / "config.json").read_bytes() == before


@pytest.mark.parametrize(("text", "config", "told"), [
    (None, {**CONFIG, "rounds": 20, "price": 1.5}, "another configuration: rounds is 10 there and 20 .* null .* 1.5"),
    *((text, CONFIG, "is damaged") for text in ("{", "[1]", "")),
])  # fmt: skip
def test_a_folder_of_another_configuration_is_refused_with_what_differs(tmp_path, text, config, told):
    """What it holds is left as it was."""
    open_folder(tmp_path, CONFIG)
    file = tmp_path / "config.json"
    if text is not None:
        file.write_text(text)
    before = file.read_text()
    with pytest.raises(ValueError, match=told):
        open_folder(tmp_path, config)
    assert file.read_text() == before


def test_names_of_policies_make_distinct_file_names(tmp_path):
    names = ["ata", "my.package:Ata", "my.package/Ata", "../ata", "my.package%3AAta"]
    paths = {Folder(tmp_path).result(name) for name in names}
    assert len(paths) == len(names)
    assert {path.parent for path in paths} == {tmp_path / "results"}


def test_timings_of_several_policies_are_kept_and_damaged_ones_do_not_stop_a_run(tmp_path):
    folder, timings = open_folder(tmp_path, CONFIG), tmp_path / "timings.json"
    folder.note_timing("ata", 2.0, 100)
    folder.note_timing("uta", 4.0, 100)
    uta = {"seconds": 4.0, "rounds_per_second": 25.0}
    assert json.loads(timings.read_text()) == {"ata": {"seconds": 2.0, "rounds_per_second": 50.0}, "uta": uta}
    timings.write_text("[")
    with pytest.warns(UserWarning, match="damaged"):
        folder.note_timing("uta", 4.0, 100)
    assert json.loads(timings.read_text()) == {"uta": uta}


def played(tmp_path):
    folder = open_folder(tmp_path / "out", CONFIG)
    frame = pl.DataFrame({"policy": ["ata"] * 500, "runtime": np.arange(500.0)})
    write_frame(folder.result("ata"), frame, provenance("ata"))
    return folder


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_damage_of_a_result_is_noticed(tmp_path, where, bit):
    """A flipped bit, and files that are cut, swapped or lost."""
    folder = played(tmp_path)
    path = folder.result("ata")
    whole, flipped = path.read_bytes(), bytearray(path.read_bytes())
    flipped[int(where * len(whole))] ^= 1 << bit
    for content in (bytes(flipped), whole[: len(whole) // 2], b"", whole * 2):
        path.write_bytes(content)
        with pytest.raises(DamagedError, match=r"ata\.parquet is damaged.*delete"):
            folder.results(["ata"])
    path.write_bytes(whole)
    note = path.with_suffix(".json")
    note.write_text("{")
    with pytest.raises(DamagedError):
        folder.results(["ata"])
    for lost in (note, path):
        assert folder.finished("ata")
        lost.unlink()
        assert not folder.finished("ata")
        lost.write_bytes(whole)


def test_what_other_code_has_made_is_told_apart(tmp_path):
    folder = played(tmp_path)
    experiment = Experiment.on_scenario("icml2025-regret", rounds=10, seeds=2)
    ata, uta = (Job(experiment, name, folder).made() for name in ("ata", "uta"))
    assert (ata.changed(), uta.changed()) == (None, None)
    edited = {**ata.by, "code": {**ata.by["code"], "ata_gym.pools.pool": ""}}
    write_frame(folder.result("ata"), pl.DataFrame({"policy": ["ata"]}), edited)
    begin(folder.checkpoint("uta"), {**uta.by, "code": {**uta.by["code"], "my_const": ""}})
    for _ in range(2):
        save_tree(folder.checkpoint("uta"), (1.0,))
    folder.checkpoint("uta").unlink()  # a kill between the two steps of a save leaves the one before
    assert (ata.changed(), uta.changed()) == ("the code of ata-gym (ata_gym.pools.pool)", "the code of uta (my_const)")
    with pytest.raises(ValueError, match=r"pool\) .* of ata were made; .*my_const\) .* of uta were .*--rerun-changed"):
        check_code([ata, uta], rerun_changed=False)
    assert folder.finished("ata")
    check_code([ata, uta], rerun_changed=True)
    assert not [path for path in tmp_path.rglob("*.json") if path.parent.name in ("results", "checkpoints")]
