"""What a straggler costs: the answer is that of a simulation by hand, from every kind of log."""

import gzip
import json
import os
import re
import subprocess
import sys
from itertools import product

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from ata_gym.bench.studies.what_if.logs import Log, read_log
from ata_gym.bench.studies.what_if.study import best_split, what_if
from ata_gym.cli import app
from ata_policies import Allocator
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


@pytest.mark.parametrize("name", ["alibaba_job_1.csv", "alibaba_job_4.csv"])
def test_on_recorded_jobs_it_is_a_simulation_of_the_same_times_by_hand(shared_data, name):
    log = read_log(shared_data / name)
    table = (
        pl.read_csv(shared_data / name)
        .pivot("worker", index="time", values="batch_time_norm")
        .sort("time")
    )
    times = table.select(str(i) for i in range(10)).drop_nulls().to_numpy().astype(float)[:100]
    log = log._replace(seconds=log.seconds[:100], tasks=log.tasks[:100])
    np.testing.assert_array_equal(log.seconds, times)
    found = what_if(log, policies=["restarting-beta"])
    assert found.idle == pytest.approx(1.0 - times.sum() / (10 * times.max(axis=1).sum()))
    rate = (8 / times).sum(axis=1)  # tasks per unit of time
    assert found.perfect == pytest.approx(1.0 - (80 / rate).sum() / times.max(axis=1).sum())
    slowest = np.bincount(times.argmax(axis=1), minlength=10) / 100
    np.testing.assert_allclose(found.last, slowest)
    by_name = {one.name: one for one in found.alternatives}
    allocator = Allocator(10, 80, "restarting-beta")
    runtime = []
    busy = 0.0
    for step in times / 8:
        tasks = allocator.allocate()
        ends = [count * step[who] for who, count in tasks.items()]
        runtime.append(max(ends))
        busy += sum(ends)
        allocator.observe({who: [step[who]] * count for who, count in tasks.items()})
    np.testing.assert_allclose(by_name["restarting-beta"].runtime, runtime, rtol=1e-9)
    assert by_name["restarting-beta"].worker_time == pytest.approx(busy)
    without = [np.delete(times, i, axis=1).max(axis=1).sum() * 10 / 9 for i in range(10)]
    assert by_name[f"without {int(np.argmin(without))}"].runtime.sum() == pytest.approx(
        min(without),
    )
    # no way to share is faster than a perfect one, and B results end the round
    for other in (
        "race",
        "dispatch",
    ):
        assert (by_name[other].runtime >= 80 / rate - 1e-9).all()
        assert by_name[other].runtime.sum() <= 1.05 * times.max(axis=1).sum()


def test_the_fixed_split_is_the_best_of_all_in_small_cases():
    for seed in range(20):
        time = job(steps=7, seed=seed) / 2
        legal = [np.array(one) for one in product(range(7), repeat=3) if sum(one) == 6]
        least = min((one * time).max(axis=1).sum() for one in legal)
        assert (best_split(time, 6) * time).max(axis=1).sum() == pytest.approx(least)


def traces(times, folder, gzipped=False):
    """As of a profiler: steps, with a collective beside a kernel of half its length."""
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


def test_of_near_equal_workers_the_verdict_is_no_and_of_a_short_log_nothing():
    rng = np.random.default_rng(0)
    times = rng.normal(1.0, 0.002, (60, 4))
    found = what_if(
        Log("job", list("abcd"), times, np.ones_like(times)),
        policies=["restarting-beta"],
    )
    assert found.verdict.startswith("Not worth it: workers are near equal")
    chance = np.random.default_rng(0).gamma(25.0, 0.04, (200, 6))
    by_chance = what_if(
        Log("job", list("abcdef"), chance, np.ones_like(chance)),
        policies=["restarting-beta"],
    ).verdict
    assert re.match(
        r"Not worth it: .*, by other shares alone\. A race, which cancels .*, would save"
        r" 2\d\.\d %\.",
        by_chance,
    )
    short = Log("job", list("abc"), job()[:6], np.ones((6, 3)))
    assert "too short to say" in what_if(short, policies=["uta"]).verdict


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
