"""Traces from files: what is read, in which order, and what is refused."""

import gzip

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from ata_gym import pools
from ata_gym.pools import measured, read_trace

polars = pytest.importorskip("polars", reason="traces are read through polars: the extra bench")

NAMES = {"worker": "machine", "duration": "seconds"}
TEXT = "machine,step,note,seconds\n10,2,x,5\n9,1,y,1.5\n10,1,x,4\n9,2,,2.5\n"


def write(folder, text, name="times.csv"):
    path = folder / name
    if isinstance(text, bytes):
        data = text
    else:
        data = text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.fixture(params=["times.csv", "times.csv.gz", "times.parquet", "TIMES.CSV", "times[1].csv"])
def path(request, tmp_path):
    if not request.param.endswith("parquet"):
        return write(tmp_path, TEXT, request.param)
    columns = {"machine": [10, 9, 10, 9], "step": [2, 1, 1, 2], "note": ["x", "y", "x", None]}
    polars.DataFrame({**columns, "seconds": [5.0, 1.5, 4.0, 2.5]}).write_parquet(
        tmp_path / request.param,
    )
    return tmp_path / request.param


def test_by_task_in_file_order_and_by_round_in_order_of_rounds(path):
    assert read_trace(path, **NAMES) == pools.trace([[1.5, 2.5], [5, 4]])
    assert read_trace(str(path), **NAMES, end="truncate") == pools.trace(
        [[1.5, 2.5], [5, 4]],
        end="truncate",
    )
    pool = read_trace(path, **NAMES, round="step", end="truncate")
    assert pool == pools.trace([[1.5, 2.5], [4, 5]], replay="round", end="truncate")


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), names=st.sampled_from(["integers", "text"]))
def test_any_order_of_rows_gives_the_same_rounds(tmp_path, data, names):
    n = data.draw(st.integers(1, 5))
    k = data.draw(st.integers(1, 6))
    if names == "integers":
        labels = [7, -3, 100, 20, 3][:n]
    else:
        labels = ["b", "a", "10", "9", "ä"][:n]
    times = np.random.default_rng(n * k).exponential(size=(n, k))
    rows = data.draw(st.permutations([(i, j) for i in range(n) for j in range(k)]))
    lines = [f"{labels[i]},{11 * j - 20},{float(times[i, j])!r}" for i, j in rows]
    path = write(tmp_path, "\n".join(["machine,step,seconds", *lines]))
    pool = read_trace(path, **NAMES, round="step")
    numeric = all(str(label).lstrip("-").isdigit() for label in labels)
    order = sorted(range(n), key=lambda i: int(labels[i]) if numeric else str(labels[i]))
    assert pool == pools.trace(list(times[order]), replay="round")


def test_a_last_round_that_was_cut_is_left_out(tmp_path):
    path = write(tmp_path, TEXT + "9,3,,8\n")
    assert read_trace(path, **NAMES, round="step") == pools.trace(
        [[1.5, 2.5], [4, 5]],
        replay="round",
    )
    assert read_trace(path, **NAMES) == pools.trace([[1.5, 2.5, 8], [5, 4]])


def test_text_workers_blank_lines_spaces_and_categories(tmp_path):
    text = "machine,step,seconds\nb, 1, 2\n\na,1,1e0\nb,2,3\na,2,0\n\n\n"
    expected = pools.trace([[1, 0], [2, 3]], replay="round")
    assert read_trace(write(tmp_path, text), **NAMES, round="step") == expected
    frame = polars.DataFrame(
        {"machine": ["b", "a", "b", "a"], "step": [1, 1, 2, 2], "seconds": [2, 1, 3, 0]},
    )
    frame = frame.with_columns(polars.col("machine").cast(polars.Categorical))
    frame.write_parquet(tmp_path / "t.parquet")
    assert read_trace(tmp_path / "t.parquet", **NAMES, round="step") == expected


HEAD = "machine,step,seconds\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "cannot be read"),
        (HEAD, "holds no rows"),
        (HEAD + "\n\n", "holds no rows"),
        (
            "machine,step,time\n1,1,1\n",
            r"no column 'seconds' for the duration; the columns are \['machine', 's",
        ),
        ("machine,round,seconds\n1,1,1\n", "no column 'step' for the round"),
        ("machine,step,seconds,seconds\n1,1,1,2\n", "two columns are called 'seconds'"),
        (HEAD + "1,1,2,5\n", "cannot be read"),
        (HEAD.encode() + b"1,\xff,2\n", "cannot be read"),
        (
            HEAD + "1,1,2\n1,2,\n",
            "each duration must be a finite number, not negative; data row 2 has None",
        ),
        *(
            (f"{HEAD}1,1,{bad}\n", f"data row 1 has '{bad}'")
            for bad in ("fast", "-2", "nan", "inf")
        ),
        (HEAD + "1,1,0\n", "all 0"),
        (HEAD + ",1,2\n", "each worker must be an integer or text; data row 1 has None"),
        *(
            (f"{HEAD}1,{bad},2\n", f"each round must be an integer; data row 1 has '{bad}'")
            for bad in ("one", "1.5")
        ),
        (HEAD + "1,1,2\n1,1,3\n", "round 1 holds worker 1 more than once"),
        (HEAD + "a,1,2\nb,1,3\na,2,2\na,3,2\nb,3,1\n", "round 2 lacks worker 'b'; only the last"),
        (HEAD + "a,1,2\nb,1,3\na,2,2\na,3,2\n", "round 2 lacks worker 'b'"),
        (HEAD + "a,1,2\nb,2,3\n", "round 1 lacks worker 'b'"),
    ],
)
def test_bad_files_give_one_clear_error(tmp_path, text, sentence):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=sentence) as caught:
        read_trace(path, **NAMES, round="step")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "error", "sentence"),
    [
        ("none.csv", {}, FileNotFoundError, "no file"),
        ("times.txt", {}, ValueError, r"ends in .csv, .csv.gz, .parquet, .jsonl or .ndjson"),
        (".", {}, ValueError, r"ends in .csv, .csv.gz, .parquet, .jsonl or .ndjson"),
        ("times.csv", {"duration": "machine"}, ValueError, "must be different columns"),
        ("times.csv", {"end": "stop"}, ValueError, "end must be one of wrap, truncate"),
        ("damaged.parquet", {}, ValueError, "cannot be read"),
        ("damaged.csv.gz", {}, ValueError, "cannot be read"),
        ("types.parquet", {}, ValueError, "duration column cannot be of type Boolean"),
        (
            "types.parquet",
            {"duration": "text"},
            ValueError,
            "worker column cannot be of type Float64",
        ),
    ],
)
def test_bad_arguments_and_files_that_are_not_what_their_name_says(
    tmp_path,
    name,
    options,
    error,
    sentence,
):
    for good in ("times.csv", "times.txt"):
        write(tmp_path, TEXT, good)
    for damaged in ("damaged.parquet", "damaged.csv.gz"):
        (tmp_path / damaged).write_bytes(b"\x1f\x8bnothing of the kind")
    types = {"machine": [1.5], "seconds": [True], "text": ["2"]}
    polars.DataFrame(types).write_parquet(tmp_path / "types.parquet")
    with pytest.raises(error, match=sentence):
        read_trace(tmp_path / name, **(NAMES | options))


@pytest.mark.parametrize(
    ("name", "function"),
    [("t.csv", "read_csv"), ("t.parquet", "scan_parquet")],
)
def test_a_panic_of_the_reader_is_a_sentence(tmp_path, monkeypatch, name, function):
    def panic(*_, **__):
        raise polars.exceptions.PanicException("Thrift out of range")

    monkeypatch.setattr(polars, function, panic)
    with pytest.raises(ValueError, match=f"{name}: the file cannot be read: Thrift out of range"):
        read_trace(write(tmp_path, TEXT, name), **NAMES)


def test_the_recording_of_a_processor_may_end_the_episode(request):
    path = request.config.rootpath / "ata_gym" / "pools" / "data" / "measured-cpu.csv"
    pool = measured()
    assert pool == read_trace(path, worker="worker", duration="duration")
    assert pool.mean() == pytest.approx(pool.mean()[0] * np.arange(1, 9), rel=0.3)
    env = gym.make("ata_gym/TaskAllocation-v0", pool=measured(end="truncate"), budget=50)
    env.reset(seed=0)
    assert [env.step(np.eye(8, dtype=int)[0] * 50)[3] for _ in range(3)] == [False, False, True]
