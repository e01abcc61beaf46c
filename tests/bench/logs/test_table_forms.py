"""Every form in which tables are written gives the log of the plain table of the same times."""

import gzip
import json
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest

from ata_gym.bench.logs.formats import Options
from ata_gym.bench.logs.tables import FORMAT
from ata_gym.bench.logs.tables.rows import read_rows
from ata_gym.bench.logs.tables.times import seconds_of, whole_numbers
from tests.fuzz.damage import mutated

STEPS = 6
RANKS = 3
TIMES = np.round(0.1 + 0.01 * np.random.default_rng(0).random((STEPS, RANKS)), 6)
"""(steps, ranks) in seconds: whole microseconds."""
TIMES[:, 1] *= 2
EACH = [(rank, step, float(TIMES[step, rank])) for step in range(STEPS) for rank in range(RANKS)]


def log_at(path, **options):
    return FORMAT.read(path, Options(**options))


def assert_same(log, unit="s"):
    """The log has the times of the plain table."""
    np.testing.assert_allclose(log.seconds, TIMES, rtol=1e-9)
    assert (log.tasks == 1).all()
    assert (list(log.workers), log.unit) == (["0", "1", "2"], unit)


def rows_of(path, **options):
    return read_rows(path, Options(**options)).frame


def table_of(rank):
    """(steps, 2) the table of one rank."""
    return pl.DataFrame({"step": range(STEPS), "seconds": TIMES[:, rank]})


def write(path, frame):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".jsonl":
        frame.write_ndjson(path)
    elif path.suffix == ".json":
        frame.write_json(path)
    elif path.suffix == ".arrow":
        frame.write_ipc(path)
    elif path.suffix == ".tsv":
        frame.write_csv(path, separator="\t")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        frame.write_csv(path)


PLAIN = pl.DataFrame(EACH, schema=["rank", "step", "seconds"], orient="row")


def text(separator=",", header=("rank", "step", "seconds"), line="\n", entry=str):
    rows = [header, *((rank, step, entry(time)) for rank, step, time in EACH)]
    return line.join(separator.join(map(str, row)) for row in rows) + line


# a folder with a table for each rank


@pytest.mark.parametrize(
    "name",
    [
        *("rank{}.csv", "rank_{}.csv", "metrics.{}.jsonl", "node{}/rank0.parquet", "{}.json"),
        *("rank{}/times.csv.gz", "job7-worker{}-of-3.tsv", "{}/metrics.csv", "RANK-{}.arrow"),
        *("logs/gpu8/rank={}/part.csv", "gpu{}.cluster.local.csv", "host4711-rank{}.csv"),
    ],
)
def test_the_rank_is_from_the_names_of_the_files(tmp_path, name):
    for rank in range(RANKS):
        write(tmp_path / name.format(rank), table_of(rank))
    log = log_at(tmp_path)
    assert_same(log)
    assert any("ranks are those in the names of the files" in remark for remark in log.remarks)


def test_ranks_in_names_are_numbers_and_machines_may_each_have_a_rank_of_the_same_number(tmp_path):
    for rank in range(11):
        frame = table_of(0).with_columns(pl.col("seconds") * (1 + rank))
        write(tmp_path / f"a/rank{rank}.csv", frame)
    for node in range(2):
        for slot in range(2):
            write(tmp_path / f"b/node{node}/rank{slot}.csv", table_of(slot))
    ranks = log_at(tmp_path / "a")
    assert ranks.workers == [str(rank) for rank in range(11)]
    np.testing.assert_allclose(ranks.seconds, TIMES[:, :1] * np.arange(1, 12), rtol=1e-9)
    nodes = log_at(tmp_path / "b")
    assert list(nodes.workers) == ["node0/rank0", "node0/rank1", "node1/rank0", "node1/rank1"]
    np.testing.assert_allclose(nodes.seconds, TIMES[:, [0, 1, 0, 1]])


def test_what_a_file_says_of_itself_comes_before_its_name(tmp_path):
    for rank, letter in enumerate("zyx"):
        frame = table_of(rank)
        write(tmp_path / f"rank/{letter}.csv", frame.with_columns(rank=pl.lit(rank)))
        # a name that is not usual for a column of workers
        write(tmp_path / f"mine/rank{2 - rank}.csv", frame.with_columns(my_rank=pl.lit(rank)))
        # all are on one machine, so that the names of the files must tell
        write(tmp_path / f"host/rank{rank}.csv", frame.with_columns(host=pl.lit("gpu0")))
    assert_same(log_at(tmp_path / "rank"))
    log = log_at(tmp_path / "mine")
    assert_same(log)
    assert "The ranks are taken from the column 'my_rank', one in each file." in log.remarks
    assert rows_of(tmp_path / "host")["rank"].unique().sort().to_list() == [0, 1, 2]


def test_tables_that_name_their_workers_are_put_together(tmp_path):
    half = STEPS // 2
    write(tmp_path / "one.csv", PLAIN.filter(pl.col("step") < half))
    write(tmp_path / "two.jsonl", PLAIN.filter(pl.col("step") >= half))
    assert_same(log_at(tmp_path))


def test_other_files_of_a_folder_are_named(tmp_path):
    for rank in range(RANKS):
        write(tmp_path / f"rank{rank}.csv", table_of(rank))
    (tmp_path / "config.json").write_text('{"lr": 0.1, "layers": [1, 2]}')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "loss.png").write_bytes(b"\x89PNG\0")
    (tmp_path / "notes.txt").write_text("It ran well.\n")
    (tmp_path / "err.log").write_text("")
    (tmp_path / ".hidden.csv").write_text("a\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/x.csv").write_text("a\n")
    write(tmp_path / "summary.csv", pl.DataFrame({"step": [1], "seconds": [2.0]}))
    log = log_at(tmp_path)
    assert_same(log)
    [remark] = [remark for remark in log.remarks if "left out" in remark]
    for name in ("config.json", "err.log", "list.json", "loss.png", "notes.txt"):
        assert name in remark
    assert remark.endswith("and 1 more.")
    assert "hidden" not in remark
    assert ".git" not in remark


def test_files_that_say_the_same_rank_and_step_are_refused_by_name(tmp_path):
    for run in ("run1", "run2"):
        for rank in range(2):
            write(tmp_path / f"runs/{run}/rank{rank}.csv", table_of(rank))
    write(tmp_path / "same/a.csv", PLAIN)
    write(tmp_path / "same/b.csv", PLAIN.filter(pl.col("step") == 3, pl.col("rank") == 1))
    write(tmp_path / "kinds/rank0.csv", table_of(0))
    write(tmp_path / "kinds/rank0.jsonl", table_of(0))
    write(tmp_path / "counted/a.csv", PLAIN.drop("step"))
    write(tmp_path / "counted/b.csv", PLAIN.drop("step"))
    for folder, sentence in (
        ("runs", r"run1/rank0\.csv and run2/rank0\.csv both hold rank 0, step 0"),
        ("same", r"a\.csv and b\.csv both hold rank 1, step 3"),
        ("kinds", r"rank0\.csv and rank0\.jsonl both hold rank 0, step 0"),
        ("counted", r"a\.csv and b\.csv both hold rank 0: "),
    ):
        with pytest.raises(ValueError, match=sentence):
            log_at(tmp_path / folder)


def test_names_that_tell_epochs_apart_are_no_ranks(tmp_path):
    for name in ("epoch{}.csv", "part-{}.csv", "train_{}.csv"):
        folder = tmp_path / name[:4]
        for number in range(2):
            write(folder / name.format(number), table_of(0))
        with pytest.raises(ValueError, match="tell no ranks: name the files rank0"):
            log_at(folder)


def test_a_folder_without_tables_is_refused_by_what_it_holds(tmp_path):
    with pytest.raises(ValueError, match=r"the folder is empty; what is read are \.csv"):
        log_at(tmp_path)
    (tmp_path / "a.png").write_bytes(b"\x89PNG\0")
    (tmp_path / "sub.csv").mkdir()
    with pytest.raises(ValueError, match=r"holds no table, but a\.png; tables are \.csv"):
        log_at(tmp_path)
    (tmp_path / "b.log").write_text("rank 0 took 3 ms\n")
    with pytest.raises(ValueError, match=r"b\.log: .* first line is 'rank 0 took 3 ms': give --pa"):
        log_at(tmp_path)
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    for rank in range(RANKS):
        write(tmp_path / f"rank{rank}.csv", table_of(rank))
    with pytest.raises(ValueError, match=r"^d\.parquet: the file cannot be read: "):
        log_at(tmp_path)


# a column for each rank


@pytest.mark.parametrize(
    ("names", "options"),
    [
        (["rank0", "rank1", "rank2"], {}),
        (["0", "1", "2"], {}),
        (["worker_0", "worker_1", "worker_2"], {}),
        (["r0", "r1", "r2"], {}),
        (["GPU 0", "GPU 1", "GPU 2"], {}),
        (['time{rank="0"}', 'time{rank="1"}', 'time{rank="2"}'], {"duration": "time"}),
        (['{job="a", rank="0"}', '{job="a", rank="1"}', '{job="a", rank="2"}'], {}),
        (["rank0_time", "rank1_time", "rank2_time"], {"duration": "time"}),
        (["step_time_0", "step_time_1", "step_time_2"], {"duration": "step_time"}),
        (["step_time/rank0", "step_time/rank1", "step_time/rank2"], {"duration": "step_time"}),
    ],
)
def test_a_column_for_each_rank(tmp_path, names, options):
    path = tmp_path / "wide.csv"
    wide = pl.DataFrame(dict(zip(names, TIMES.T, strict=True)))
    wide.with_row_index("step").select("step", *names).write_csv(path)
    assert_same(log_at(path, **options), unit="")
    # without a column of steps, the rows count
    for other in ([], ["timestamp"], ["Time"], ["index"]):
        wide.with_row_index("Time").with_columns(
            timestamp=pl.lit("2026-01-01T00:00:00.5"),
            index=7 * pl.col("Time"),
        ).select(*other, *names).write_csv(path)
        log = log_at(path, **options)
        assert_same(log, unit="")
        assert bool(log.remarks) == (not options)
    path.write_text(path.read_text().replace("index", "", 1))
    assert_same(log_at(path, **options), unit="")


def test_a_column_for_each_rank_has_the_unit_of_its_name(tmp_path):
    path = tmp_path / "wide.csv"
    for names in ("rank{}_ms", "rank{} (ms)", "rank{} [ms]", "ms_rank{}"):
        columns = {names.format(rank): 1e3 * TIMES[:, rank] for rank in range(RANKS)}
        pl.DataFrame(columns).write_csv(path)
        assert_same(log_at(path))


def test_starts_and_ends_of_each_rank(tmp_path):
    columns = {"time": range(STEPS)}
    for rank in range(RANKS):
        columns[f"rank{rank}_start_s"] = 7.0
        columns[f"rank{rank}_end_s"] = 7.0 + TIMES[:, rank]
    pl.DataFrame(columns).write_csv(tmp_path / "wide.csv")
    assert_same(log_at(tmp_path / "wide.csv"))


def test_an_empty_cell_is_a_worker_that_is_not_in_the_step(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("rank0,rank1\n1,2\n3,\n5,6\n7,8\n")
    log = log_at(path)
    assert log.seconds.tolist() == [[1, 2], [5, 6], [7, 8]]
    assert list(log.steps) == ["1", "3", "4"]


def test_a_table_with_a_worker_or_a_time_of_its_own_has_no_column_for_each_rank(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("step,step_time,gpu0_util,gpu1_util\n1,2,3,4\n")
    assert rows_of(path).columns == ["step", "step_time", "gpu0_util", "gpu1_util"]
    path.write_text("rank,step,t0,t1\n0,1,3,4\n")
    assert rows_of(path)["duration"].to_list() == [1]
    path.write_text("step,loss,lr\n0,1,3\n")
    assert rows_of(path).columns == ["step", "loss", "lr"]


def wandb_export(metrics, apart=0.0):
    """The text of an export of W&B, of runs 0, 1, 2."""
    columns = {"Step": [str(step) for step in range(STEPS)]}
    for run in range(RANKS):
        for metric, times in metrics.items():
            name = f"{run} - {metric}"
            columns[name] = times[:, run]
            columns[f"{name}__MIN"] = times[:, run] - apart
            columns[f"{name}__MAX"] = times[:, run]
    return pl.DataFrame(columns).write_csv(quote_style="always")


def test_the_export_of_wandb(tmp_path):
    path = tmp_path / "wandb.csv"
    path.write_text(wandb_export({"step_time": TIMES}))
    log = log_at(path)
    assert_same(log, unit="")
    assert not log.remarks
    path.write_text(wandb_export({"step_time": TIMES, "perf/loss_time": 7 * TIMES}))
    assert_same(log_at(path, duration="step_time"), unit="")
    assert rows_of(path).columns == ["rank", "Step", "step_time", "perf/loss_time"]
    path.write_text(wandb_export({"step_time": TIMES}, apart=0.01))
    assert "averages of several," in log_at(path).remarks[0]


def test_runs_of_wandb_keep_their_names_and_their_own_axis(tmp_path):
    path = tmp_path / "wandb.csv"
    # each run has points of its own on an axis of time
    path.write_text(
        '"Relative Time (Process)","run-a - step_time","run-b - step_time"\n'
        '0.1,"1",\n0.2,,"2"\n0.3,"3",\n0.4,,"4"\n',
    )
    log = log_at(path)
    assert list(log.workers) == ["run-a", "run-b"]
    assert log.seconds.tolist() == [[1, 2], [3, 4]]


# separated text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("times.csv", text()),
        ("times.csv", text(";")),
        ("times.csv", text(";", entry=lambda time: str(time).replace(".", ","))),
        ("times.tsv", text("\t")),
        ("times.tab", text("\t", entry=lambda time: str(time).replace(".", ","))),
        ("times.txt", text("\t")),
        ("times.txt", text("|")),
        ("times.txt", text(" ")),
        ("times.dat", text("   ")),
        ("times", text()),
        ("times.csv", "\ufeff" + text()),
        ("times.csv", text(line="\r\n")),
        ("times.csv", "sep=;\n" + text(";")),
        ("times.csv", " \n" + text(line=" \n  \n")),
        ("times.csv", "\n\n" + text(line="\n\n")),
        ("times.csv", "# a job\n#\n" + text() + "# the end\n"),
        ("times.csv", "  # a job\n" + text(line="\n  # more\n")),
        ("times.txt", "# " + text(" ")),
        ("times.txt", "# a job of 3 ranks\n#" + text("\t")),
        ("times.csv", "# " + text(", ")),
        ("times.csv", text(" , ", header=(" rank", ' "step"', "seconds "))),
        ("times.csv", text(",", entry=lambda time: f'"{time}"')),
        ("times.csv", text(",", header=("rank", "step", "seconds,"), entry=lambda one: f"{one},")),
    ],
)
def test_separated_text(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert_same(log_at(path))
    (tmp_path / "zipped").mkdir()
    zipped = tmp_path / f"zipped/{name}.gz"
    zipped.write_bytes(gzip.compress(content.encode()))
    assert_same(log_at(zipped))
    # as spreadsheets write "Unicode text"
    path.write_bytes(content.lstrip("\ufeff").encode("utf-16"))
    assert_same(log_at(path))


def test_a_table_drawn_with_bars(tmp_path):
    lines = text(" | ").splitlines()
    drawn = "\n".join(f"| {line} |" for line in [lines[0], "---|---:|---", *lines[1:]])
    (tmp_path / "times.txt").write_text(drawn)
    assert_same(log_at(tmp_path / "times.txt"))


def test_commas_in_numbers_are_points_where_no_other_reading_is_left(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("rank;step;seconds;note\n0;1;1.234,5;a,b\n1;1;7;1,2\n")
    frame = rows_of(path)
    assert frame["seconds"].to_list() == ["1234.5", "7"]
    assert frame["note"].to_list() == ["a,b", "1,2"]
    path.write_text("rank\tstep\tus\n0\t1\t1,234\n1\t1\t12,345\n")
    with pytest.raises(ValueError, match=r"data row 1 has '1,234'"):
        log_at(path, duration="us")
    path.write_text("rank;step;seconds\n0;1;0,5\n1;1;0.25\n0;2;1\n1;2;1\n")
    with pytest.raises(ValueError, match=r"data row 1 has '0,5'"):
        log_at(path)


# units


@pytest.mark.parametrize(
    ("name", "per_second"),
    [
        *(("ms", 1e3), ("time_ms", 1e3), ("step_time (ms)", 1e3), ("duration_us", 1e6)),
        *(("elapsed [s]", 1), ("ns", 1e9), ("latency_usec", 1e6), ("dur_msec", 1e3)),
        *(("seconds", 1), ("minutes", 1 / 60), ("stepTimeMs", 1e3), ("time_in_us", 1e6)),
        *(("timing/step_ms", 1e3), ("ms_per_step", 1e3), ("s/it", 1), ("duration (µs)", 1e6)),
        *(("step_ms", 1e3), ("batch_s", 1)),
        *(("Step Time (Seconds)", 1), ("hours", 1 / 3600), ("step-time-ns", 1e9)),
    ],
)
def test_the_unit_of_a_name(name, per_second):
    seconds, unit = seconds_of(pl.Series(name, TIMES[:, 0] * per_second))
    np.testing.assert_allclose(seconds, TIMES[:, 0], rtol=1e-9)
    assert unit == "s"


@pytest.mark.parametrize(
    "name",
    [
        "duration",
        "step_time",
        "time",
        "samples_per_second",
        "tokens/s",
        "forms",
        "elapsed",
        "items",
    ],
)
def test_a_name_without_a_unit_tells_none(name):
    seconds, unit = seconds_of(pl.Series(name, [3, 4]))
    assert (seconds.tolist(), unit) == ([3.0, 4.0], "")


@pytest.mark.parametrize(
    ("entry", "seconds"),
    [
        *(("100 ms", 0.1), ("1.5s", 1.5), ("250us", 250e-6), ("1m 2s", 62.0), ("3 ns", 3e-9)),
        *(("0:00:01.25", 1.25), ("PT0.1S", 0.1), ("P1DT2H3M4.5S", 93784.5), ("2 min", 120)),
        *(("0 days 00:00:00.100000", 0.1), ("1 day, 0:00:02", 86402), ("01:02.5", 62.5)),
        *(("1e-3 s", 1e-3), (" 7 sec ", 7), ("1h2m3s4ms", 3723.004), ("5µs", 5e-6)),
        *(("+1.5 Seconds", 1.5), ("0s", 0.0), ("12:00:00", 43200), (".5ms", 5e-4)),
    ],
)
def test_the_unit_of_an_entry(entry, seconds):
    # the unit of the entry is nearer than the unit of the name
    for name in ("duration", "ms"):
        values, unit = seconds_of(pl.Series(name, [entry, "2 s"]))
        assert values.tolist() == pytest.approx([seconds, 2.0], rel=1e-12)
        assert unit == "s"


@pytest.mark.parametrize(
    "entry",
    [
        "-1 s",
        "1 parsec",
        "1:02",
        "PT",
        "P",
        "",
        "s",
        "1 2 s",
        "-1 days +23:59:59",
        "nan s",
        "1e999s",
    ],
)
def test_an_entry_that_is_no_duration_is_refused_by_its_row(entry):
    with pytest.raises(ValueError, match=r"data row 2 has"):
        seconds_of(pl.Series("duration", ["1 s", entry]))


def test_entries_with_and_without_a_unit_are_refused():
    with pytest.raises(ValueError, match=r"'took' has entries with a unit, such as '2 ms', and w"):
        seconds_of(pl.Series("took", ["1", "2 ms"]))


@pytest.mark.parametrize("unit", ["ns", "us", "ms"])
def test_durations_of_columnar_files(tmp_path, unit):
    whole = np.round(TIMES, 3)
    durations = [timedelta(milliseconds=round(1e3 * time)) for time in whole.ravel()]
    frame = pl.DataFrame(
        {
            "rank": [rank for _ in range(STEPS) for rank in range(RANKS)],
            "step": [step for step in range(STEPS) for _ in range(RANKS)],
            "duration": pl.Series(durations, dtype=pl.Duration(unit)),
        },
    )
    for name in ("times.parquet", "times.arrow"):
        write(tmp_path / name, frame)
        log = log_at(tmp_path / name)
        np.testing.assert_allclose(log.seconds, whole, rtol=1e-12)
        assert log.unit == "s"


# start and end


def moments():
    """The starts and ends in seconds from the beginning of the job, (rows,)."""
    starts = np.array([step + 0.125 * rank for rank, step, _ in EACH])
    return starts, starts + np.array([time for *_, time in EACH])


START = datetime(2026, 3, 1, 23, 59, 58, tzinfo=UTC)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        *(("start", "end"), ("start_time", "end_time"), ("begin", "stop"), ("t0", "t1")),
        *(("started_at", "finished_at"), ("step_start", "step_end"), ("startTime", "endTime")),
        *(("start_timestamp", "end_timestamp"), ("Begin", "End"), ("t_start", "t_end")),
    ],
)
def test_start_and_end_in_place_of_a_duration(tmp_path, first, last):
    path = tmp_path / "times.csv"
    keys = PLAIN.select("rank", "step")
    starts, ends = moments()

    def written(entry):
        columns = {
            first: pl.Series([*map(entry, starts)]),
            last: pl.Series([*map(entry, ends)]),
        }
        keys.with_columns(**columns).write_csv(path)
        return log_at(path)

    def moment(time, zone=UTC):
        return (START + timedelta(microseconds=round(1e6 * time))).astimezone(zone)

    assert_same(written(lambda time: moment(time).isoformat()))
    assert_same(written(lambda time: moment(time).strftime("%Y-%m-%dT%H:%M:%S.%fZ")))
    assert_same(written(lambda time: moment(time).strftime("%Y-%m-%d %H:%M:%S,%f")))
    zone = timezone(timedelta(hours=-3, minutes=-30))
    assert_same(written(lambda time: moment(time, zone).isoformat()))
    epoch = round(START.timestamp())
    assert_same(written(lambda time: 1_000_000_000 * epoch + round(1e9 * time)))
    assert_same(written(lambda time: 1_000_000 * epoch + round(1e6 * time)))
    np.testing.assert_allclose(
        written(lambda time: f"{1000 * epoch + 1e3 * time:.4f}").seconds, TIMES, atol=1e-6
    )
    np.testing.assert_allclose(
        written(lambda time: f"{epoch + time:.6f}").seconds, TIMES, atol=1e-6
    )
    # counted from a point that is not known: so is the unit
    np.testing.assert_allclose(written(lambda time: time).seconds, TIMES, rtol=1e-9)
    assert written(lambda time: time).unit == ""


@pytest.mark.parametrize(("unit", "per_second"), [("ns", 1e9), ("us", 1e6), ("ms", 1e3), ("s", 1)])
def test_the_unit_of_start_and_end_is_in_their_names(tmp_path, unit, per_second):
    path = tmp_path / "times.csv"
    starts, ends = (np.round(per_second * times, 6) for times in moments())
    columns = {f"start_{unit}": starts, f"end_{unit}": ends}
    PLAIN.select("rank", "step").with_columns(**columns).write_csv(path)
    log = log_at(path)
    np.testing.assert_allclose(log.seconds, TIMES, atol=1e-9)
    assert log.unit == "s"


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("unit", ["ns", "us"])
def test_start_and_end_of_columnar_files(tmp_path, zone, unit):
    columns = {
        name: pl.Series(np.round(1e6 * times).astype(np.int64))
        .cast(pl.Datetime("us"))
        .dt.cast_time_unit(unit)
        .dt.replace_time_zone(zone)
        for name, times in zip(("start", "end"), moments(), strict=True)
    }
    write(tmp_path / "times.parquet", PLAIN.select("rank", "step").with_columns(**columns))
    assert_same(log_at(tmp_path / "times.parquet"))


@pytest.mark.parametrize(
    ("start", "end", "sentence"),
    [
        (["1", "5"], ["2", "4"], r"data row 2 ends, at '4', before it starts, at '5'"),
        (["12:00:01", "12:00:05"], ["12:00:02", "12:00:04"], "data row 2 ends"),
        (["2026-01-01 12:00:01"], ["2026-01-01 12:00:02Z"], "not of one kind"),
        (["1767225600"], ["1767225600500"], "not of one kind"),
        (["12:00:01", "noon"], ["12:00:02", "12:00:04"], "data row 2 has 'noon' as 'start'"),
        (["12:00:01Z", "12:00:02"], ["12:00:02Z", "12:00:04Z"], "some entries of the column 's"),
        (["2026-02-30 12:00:01"], ["2026-02-30 12:00:02"], "which is no time"),
        (["1", "9" * 19], ["2", "9" * 19], "data row 2 has"),
        (["1", ""], ["2", "3"], "data row 2 has None"),
        (["1", "nan"], ["2", "3"], "data row 2 has"),
    ],
)
def test_wrong_starts_and_ends_are_refused_by_their_row(tmp_path, start, end, sentence):
    path = tmp_path / "times.csv"
    rows = [f"{rank},1,{one},{two}" for rank, (one, two) in enumerate(zip(start, end, strict=True))]
    path.write_text("\n".join(["rank,step,start,end", *rows]))
    with pytest.raises(ValueError, match=sentence):
        log_at(path)


def test_a_column_that_the_caller_names_comes_before_start_and_end(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("rank,step,start,end,work\n0,1,never,5,1\n1,1,3,2,3\n0,2,1,1,1\n1,2,1,1,1\n")
    assert log_at(path, duration="work").seconds.tolist() == [[1, 3], [1, 1]]


def test_a_usual_duration_comes_before_start_and_end(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("rank,step,ts,dur,start,end\n0,1,5,6,7,8\n")
    assert rows_of(path).columns == ["rank", "step", "ts", "dur", "start", "end"]


# numbers of steps


def test_whole_floats_are_numbers_of_steps_and_ranks(tmp_path):
    path = tmp_path / "times.csv"
    rows = [f"{rank}.0,{step}.0,{time}" for rank, step, time in EACH]
    path.write_text("\n".join(["rank,step,seconds", *rows]))
    assert_same(log_at(path))
    write(tmp_path / "times.parquet", PLAIN.with_columns(pl.col("rank", "step").cast(pl.Float32)))
    assert_same(log_at(tmp_path / "times.parquet"))
    for entry in ("nan", "1.5", "inf"):
        path.write_text("\n".join(["rank,step,seconds", *rows, f"0,{entry},1"]))
        with pytest.raises(ValueError, match=r"data row 19 has '(?i:nan|1\.5|inf)'"):
            log_at(path)


def test_integers_stay_exact():
    large = [2**53 + 1, 2**62 + 1]
    assert whole_numbers(pl.Series("step", large)).to_list() == large
    assert whole_numbers(pl.Series("step", list(map(str, large)))).to_list() == list(
        map(str, large),
    )
    assert whole_numbers(pl.Series("step", ["1", "2.0", None])).to_list() == [1, 2, None]
    assert whole_numbers(pl.Series("host", ["a", "1.0"])).to_list() == ["a", "1.0"]


# JSON


RECORDS = [{"rank": rank, "step": step, "seconds": time} for rank, step, time in EACH]
COLUMNS = {name: PLAIN[name].to_list() for name in PLAIN.columns}


def of_rank(rank, name="seconds"):
    return [{"step": step, name: time} for step, time in enumerate(TIMES[:, rank].tolist())]


@pytest.mark.parametrize(
    ("data", "unit"),
    [
        (RECORDS, "s"),
        ({"data": RECORDS}, "s"),
        ({"job": "a", "world_size": 3, "config": {"lr": 1}, "records": RECORDS}, "s"),
        ({"config": [{"a": 1}], "nodes": {"node0": "a", "node1": "b"}, "records": RECORDS}, "s"),
        (COLUMNS, "s"),
        ({"schema": {"fields": []}, "data": RECORDS}, "s"),
        ({"columns": list(COLUMNS), "index": [0], "data": [list(row) for row in EACH]}, "s"),
        (
            {
                name: dict(zip(map(str, range(18)), one, strict=True))
                for name, one in COLUMNS.items()
            },
            "s",
        ),
        (
            [
                {"rank": one["rank"], "step": one["step"], "t": {"ms": 1e3 * one["seconds"]}}
                for one in RECORDS
            ],
            "s",
        ),
        ([{"rank": rank, "steps": of_rank(rank)} for rank in range(RANKS)], "s"),
        (
            [{"meta": {"rank": rank}, "timing": {"steps": of_rank(rank)}} for rank in range(RANKS)],
            "s",
        ),
        ([{"rank": rank, "seconds": TIMES[:, rank].tolist()} for rank in range(RANKS)], "s"),
        ([{"step": step, "seconds": TIMES[step].tolist()} for step in range(STEPS)], "s"),
        (
            [
                {"step": step, "ms": {str(rank): 1e3 * TIMES[step, rank] for rank in range(RANKS)}}
                for step in range(STEPS)
            ],
            "s",
        ),
        ({str(rank): TIMES[:, rank].tolist() for rank in range(RANKS)}, ""),
        ({"job": 5, "workers": {str(rank): of_rank(rank) for rank in range(RANKS)}}, "s"),
        (
            {
                "steps": [
                    {"step": step, "ranks": dict(zip("012", TIMES[step].tolist(), strict=True))}
                    for step in range(STEPS)
                ]
            },
            "",
        ),
        (
            {"n": {f"rank{rank}": {"seconds": TIMES[:, rank].tolist()} for rank in range(RANKS)}},
            "s",
        ),
        ({f"rank{rank}": TIMES[:, rank].tolist() for rank in range(RANKS)}, ""),
        ({f"rank_{rank}": of_rank(rank) for rank in range(RANKS)}, "s"),
        ({str(rank): {"steps": of_rank(rank)} for rank in range(RANKS)}, "s"),
        (
            {
                str(rank): {"step": [*range(STEPS)], "seconds": TIMES[:, rank].tolist()}
                for rank in range(RANKS)
            },
            "s",
        ),
        (
            {
                f"rank{rank}": dict(zip("012345", TIMES[:, rank].tolist(), strict=True))
                for rank in range(RANKS)
            },
            "",
        ),
        (
            {
                str(step): {f"rank{rank}": TIMES[step, rank] for rank in range(RANKS)}
                for step in range(STEPS)
            },
            "",
        ),
    ],
)
def test_tables_in_json(tmp_path, data, unit):
    path = tmp_path / "times.json"
    path.write_text(json.dumps(data, indent=2))
    options = {}
    if "meta" in str(data):
        options = {"worker": "meta.rank"}
    if "'t'" in str(data):
        options = {"duration": "t.ms"}
    assert_same(log_at(path, **options), unit)
    path.write_text("\ufeff" + json.dumps(data), "utf-8")
    assert_same(log_at(path, **options), unit)
    (tmp_path / "times.json.gz").write_bytes(gzip.compress(json.dumps(data).encode()))
    assert_same(log_at(tmp_path / "times.json.gz", **options), unit)


def test_json_lines_with_nested_records(tmp_path):
    lines = [
        json.dumps({"rank": rank, "step": step, "loss": loss, "timing": {"forward_ms": 1e3 * time}})
        for loss in (0.5, float("nan"))
        for rank, step, time in EACH
    ]
    half = len(lines) // 2
    # Python writes NaN, which is no JSON
    for name, content in (
        *(
            ("times.jsonl", lines[:half]),
            ("nan.ndjson", lines[half:]),
            ("times.json", lines[:half]),
        ),
        *(("times.log", lines[:half]), ("blank.jsonl", ["", *lines[:half], ""])),
    ):
        path = tmp_path / name
        path.write_text("\n".join(content) + "\n")
        assert_same(log_at(path, duration="timing.forward_ms"))
    path.write_text("\n".join([*lines[:3], '{"rank": 0, "st', *lines[3:half]]))
    with pytest.raises(ValueError, match="line 4 is no record of JSON"):
        log_at(path)


@pytest.mark.parametrize("name", ["times.jsonl", "train.log", "out.txt"])
def test_what_a_program_prints_between_its_records_is_left_out(tmp_path, name):
    records = [json.dumps({"rank": r, "step": s, "seconds": time}) for r, s, time in EACH]
    path = tmp_path / name
    # the program was killed while it wrote the last line
    path.write_text("\n".join(["starts", *records[:5], "a warning", *records[5:], '{"rank": 0, "']))
    log = log_at(path)
    assert_same(log)
    assert log.remarks == ["3 lines that are no whole records are left out."]
    path.write_text("\n".join([*records, '{"rank": 0, "']))
    assert log_at(path).remarks == ["1 line that is no whole record is left out."]


def test_a_text_with_few_objects_of_json_is_no_text_of_records(tmp_path):
    path = tmp_path / "times.txt"
    header, *rows = text(";").splitlines()
    path.write_text("\n".join([f"options;{header}", *(f'{{"a": 1}};{row}' for row in rows)]))
    assert_same(log_at(path))
    lines = [f"rank {rank} step {step}: {time} s" for rank, step, time in EACH]
    path.write_text("\n".join(["begins", '{"lr": 0.1}', '{"seed": 2}', *lines]))
    with pytest.raises(ValueError, match="give --pattern"):
        log_at(path)


@pytest.mark.parametrize("separator", [",", ";", " "])
def test_names_written_again_by_a_job_that_was_started_again_are_no_row(tmp_path, separator):
    path = tmp_path / "times.txt"
    content = text(separator)
    path.write_text(content + content)
    assert_same(log_at(path))


@pytest.mark.parametrize("name", ["step{}", "iter_{}", "{}", "Step {}"])
def test_a_column_for_each_step(tmp_path, name):
    columns = {name.format(step): TIMES[step].tolist() for step in range(len(TIMES))}
    path = tmp_path / "times.csv"
    pl.DataFrame({"rank": [*range(RANKS)], **columns}).write_csv(path)
    log = log_at(path)
    assert_same(log, unit="")
    assert log.remarks[0].endswith("were taken for the times of a step each.")


def test_columns_of_numbers_beside_a_host_that_repeats_are_no_steps(tmp_path):
    path = tmp_path / "times.csv"
    ranks = {str(rank): TIMES[:, rank].tolist() for rank in range(RANKS)}
    hosts = [f"h{step // 2}" for step in range(len(TIMES))]
    pl.DataFrame({"host": hosts, **ranks}).write_csv(path)
    with pytest.raises(ValueError, match="duration is not found"):
        log_at(path)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", "0,0,0.1\n1,0,0.2\n", "the first line must name the columns"),
        ("a.csv", "0;0;0,1\n1;0;0,2\n", "the first line must name the columns"),
        ("a.log", "step 0: 99.5 ms\nstep 1: 98.5 ms\n", "give --pattern"),
    ],
)
def test_a_text_without_names_of_columns_says_what_it_lacks(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=sentence):
        log_at(path)


def test_lists_that_hold_no_times_make_no_rows(tmp_path):
    path = tmp_path / "times.json"
    path.write_text(json.dumps([{**one, "tags": ["a", "b"]} for one in RECORDS]))
    assert rows_of(path).height == len(RECORDS)


# texts, by a pattern


PATTERN = r"rank (?P<rank>\d+) .* (?P<ms>[\d.]+) ms"


def lines_of(form, ranks=range(RANKS)):
    lines = [
        form.format(rank=rank, step=step, ms=1e3 * time, s=time)
        for rank, step, time in EACH
        if rank in ranks
    ]
    return "starting\n" + "\n".join(lines) + "\n\ndone\n"


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ("rank {rank} step {step} took {ms:.4f} ms", PATTERN),
        (
            "[{rank}] {step}: {s:.7f}",
            r"\[(?P<worker>\d+)\] (?P<step>\d+): (?P<seconds>\S+)",
        ),
        ("{s:.7f}s of {rank}", r"(?P<time>\S+) of (?P<rank>\d+)"),
        ("{ms:.4f} {rank} it {step}", r"^(?P<time_ms>\S+) (?P<rank>\d) it (?P<iter>\d+)"),
    ],
)
def test_a_text_by_a_pattern(tmp_path, form, pattern):
    path = tmp_path / "out.log"
    path.write_text(lines_of(form))
    log = log_at(path, pattern=pattern)
    assert_same(log)
    assert "2 lines of the text do not match the pattern, and were left out." in log.remarks


def test_a_text_of_each_rank_by_a_pattern(tmp_path):
    for rank in range(RANKS):
        form = "step {step} took {ms:.4f} ms"
        (tmp_path / f"stdout.{rank}").write_text(lines_of(form, [rank]))
    (tmp_path / "config.json").write_text("{}")
    log = log_at(tmp_path, pattern=r"step (?P<step>\d+) took (?P<ms>\S+) ms")
    assert_same(log)
    assert "Other files of this folder were left out: config.json." in log.remarks
    assert "6 lines of the text do not match the pattern, and were left out." in log.remarks


def test_a_pattern_that_cannot_be_used_is_refused_with_the_cure(tmp_path):
    path = tmp_path / "out.log"
    path.write_text("first words\nrank 0 took 5 ms\n")
    write(tmp_path / "times.parquet", PLAIN)
    for file, pattern, sentence in (
        (path, "(", r"is no regular expression .*: give --pattern, such as 'rank"),
        (path, r"rank (\d+) took (\d+)", "has no group for the time, such as"),
        (path, r"rank (?P<rank>\d+) took", "has no group for the time, such as"),
        (path, r"node (?P<rank>\d+) took (?P<ms>\d+)", "no line matches .* first is 'first words'"),
        (tmp_path / "times.parquet", PATTERN, "this is Parquet: leave it out"),
        (path, None, r"its first line is 'first words': give --pattern, such as"),
    ):
        with pytest.raises(ValueError, match=sentence):
            log_at(file, pattern=pattern)


# what cannot be read


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b""),
        ("a.csv", b"\n\n  \n"),
        ("a.csv", b"# only\n# comments\n"),
        ("a.csv", b"rank,step,seconds\n"),
        ("a.csv", b"seconds\n1\n2\n"),
        ("a.csv", b"0,0,0.1\n0,1,0.2\n"),
        ("a.csv", b"rank,step,step,seconds\n0,1,1,2\n"),
        ("a.csv", b"rank,step,seconds\n0,1,2,3\n"),
        ("a.csv", b"rank,step,seconds\n0,1\n1,1,2\n"),
        ("a.csv", b'rank,step,seconds\n"0,1,2\n'),
        ("a.csv", b"rank,step,seconds\n0,1,\xff\n"),
        ("a.csv", b"rank,step,seconds\n0,1,\0\n"),
        ("a.csv", b"\xff\xfe\xff"),
        ("a.csv", b"rank,step,seconds\n0,1,nan\n1,1,1\n"),
        ("a.csv", b"rank,step,seconds\n0,1,inf\n1,1,1\n"),
        ("a.csv", b"rank,step,seconds\n0,1,-1\n1,1,1\n"),
        ("a.csv", b"rank,step,seconds\n0," + b"9" * 40 + b",1\n1,1,1\n"),
        ("a.csv.gz", gzip.compress(text().encode())[:-9]),
        ("a.csv.gz", b"\x1f\x8b"),
        ("a.parquet", b""),
        ("a.parquet", b"PAR1" + b"\0" * 50),
        ("a.arrow", b"ARROW1" + b"\0" * 50),
        ("a.txt", b"one\n"),
        ("a.xlsx", b"PK\3\4\0"),
        ("a.bin", b"abc\n"),
        ("a.json", b"{"),
        ("a.json", b"5"),
        ("a.json", b"[]"),
        ("a.json", b"{}"),
        ("a.json", b"[1, 2]"),
        ("a.json", b"[[1, 2], [3, 4]]"),
        ("a.json", b'"text"'),
        ("a.json", b"[" * 100_000),
        ("a.json", b'{"rank": [0, 1], "seconds": [1]}'),
        ("a.json", b'{"rank0": 5, "rank1": 6}'),
        ("a.json", b'[{"rank": 0, "seconds": {"a": 1}}, {"rank": 1, "seconds": [1]}]'),
        ("a.json", b'[{"rank": 0, "step": 1, "seconds": "\\ud800"}]'),
        ("a.json", b'[{"rank": 0, "step": 1e400, "seconds": 1}, {"rank": 1, "seconds": true}]'),
        ("a.json", b'[{"rank": 0, "step": ' + b"9" * 60 + b', "seconds": 1}]'),
        ("a.json", b'{"columns": [1, 1], "data": [[1, 2]]}'),
        ("a.jsonl", b"[1]\n[2]\n"),
        ("a.jsonl", b"5\n"),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^[^\n]{10,600}$") as caught:
        log_at(path)
    assert "polars" not in str(caught.value)


def test_a_link_to_nothing_and_names_that_are_equal_get_a_sentence(tmp_path):
    for rank in range(RANKS):
        write(tmp_path / f"rank{rank}.csv", table_of(rank))
    (tmp_path / "rank7.csv").symlink_to(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"^rank7\.csv: there is no file"):
        log_at(tmp_path)
    write(tmp_path / "times.parquet", PLAIN.with_columns(pl.lit(1).alias("rank ")))
    with pytest.raises(ValueError, match="the file cannot be read: "):
        log_at(tmp_path / "times.parquet")


def test_damaged_files_of_every_form_give_times_or_a_sentence(tmp_path):
    sentences = []
    rng = np.random.default_rng(0)
    wide = pl.DataFrame({f"rank{rank}": TIMES[:, rank] for rank in range(RANKS)})
    start = pl.Series("start", ["2026-01-01T00:00:00"] * 18)
    end = pl.Series("end", ["2026-01-01T00:00:01.5"] * 18)
    PLAIN.write_parquet(tmp_path / "times.parquet")
    contents = {
        "a.csv": wide.write_csv().encode(),
        "b.csv": PLAIN.select("rank", "step", start, end).write_csv().encode(),
        "c.txt": ("# " + text(" ")).encode(),
        "d.csv": text(";", entry=lambda time: f"{time} s".replace(".", ",")).encode(),
        "e.json": json.dumps({"0": of_rank(0), "1": of_rank(1)}).encode(),
        "f.jsonl": "\n".join(map(json.dumps, RECORDS)).encode(),
        "g.csv": wandb_export({"step_time": TIMES}).encode(),
        "h.parquet": (tmp_path / "times.parquet").read_bytes(),
    }
    for name, content in contents.items():
        path = tmp_path / name
        for _ in range(25):
            path.write_bytes(mutated(rng, content))
            try:
                log = log_at(path)
            except ValueError as error:
                sentences.append(str(error))
            else:
                assert log.seconds.min() >= 0
    assert len(sentences) > 50
    assert not [sentence for sentence in sentences if "\n" in sentence]


def test_a_mark_without_text_lists_as_workers_and_long_entries_get_a_sentence(tmp_path):
    blank = tmp_path / "blank.txt"
    blank.write_bytes(b"\xef\xbb\xbf\n \n")
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(2):
        rows = [{"step": step, "ms": 1.0 + rank + step, "worker": [step]} for step in range(5)]
        (folder / f"rank{rank}.json").write_text(json.dumps(rows))
    long = tmp_path / "long.csv"
    long.write_text(f"rank,step,seconds\n0,1,{'x' * 5000}\n1,1,2\n")
    for path, sentence in (
        (blank, "the file cannot be read: it is empty"),
        (folder, "--worker-column"),
        (long, "data row 1 has 'xxx"),
    ):
        with pytest.raises(ValueError, match=sentence) as refusal:
            FORMAT.read(path, Options())
        assert len(str(refusal.value)) < 500
