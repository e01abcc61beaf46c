import gzip

import polars as pl
import pytest

from ata_gym.bench.recordings import make_trace
from ata_gym.pools import read_trace

TABLE = "machine,step,items,speed\nb,1,10,2\na,1,9,3\na,2,8,4\nb,2,12,3\n"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "speeds.csv"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("step", [None, "step"])
def test_a_trace_holds_the_computed_times_in_the_order_of_the_file(source, tmp_path, ending, step):
    target = tmp_path / "new" / f"trace.{ending}"
    pool = make_trace(source, target, worker="machine", duration="items / speed", round=step)
    frame = pl.read_csv(target) if ending == "csv" else pl.read_parquet(target)
    assert frame.columns == ["worker", *(["round"] if step else []), "duration"]
    assert frame["duration"].to_list() == [5.0, 3.0, 2.0, 4.0]
    assert pool == read_trace(target, worker="worker", duration="duration", round="round" if step else None)
    assert pool.record(0).tolist() == [3.0, 2.0]
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_the_same_bytes_each_time_and_from_every_format(source, tmp_path):
    zipped, parquet, made = tmp_path / "speeds.csv.gz", tmp_path / "speeds.parquet", tmp_path / "made.parquet"
    zipped.write_bytes(gzip.compress(TABLE.encode()))
    pl.read_csv(source).write_parquet(parquet)
    contents = set()
    for path in (source, source, zipped, parquet):
        make_trace(path, made, worker="machine", duration="items / speed")
        contents.add(made.read_bytes())
    assert len(contents) == 1


@pytest.mark.parametrize(("change", "sentence"), [
    ({"duration": "items / nothing"}, "cannot be computed"),
    ({"duration": "items /"}, "cannot be computed"),
    ({"duration": ""}, "cannot be computed"),
    ({"duration": "machine"}, "cannot be computed"),
    ({"duration": "items - speed * 5"}, "not negative"),
    ({"duration": "items / (speed - 2)"}, "finite"),
    ({"duration": "speed * NULL"}, "finite"),
    ({"worker": "nobody"}, "no column 'nobody' for the worker"),
    ({"round": "nothing"}, "no column 'nothing' for the round"),
    ({"round": "items"}, "lacks worker"),
    ({"source": "empty.csv"}, "empty"),
    ({"source": "header.csv", "duration": "items"}, "header"),
    ({"source": "noise.parquet"}, "noise"),
    ({"source": "nothing.csv"}, r"no file .*nothing\.csv"),
    *(({"target": name}, r"\.csv|choose another") for name in ("speeds.csv", "", "trace.txt")),
])  # fmt: skip
def test_what_makes_no_trace_is_refused_and_nothing_is_left(source, tmp_path, change, sentence):
    for name, content in (("empty.csv", b""), ("header.csv", b"machine,items\n"), ("noise.parquet", b"\0\1\2")):
        (tmp_path / name).write_bytes(content)
    usual = {"source": "speeds.csv", "target": "out/trace.parquet", "worker": "machine", "duration": "items / speed"}
    given = usual | change
    with pytest.raises((ValueError, FileNotFoundError), match=sentence) as caught:
        make_trace(tmp_path / given.pop("source"), tmp_path / given.pop("target"), **given)
    assert ".trace-" not in str(caught.value)
    assert not list(tmp_path.rglob("trace.*"))
    assert source.read_text() == TABLE
