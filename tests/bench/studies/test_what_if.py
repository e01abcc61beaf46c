"""What a straggler costs: the answer of a simulation by hand, from every kind of log."""

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner

from ata_gym import bench
from ata_gym.bench.logs import Log, read_log
from ata_gym.bench.studies.what_if import study as replay
from ata_gym.bench.studies.what_if.waiting import about_log
from ata_gym.bench.studies.what_if.ways import best_split, task_times
from ata_gym.cli import app
from ata_gym.utils.files import manifest
from ata_policies import AllocationPolicy, Allocator
from tests.flips import unseen
from tests.mutated import refused_by_field


def job(n=3, steps=60, seed=0, slow=3.0):
    rng = np.random.default_rng(seed)
    # what they share stays shared
    times = rng.gamma(50.0, 0.02, (steps, n)) * rng.gamma(
        20.0,
        0.05,
        (steps, 1),
    )
    times[:, -1] *= slow
    return times


def frame(times):
    steps, n = times.shape
    step, worker = np.divmod(np.arange(steps * n), n)
    return pl.DataFrame({"rank": worker, "step": step, "seconds": times.ravel()})


def round_times(results, way):
    """(steps,) the time of each step in a way."""
    return np.diff(results.records.filter(policy=way)["runtime"].to_numpy(), prepend=0.0)


def log_of(times, name="job"):
    """A log of workers a, b, ..."""
    return Log(name, list("abcdefgh"[: times.shape[1]]), times, np.ones_like(times))


@pytest.mark.parametrize("name", ["alibaba_job_1.csv", "alibaba_job_4.csv"])
def test_on_recorded_jobs_it_is_a_simulation_of_the_same_times_by_hand(shared_data, name):
    log = read_log(shared_data / name)
    table = (
        pl.read_csv(shared_data / name)
        .pivot("worker", index="time", values="batch_time_norm")
        .sort("time")
    )
    times = table.select(str(i) for i in range(10)).drop_nulls().to_numpy().astype(float)[:100]
    log = log.part(slice(100))
    np.testing.assert_array_equal(log.seconds, times)
    results = bench.what_if(log, policies="restarting-beta")
    figures = json.loads(results.content.files["what-if.json"])
    assert figures["idle"] == pytest.approx(1.0 - times.sum() / (10 * times.max(axis=1).sum()))
    rate = (8 / times).sum(axis=1)  # tasks per unit of time
    assert figures["perfect"] == pytest.approx(1.0 - (80 / rate).sum() / times.max(axis=1).sum())
    slowest = np.bincount(times.argmax(axis=1), minlength=10) / 100
    np.testing.assert_allclose([worker["last"] for worker in figures["waited_for"]], slowest)
    np.testing.assert_allclose(round_times(results, "as it is"), times.max(axis=1))
    allocator = Allocator(10, 80, "restarting-beta")
    runtime = []
    busy = 0.0
    for step in times / 8:
        tasks = allocator.allocate()
        ends = [count * step[who] for who, count in tasks.items()]
        runtime.append(max(ends))
        busy += sum(ends)
        allocator.observe({who: [step[who]] * count for who, count in tasks.items()})
    np.testing.assert_allclose(round_times(results, "restarting-beta"), runtime, rtol=1e-9)
    worker_time = results.table().filter(policy="restarting-beta", quantity="total_worker_time")
    assert worker_time["mean"].item() == pytest.approx(busy)
    without = [np.delete(times, i, axis=1).max(axis=1).sum() * 10 / 9 for i in range(10)]
    without_worst = round_times(results, f"without {int(np.argmin(without))}")
    assert without_worst.sum() == pytest.approx(min(without))
    # no way to share is faster than a perfect one, and B results end the round
    for other in (
        "race",
        "dispatch",
    ):
        assert (round_times(results, other) >= 80 / rate - 1e-9).all()
        assert round_times(results, other).sum() <= 1.05 * times.max(axis=1).sum()


def test_the_fixed_split_is_the_best_of_all_in_small_cases():
    for seed in range(20):
        time = job(steps=7, seed=seed) / 2
        legal = [np.array(one) for one in product(range(7), repeat=3) if sum(one) == 6]
        least = min((one * time).max(axis=1).sum() for one in legal)
        assert (best_split(time, 6) * time).max(axis=1).sum() == pytest.approx(least)


def traces(times, folder, gzipped=False):
    """Traces of a profiler: steps, in which a kernel runs in half of the time of a collective."""
    for rank in range(times.shape[1]):
        events = [{"ph": "M", "name": "process_name"}]
        now = 1e6
        for step, seconds in enumerate(times[:, rank]):
            length = 1e6 * seconds
            wait = 4e5
            events += [
                {
                    "ph": "X",
                    "name": f"ProfilerStep#{step}",
                    "ts": now,
                    "dur": length + wait / 2,
                    "cat": "user_annotation",
                },
                {"ph": "X", "name": "gemm", "ts": now, "dur": length, "cat": "kernel"},
                {
                    "ph": "X",
                    "name": "ncclDevKernel_AllReduce",
                    "ts": now + length - wait / 2,
                    "dur": wait,
                    "cat": "kernel",
                },
            ]
            now += length + wait
        text = json.dumps({"traceEvents": events}).encode()
        (folder / f"rank{rank}.json{'.gz' * gzipped}").write_bytes(
            gzip.compress(text) if gzipped else text,
        )
    return folder


@pytest.mark.parametrize(
    "kind",
    ["csv", "csv.gz", "parquet", "jsonl", "records", "traces", "traces.gz"],
)
def test_every_kind_of_log_is_read_to_the_same_times(tmp_path, kind):
    times = job() + 0.5
    path = tmp_path / f"times.{kind}"
    table = frame(times)
    if kind.startswith("traces"):
        path = traces(times, tmp_path, kind.endswith("gz"))
    elif kind == "records":  # of a TraceRecorder, two tasks each
        path = tmp_path / "records.csv"
        table = table.rename(
            {"rank": "worker", "step": "round", "seconds": "duration"},
        ).with_columns(pl.col("duration") / 2)
        pl.concat([table, table]).write_csv(path)
    elif kind == "parquet":
        table.write_parquet(path)
    elif kind == "jsonl":
        table.write_ndjson(path)
    else:
        table.write_csv(path, compression="gzip" if kind.endswith("gz") else "uncompressed")
    log = read_log(path)
    np.testing.assert_allclose(log.seconds, times, rtol=1e-9)
    assert (log.tasks == (2 if kind == "records" else 1)).all()


PROFILED = """
import sys, torch
with torch.profiler.profile(
    activities=[torch.profiler.ProfilerActivity.CPU],
    schedule=torch.profiler.schedule(wait=0, warmup=1, active=3),
    on_trace_ready=lambda profiler: profiler.export_chrome_trace(sys.argv[1]),
) as profiler:
    for _ in range(4):
        torch.ones(50, 50) @ torch.ones(50, 50)
        profiler.step()
"""


def test_a_real_profiler_trace_is_read(tmp_path):
    pytest.importorskip("torch")
    for rank in range(2):
        subprocess.run(
            [sys.executable, "-c", PROFILED, tmp_path / f"rank{rank}.json"],
            check=True,
            capture_output=True,
        )
    log = read_log(tmp_path)
    assert (log.workers, log.seconds.shape) == (["rank0", "rank1"], (3, 2))
    assert (log.seconds > 0).all()


def trace():
    events = [
        {
            "ph": "X",
            "name": f"ProfilerStep#{step}",
            "ts": 1e6 * step,
            "dur": 5e5,
            "cat": "user_annotation",
        }
        for step in range(3)
    ]
    return {
        "traceEvents": [
            *events,
            {"ph": "X", "name": "gemm", "ts": 1e6, "dur": 1e5, "cat": "kernel"},
        ],
    }


def test_a_trace_that_holds_something_else_is_refused_by_file_and_field(tmp_path):
    whole = tmp_path / "rank0.json"
    path = tmp_path / "rank1.json"
    for file in (whole, path):
        file.write_text(json.dumps(trace()))
    (tmp_path / ".part-7-rank2.json").write_text("{")
    assert read_log(tmp_path).seconds.shape == (3, 2)
    taken = refused_by_field(path, lambda: read_log(tmp_path))
    assert {
        f"traceEvents[{place}].{field}" for place in (0, 3) for field in ("ph", "name", "cat")
    } < taken
    for wrong in ({"traceEvents": {}}, {"traceEvents": 3}, {}, [], 5, {"traceEvents": [5]}):
        path.write_text(json.dumps(wrong))
        with pytest.raises(
            ValueError,
            match=r"rank1\.json cannot be read as a trace of the profiler: ",
        ):
            read_log(tmp_path)
    compressed = gzip.compress(json.dumps(trace()).encode())
    for name, content in (
        ("rank1.json", b"[" * 100_000),
        ("rank1.json", b'{"traceEvents": ' * 100_000),
        ("rank1.json", b"\xff\xfe"),
        ("rank1.json.gz", b"no gzip"),
        ("rank1.json.gz", compressed[:-9]),
        ("rank1.json.gz", compressed[:20] * 2),
    ):
        path.unlink(missing_ok=True)
        path = tmp_path / name
        path.write_bytes(content)
        done = command(tmp_path)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
        assert f"{name} cannot be read as a trace of the profiler" in done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes of POSIX")
def test_a_pipe_among_the_traces_of_a_folder_is_refused(tmp_path):
    (tmp_path / "rank0.json").write_text(json.dumps(trace()))
    os.mkfifo(tmp_path / "rank1.json")
    assert "rank1.json is a pipe: name a file" in command(tmp_path).stderr


def command(*words):
    return CliRunner().invoke(app, ["what-if", *map(str, words)])


def test_the_command_leaves_a_page_and_a_state_that_starts_the_real_run(tmp_path):
    path = tmp_path / "times.csv"
    out = tmp_path / "out"
    frame(job()).write_csv(path)
    done = command(path, "--policies", "restarting-beta", "--out", out)
    assert done.exit_code == 0, done.output
    assert "Worth it: restarting-beta would save" in done.output
    assert "Worth it" in (out / "report.html").read_text("utf-8")
    data = json.loads(command(path, "--policies", "restarting-beta", "--json").stdout)
    assert data == json.loads((out / "what-if.json").read_text("utf-8"))
    shares = Allocator(["0", "1", "2"], 24, prior=out / "state.json").allocate()
    assert shares["2"] < min(shares["0"], shares["1"])
    assert unseen(out) == []


def test_a_file_and_what_was_read_of_it_give_the_same_answer(tmp_path):
    path = tmp_path / "times.csv"
    frame(job()).rename({"rank": "gpu"}).write_csv(path)
    named = bench.what_if(path, worker_column="gpu", policies="uta")
    read = bench.what_if(read_log(path, worker="gpu"), policies="uta")
    assert named.table().equals(read.table())
    assert named.content.findings == read.content.findings
    with pytest.raises(ValueError, match="log must be a file, a folder, or a Log, not 5"):
        bench.what_if(5)


def test_figures_agree_and_ways_are_compared_over_parts_of_the_log():
    results = bench.what_if(log_of(job()), policies="uta,restarting-beta")
    table = results.table()
    means = {
        (way, quantity): mean
        for way, quantity, mean in table.select(
            "policy",
            "quantity",
            "mean",
        ).rows()
    }
    logged = means["as it is", "runtime"]
    for way in table["policy"].unique():
        saved = 1.0 - means[way, "runtime"] / logged
        assert means[way, "saved"] == pytest.approx(saved, abs=1e-12)
        last = results.records.filter(policy=way).tail(1)
        assert last["runtime"].item() == pytest.approx(means[way, "runtime"])
        assert last["total_worker_time"].item() == pytest.approx(means[way, "total_worker_time"])
    assert means["uta", "saved"] == pytest.approx(0.0, abs=1e-12)
    by_part = [
        1.0 - part.sum() / logged_part.sum()
        for part, logged_part in zip(
            np.split(round_times(results, "race"), 10),
            np.split(round_times(results, "as it is"), 10),
            strict=True,
        )
    ]
    interval = stats.ttest_1samp(by_part, 0.0).confidence_interval(0.95)
    race = table.filter(policy="race", quantity="saved")
    half = (interval.high - interval.low) / 2
    assert race["high"].item() - race["mean"].item() == pytest.approx(half)
    sentence = results.compare("race", "as it is").sentence
    assert sentence.startswith("race compared with as it is: ")
    assert "over 10 paired log parts" in sentence
    short = bench.what_if(log_of(job()[:6]), policies="uta")
    assert "Nothing follows from one log part" in short.compare("race", "as it is").sentence
    assert short.table()["low"].is_null().all()
    assert json.loads(short.content.files["what-if.json"])["alternatives"][0]["half"] is None


def test_a_killed_call_goes_on_and_another_log_is_refused_as_it_is(tmp_path, monkeypatch):
    log = log_of(job(steps=10))
    call = partial(bench.what_if, log, policies="uta", out=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(replay, "write_frame", press_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            call()
    with pytest.raises(ValueError, match="the steps of the log were not played to the end"):
        bench.read(tmp_path)
    results = call()
    assert bench.read(tmp_path).table().equals(results.table())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for other, tasks in ((log_of(job(steps=10, seed=1)), 8), (log, 4)):
        with pytest.raises(ValueError, match="holds the results of another configuration"):
            bench.what_if(other, tasks=tasks, policies="uta", out=tmp_path)
    assert {path: path.read_bytes() for path in before} == before


def press_ctrl_c(*_):
    raise KeyboardInterrupt


class Halting(AllocationPolicy):
    def allocate(self, state):
        if state.round[0] > 3:
            raise RuntimeError("no idea")
        return np.tile(np.full(3, 8), (len(state.round), 1))


class Even(AllocationPolicy):
    def allocate(self, state):
        return np.tile(np.full(3, 8), (len(state.round), 1))


def test_a_class_plays_and_one_that_fails_leaves_the_others_alone(tmp_path):
    log = replace(log_of(job(steps=10)), workers=["rank=0", "rank=1", "rank=2"])
    with pytest.warns(bench.PolicyFailedWarning, match=r"Halting failed: in step 4: .*no idea"):
        results = bench.what_if(log, policies={"mine": Even, "Halting": Halting}, out=tmp_path)
    assert "no idea" in results.failures["Halting"].traceback.read_text("utf-8")
    np.testing.assert_allclose(round_times(results, "mine"), round_times(results, "as it is"))
    assert "Halting" not in set(results.records["policy"])
    assert [path.name for path in tmp_path.glob("sources/*")] == ["mine.py"]
    assert results.compare(Even, "race").ratio.mean > 1
    assert results.compare("without rank=2", Even).ratio.mean < 1


def test_a_note_is_refused_by_file_and_field(tmp_path):
    bench.what_if(log_of(job(steps=10)), policies="uta", out=tmp_path)
    (tmp_path / manifest.NAME).unlink()
    numbers = {
        *("runtime", "worker_time", "idle", "perfect"),
        *(f"waited_for[{k}].{name}" for k in (0, 2) for name in ("last", "lost", "mean")),
    }
    assert refused_by_field(tmp_path / "about.json", lambda: bench.read(tmp_path)) == numbers


def test_a_log_in_which_nothing_took_time_is_refused(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="job: all times are 0"):
        bench.what_if(log_of(np.zeros((10, 3))), out=out)
    assert not out.exists()


def test_of_near_equal_workers_the_verdict_is_no_and_of_a_short_log_nothing():
    rng = np.random.default_rng(0)

    def verdict(times, policies="restarting-beta"):
        return bench.what_if(log_of(times), policies=policies).content.findings

    assert verdict(rng.normal(1.0, 0.002, (60, 4))).startswith(
        "Not worth it: workers are near equal",
    )
    assert re.match(
        r"Not worth it: .*, by other shares alone\. A race, which cancels .*, would save"
        r" 2\d\.\d %\.",
        verdict(np.random.default_rng(0).gamma(25.0, 0.04, (200, 6))),
    )
    assert "too short to say" in verdict(job()[:6], "uta")


def test_the_figures_of_a_log_are_right_in_a_case_by_hand():
    figures = about_log(log_of(np.tile([1.0, 1.0, 3.0], (40, 1))), 24)
    assert [worker["last"] for worker in figures["waited_for"]] == [0.0, 0.0, 1.0]
    assert [worker["lost"] for worker in figures["waited_for"]] == pytest.approx([0, 0, 2 / 3])
    assert figures["idle"] == pytest.approx(4 / 9)
    # 8 tasks each: speeds of 8, 8 and 8/3 tasks per unit of time
    assert figures["perfect"] == pytest.approx(1.0 - 24 / (8 + 8 + 8 / 3) / 3)
    two_tasks = Log("job", ["a", "b"], np.array([[2.0, 6.0]]), np.array([[2.0, 2.0]]))
    assert task_times(two_tasks, 8).tolist() == [[0.5, 1.5]]


@pytest.mark.parametrize(
    ("content", "words", "sentence"),
    [
        (
            "a,b\n1,2\n",
            (),
            (
                r"the column of the worker is not found among \['a', 'b'\]: name it with"
                r" --worker-column"
            ),
        ),
        (
            "rank,node,seconds\n0,0,1\n",
            (),
            "the column of the worker could be rank or node: name it with --worker-column",
        ),
        ("rank,seconds\n0,1\n0,2\n", (), "there is one worker, '0'"),
        ("rank,step,seconds\n0,1,1\n1,2,1\n", (), "0 steps have times of all 2 workers"),
        (
            "rank,step,seconds\n0,1,-1\n1,1,1\n",
            (),
            "each duration must be a finite number, not negative",
        ),
        ("", (), "cannot be read"),
    ],
)
def test_a_log_that_does_not_say_enough_gets_a_sentence(tmp_path, content, words, sentence):
    path = tmp_path / "times.csv"
    path.write_text(content)
    done = command(path, *words, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert re.search(sentence, " ".join(done.stderr.split()))
    assert not (tmp_path / "out").exists()
