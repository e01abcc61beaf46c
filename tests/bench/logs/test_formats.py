"""Every format has an example that is read as its truth; every refused kind is refused by name."""

import gzip
import json
import os
import pickle
import re
import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ata_gym.bench.logs import read_log
from ata_gym.bench.logs.reading import FORMATS
from ata_gym.bench.logs.refused import REFUSED
from docs import formats as page, tables
from tests.bench.logs import examples

ROOT = Path(__file__).parents[3]
REFUSED_EXAMPLES = [
    (name, index) for name, writers in examples.REFUSED.items() for index in range(len(writers))
]


def test_every_format_and_every_refused_kind_has_an_example_and_a_name_of_its_own():
    assert sorted(examples.READ) == sorted(one.name for one in FORMATS)
    assert sorted(examples.REFUSED) == sorted(one.name for one in REFUSED)
    assert all(one.times_from.endswith(".") for one in FORMATS)


@pytest.mark.parametrize("name", examples.READ)
def test_a_log_of_each_format_is_read_as_its_truth_and_by_that_format(name, tmp_path):
    path = examples.READ[name](tmp_path)
    first = next(one.name for one in FORMATS if one.recognises(path))
    assert first == name
    log = read_log(path)
    assert len(log.workers) == examples.RANKS
    # the beginning of the first step may not be in a log
    steps = len(log.seconds)
    assert steps >= examples.STEPS - 1
    # TensorBoard keeps single precision, and Ray whole microseconds of the day
    np.testing.assert_allclose(log.seconds, examples.times()[-steps:], rtol=2e-5)
    assert (log.seconds.argmax(axis=1) == examples.SLOWEST).all()


@pytest.mark.parametrize(("name", "index"), REFUSED_EXAMPLES)
def test_a_refused_kind_is_refused_by_its_name_with_the_cure(name, index, tmp_path):
    path = examples.REFUSED[name][index](tmp_path)
    (kind,) = [one for one in REFUSED if one.name == name]
    assert [one.name for one in REFUSED if one.recognises(path)] == [name]
    for asked in (path, tmp_path):
        with pytest.raises(ValueError, match=re.escape(f"{kind.name}, which {kind.reason}")) as e:
            read_log(asked)
        assert str(e.value).endswith(f": {kind.cure}")
        assert str(e.value).startswith(f"{asked}: ")


@pytest.mark.parametrize("name", examples.READ)
def test_no_refused_kind_takes_a_log_that_is_read(name, tmp_path):
    path = examples.READ[name](tmp_path)
    files = [file for file in (path, *tmp_path.rglob("*")) if file.is_file()]
    assert not [kind.name for kind, file in product(REFUSED, files) if kind.recognises(file)]


@pytest.mark.parametrize("name", ["trainer_state.json of transformers", "a file of settings"])
def test_a_file_of_a_refused_kind_beside_a_log_changes_nothing(name, tmp_path):
    path = examples.READ["TraceML telemetry"](tmp_path)
    before = read_log(path)
    examples.REFUSED[name][0](tmp_path)
    np.testing.assert_array_equal(read_log(path).seconds, before.seconds)


def test_a_table_with_ranks_is_not_taken_for_one_of_a_tool(tmp_path):
    # columns that the tables of Lightning, Slurm and nvidia-smi have, too
    header = "epoch,JobID,State,power.draw,rank,step,seconds\n"
    rows = [
        f"0,7,RUNNING,300,{rank},{step},{seconds}\n"
        for (step, rank), seconds in np.ndenumerate(examples.times())
    ]
    (tmp_path / "metrics.csv").write_text(header + "".join(rows))
    np.testing.assert_allclose(read_log(tmp_path / "metrics.csv").seconds, examples.times())


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ('{"step_time": {}}', "step_time"),
        ('{"a": 1, "b": {"c": [2]}, "d": "e"}', "'a', 'b', 'd'"),
        ('{"results": {"mean": 1.0, "ranks": {"0": 2.0, "1": 3.0}}}', "results"),
    ],
)
def test_json_of_an_unknown_kind_is_refused_with_its_keys_and_what_is_read(content, keys, tmp_path):
    path = tmp_path / "final_summary.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="a JSON object with the keys") as error:
        read_log(path)
    assert keys in str(error.value)
    assert "torch.profiler" in str(error.value)
    assert "rank, step and seconds" in str(error.value)


def test_a_database_of_an_unknown_kind_is_refused_with_its_tables(tmp_path):
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE experiments (id INTEGER)")
    with pytest.raises(ValueError, match=r"a SQLite database with the tables \['experiments'\]"):
        read_log(path)


def test_a_folder_that_may_not_be_listed_is_not_taken_for_an_empty_one(tmp_path, monkeypatch):
    examples.READ["PyTorch profiler traces"](tmp_path)
    closed = tmp_path / "rank2"
    closed.mkdir()
    scan = os.scandir

    def scan_others(path):
        # permissions do not hold for the owner of all files
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_others)
    with pytest.raises(PermissionError, match="rank2"):
        read_log(tmp_path)


ONE_FILE = ["Ray timeline", "Dask task stream", "Megatron-LM's text with --timing-log-option all"]


@pytest.mark.parametrize("name", ONE_FILE)
def test_a_folder_with_a_log_in_one_file_says_which_file_to_name(name, tmp_path):
    path = examples.READ[name](tmp_path)
    with pytest.raises(ValueError, match=re.escape(f"['{path.name}'] of the format")) as error:
        read_log(tmp_path)
    assert str(error.value).endswith("name the file")


@pytest.mark.parametrize("name", [*ONE_FILE, "TraceML telemetry"])
def test_a_log_in_one_file_beside_tables_of_ranks_changes_nothing(name, tmp_path):
    for rank in range(examples.RANKS):
        seconds = examples.times()[:, rank].tolist()
        (tmp_path / f"rank{rank}.csv").write_text("seconds\n" + "\n".join(map(str, seconds)))
    (tmp_path / "run").mkdir()
    if name == ONE_FILE[2] or name not in ONE_FILE:
        examples.READ[name](tmp_path / "run")
    np.testing.assert_allclose(read_log(tmp_path).seconds, examples.times())


@pytest.mark.parametrize("name", ONE_FILE)
def test_a_compressed_log_is_read_as_the_log(name, tmp_path):
    path = examples.READ[name](tmp_path)
    packed = tmp_path / f"{path.name}.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + path.read_bytes()))
    np.testing.assert_array_equal(read_log(packed).seconds, read_log(path).seconds)


@pytest.mark.parametrize("name", ONE_FILE[:2])
def test_tasks_that_were_saved_twice_count_once(name, tmp_path):
    path = examples.READ[name](tmp_path)
    expected = read_log(path).seconds
    path.write_text(json.dumps(2 * json.loads(path.read_text())))
    log = read_log(path)
    np.testing.assert_array_equal(log.seconds, expected)
    assert "24 tasks are there more than once, and count once." in log.remarks


def test_a_pickle_is_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "loaded",))

    (tmp_path / "trap.pickle").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="never loaded"):
        read_log(tmp_path / "trap.pickle")
    assert not (tmp_path / "loaded").exists()


def test_a_pattern_opens_the_text_of_a_tool(tmp_path):
    path = examples.REFUSED["the text of Megatron-LM"][0](tmp_path)
    # it is no longer refused as Megatron's, but by what the pattern does not find
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the sentence is of the reader of texts
        read_log(path, pattern=r"rank (?P<rank>\d+) (?P<ms>[\d.]+)")
    assert "Megatron-LM" not in str(error.value)


def test_the_page_shows_what_is_registered():
    shown = (ROOT / "docs/guide/formats.md").read_text(encoding="utf-8")
    printed = {found["command"]: found["table"] for found in tables.PRINTED.finditer(shown)}
    # needs the recordings, which are no part of this project
    del printed["python -m docs.public_recordings FOLDER"]
    assert printed == {
        "python -m docs.formats read": page.read_formats(),
        "python -m docs.formats refused": page.refused_kinds(),
    }
    assert all(one.name in shown for one in (*FORMATS, *REFUSED))
