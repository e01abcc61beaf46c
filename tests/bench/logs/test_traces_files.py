"""Files of traces: which rank they are of, what beside them is skipped, and what is refused."""

import gzip
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from ata_gym.bench.logs import read_log
from ata_gym.bench.logs.traces import FORMAT
from ata_gym.cli import app
from tests.bench.logs.trace_files import event, step, write
from tests.mutated import refused_by_field


def steps(length, numbers=range(4)):
    return [step(number, 100 * number, length) for number in numbers]


def command(*words):
    return CliRunner().invoke(app, ["what-if", *map(str, words)])


PROFILED = """
import sys, time, torch
for path in sys.argv[1:]:
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=3),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(path),
    ) as profiler:
        for _ in range(4):
            torch.ones(50, 50) @ torch.ones(50, 50)
            time.sleep(0.05)
            profiler.step()
"""
"""Each step waits, so that the last is no stub of steps that a loaded machine interrupted."""


def test_a_real_profiler_trace_is_read(tmp_path):
    pytest.importorskip("torch")
    paths = [tmp_path / f"rank{rank}.json" for rank in range(2)]
    subprocess.run([sys.executable, "-c", PROFILED, *paths], check=True, capture_output=True)
    log = read_log(tmp_path)
    assert (log.workers, log.seconds.shape) == (["0", "1"], (3, 2))
    assert (log.seconds > 0).all()


@pytest.mark.parametrize(
    ("names", "workers"),
    [
        (["rank0.json", "rank_3.json.gz"], ["0", "3"]),
        (["trace-rank=2.pt.trace.json", "trace-rank=10.pt.trace.json"], ["2", "10"]),
        (["worker0.17958.pt.trace.json", "worker1.17959.pt.trace.json"], ["0", "1"]),
        (["rank0/host.pt.trace.json", "rank1/host.pt.trace.json"], ["0", "1"]),
        (
            ["plugins/profile/run/a_1.1.pt.trace.json", "plugins/profile/run/b_2.1.json"],
            ["a_1", "b_2"],
        ),
        (["gpu0.cluster_5.17.pt.trace.json", "gpu1.cluster_9.18.pt.trace.json"], None),
        (["franks3.json", "franks4.json"], ["franks3", "franks4"]),
    ],
)
def test_without_what_the_profiler_wrote_a_rank_has_the_name_of_its_file(tmp_path, names, workers):
    for place, name in enumerate(names):
        write(tmp_path / name, steps(20 + place))
    log = read_log(tmp_path)
    assert log.workers == (workers or ["gpu0.cluster_5", "gpu1.cluster_9"])
    np.testing.assert_allclose(1e3 * log.seconds, [[20, 21]] * 4)


def test_a_rank_that_the_profiler_or_the_user_wrote_counts_more_than_the_name(tmp_path):
    write(tmp_path / "gpu0.cluster.local_8.1.pt.trace.json", steps(20), rank=1)
    write(tmp_path / "gpu0.cluster.local_9.2.pt.trace.json", steps(30), rank=0)
    assert read_log(tmp_path).workers == ["0", "1"]
    assert read_log(tmp_path).seconds[0].tolist() == pytest.approx([0.03, 0.02])
    (tmp_path / "noted").mkdir()
    for name, rank in (("a", "4"), ("b", 5)):
        text = json.dumps({"rank": rank, "traceEvents": steps(20)})
        (tmp_path / f"noted/{name}.json").write_text(text)
    assert read_log(tmp_path / "noted").workers == ["4", "5"]


def test_the_files_of_a_rank_are_joined(tmp_path):
    for cycle, numbers in enumerate((range(1, 4), range(7, 9), range(12, 16))):
        for rank in range(3):
            name = f"host_{rank}.{cycle}.pt.trace.json"
            write(tmp_path / name, steps(10 * (1 + rank) + cycle, numbers), rank, 3)
    log = read_log(tmp_path)
    assert [*log.steps] == ["1", "2", "3", "7", "8", "12", "13", "14", "15"]
    truth = np.repeat([0, 1, 2], [3, 2, 4])[:, None] + [10, 20, 30]
    np.testing.assert_allclose(1e3 * log.seconds, truth)


def test_files_of_a_rank_that_are_of_two_processes_are_said(tmp_path):
    for rank in range(2):
        for first, process in ((0, 7), (10, 8)):
            events = steps(20 + 10 * rank, range(first, first + 4))
            moved = [one | {"pid": process} for one in events]
            write(tmp_path / f"run{first}_{rank}.json", moved, rank)
    log = read_log(tmp_path)
    assert len(log.seconds) == 8
    (remark,) = (one for one in log.remarks if "two processes" in one)
    assert remark.startswith("run0_0.json and run10_0.json are of rank 0 in two processes")


def test_a_step_of_a_rank_that_is_there_twice_is_refused_and_a_copy_counts_once(tmp_path):
    write(tmp_path / "a.json", steps(20), 0)
    write(tmp_path / "b.json", steps(30), 1)
    write(tmp_path / "c.json.gz", steps(30), 1)
    log = read_log(tmp_path)
    assert log.seconds[0].tolist() == pytest.approx([0.02, 0.03])
    assert "Copies of other traces are left out: c.json.gz." in log.remarks
    write(tmp_path / "c.json.gz", steps(30, range(3, 6)), 1)
    shifted = [{**one, "ts": one["ts"] + 10} for one in steps(30)]
    write(tmp_path / "c.json.gz", shifted, 1)
    with pytest.raises(
        ValueError, match=r"b\.json and c\.json\.gz are both of rank 1, and hold step 0"
    ):
        read_log(tmp_path)


def test_ranks_of_two_jobs_are_refused_by_name(tmp_path):
    write(tmp_path / "a.json", steps(20), 0, 4)
    write(tmp_path / "b.json", steps(20), 1, 8)
    with pytest.raises(
        ValueError, match=r"a\.json and b\.json are of two jobs, since .*world_size is 4"
    ):
        read_log(tmp_path)
    write(tmp_path / "b.json", steps(20), 1, 4, backend="nccl")
    with pytest.raises(ValueError, match="backend is 'gloo' in one and 'nccl'"):
        read_log(tmp_path)
    write(tmp_path / "a.json", steps(20), 0, 2, host_name="h", baseTimeNanoseconds=10**18)
    write(tmp_path / "b.json", steps(20), 1, 2, host_name="h", baseTimeNanoseconds=10**18 + 10**11)
    with pytest.raises(
        ValueError, match=r"a\.json and b\.json hold the same steps, at other times"
    ):
        read_log(tmp_path)
    later = 10**18 + 5 * 3600 * 10**9
    write(tmp_path / "b.json", steps(20), 1, 2, host_name="i", baseTimeNanoseconds=later)
    with pytest.raises(ValueError, match=r"of two jobs, since step 0 is 300 minutes later"):
        read_log(tmp_path)
    # clocks of hosts differ
    later = 10**18 + 60 * 10**9
    write(tmp_path / "b.json", steps(20), 1, 2, host_name="other", baseTimeNanoseconds=later)
    assert read_log(tmp_path).workers == ["0", "1"]
    write(tmp_path / "b.json", steps(20), 2, 2)
    with pytest.raises(ValueError, match=r"b\.json: distributedInfo\.rank is 2 of"):
        read_log(tmp_path)
    write(tmp_path / "b.json", steps(20))
    with pytest.raises(ValueError, match=r"b\.json does not say its rank, and others do"):
        read_log(tmp_path)


def test_missing_ranks_are_said(tmp_path):
    for rank in range(12):
        write(tmp_path / f"{rank}.json", steps(20), rank, 64)
    remark = "12 of 64 ranks are here: 0, 1, 2, 3, 4, 5, 6, 7 and 4 more; whoever was slowest"
    assert remark in " ".join(read_log(tmp_path).remarks)


def test_other_json_beside_traces_is_skipped_and_named(tmp_path):
    for rank in range(2):
        write(tmp_path / f"rank{rank}.json", steps(20), rank)
    others = {
        "config.json": {"lr": 1},
        "list.json": [{"a": 1}],
        "nested.json": {"x": {"traceEvents": []}},
        "number.json": 5,
        "timeline.json": [{"ph": "X", "name": "grad", "ts": 1, "dur": 2}],
    }
    for name, data in others.items():
        (tmp_path / name).write_text(json.dumps(data))
    log = read_log(tmp_path)
    assert log.workers == ["0", "1"]
    assert f"Other JSON beside the traces was not read: {', '.join(others)}." in log.remarks
    for name in others:
        assert not FORMAT.recognises(tmp_path / name)


def test_what_holds_no_trace_is_not_recognised(tmp_path):
    (tmp_path / "rank0.csv").write_text("step,seconds\n1,2\n")
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json.gz").write_bytes(b"no gzip")
    assert not FORMAT.recognises(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "c.json")
        assert not FORMAT.recognises(tmp_path)
    long = {"distributedInfo": {"pg_config": [{"pg_desc": "x" * 100}] * 2000}}
    write(tmp_path / "deep/rank0.json", steps(20), **long)
    assert FORMAT.recognises(tmp_path)
    assert FORMAT.recognises(tmp_path / "deep/rank0.json")


def test_a_last_step_that_the_loop_ended_inside_of_is_left_out(tmp_path):
    for rank in range(2):
        stub = step(4, 400, 0.3)
        write(tmp_path / f"rank{rank}.json", [*steps(20), stub], rank)
    log = read_log(tmp_path)
    assert len(log.seconds) == 4
    assert "The last step is left out" in " ".join(log.remarks)


def test_copies_of_steps_on_a_device_are_no_steps(tmp_path):
    for rank in range(2):
        copies = [
            event(f"ProfilerStep#{k}", "gpu_user_annotation", 100 * k + 50, 5) for k in range(4)
        ]
        write(tmp_path / f"rank{rank}.json", [*copies, *steps(20)], rank)
    np.testing.assert_allclose(read_log(tmp_path).seconds, 0.02)
    for rank in range(2):
        write(tmp_path / f"rank{rank}.json", [*copies, event("gemm", "kernel", 0, 1)], rank)
    np.testing.assert_allclose(read_log(tmp_path).seconds, 0.005)


def trace(rank):
    events = [*steps(20, range(3)), event("gemm", "kernel", 1, 1, correlation=3)]
    job = {
        "backend": "gloo",
        "rank": rank,
        "world_size": 2,
        "pg_config": [{"pg_desc": "a", "pg_size": 2}],
    }
    return {"distributedInfo": job, "host_name": "h", "traceEvents": events}


def test_a_trace_that_holds_something_else_is_refused_by_file_and_field(tmp_path):
    whole = tmp_path / "rank0.json"
    path = tmp_path / "rank1.json"
    whole.write_text(json.dumps(trace(0)))
    path.write_text(json.dumps(trace(1)))
    (tmp_path / ".part-7-rank2.json").write_text("{")
    assert read_log(tmp_path).seconds.shape == (3, 2)
    taken = refused_by_field(path, lambda: read_log(tmp_path))
    assert {
        f"traceEvents[{place}].{field}" for place in (0, 3) for field in ("ph", "name", "cat")
    } < taken
    for wrong in ({"traceEvents": {}}, {"traceEvents": 3}, {"traceEvents": [5]}):
        path.write_text(json.dumps(wrong))
        with pytest.raises(
            ValueError, match=r"rank1\.json cannot be read as a trace of the profiler: "
        ):
            read_log(tmp_path)
    path.write_text(json.dumps({"traceEvents": []}))
    with pytest.raises(
        ValueError, match=r"rank1\.json has no steps: call prof\.step\(\) after each"
    ):
        read_log(tmp_path)


def test_a_damaged_trace_gets_a_sentence(tmp_path):
    write(tmp_path / "rank0.json", steps(20))
    text = json.dumps(trace(1)).encode()
    compressed = gzip.compress(text)
    path = tmp_path / "rank1.json"
    for name, content in (
        ("rank1.json", b"[" * 100_000),
        ("rank1.json", b'{"traceEvents": ' * 100_000),
        ("rank1.json", b'{"traceEvents": [], "a": ' + b"[" * 100_000),
        ("rank1.json", b"\xff\xfe"),
        ("rank1.json", text[:-5]),
        ("rank1.json", text[:60]),
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


def test_of_mutated_traces_each_is_read_or_refused_in_a_sentence(tmp_path):
    random_source = random.Random(0)
    write(tmp_path / "rank0.json", steps(20))
    text = json.dumps(trace(1)).encode()
    path = tmp_path / "rank1.json"
    for _ in range(200):
        content = bytearray(text)
        for _ in range(random_source.choice([1, 2, 8])):
            place = random_source.randrange(len(content))
            content[place : place + random_source.randrange(3)] = random_source.choice(
                [b"", b"[", b'"', b"{", b"9", b"-", b"\xff", b"null", b"NaN", b"1e999"],
            )
        path.write_bytes(content)
        sentence = ""
        try:
            read_log(tmp_path)
        except ValueError as error:
            sentence = str(error)
        assert "\n" not in sentence


def test_numbers_that_json_has_not_do_no_harm_in_other_fields(tmp_path):
    for rank in range(2):
        text = json.dumps({**trace(rank), "bandwidth": float("inf")})
        (tmp_path / f"rank{rank}.json").write_text(text)
    assert read_log(tmp_path).seconds.shape == (3, 2)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes of POSIX")
def test_a_pipe_among_the_traces_of_a_folder_is_refused(tmp_path):
    write(tmp_path / "rank0.json", steps(20))
    os.mkfifo(tmp_path / "rank1.json")
    assert "rank1.json is a pipe: name a file" in command(tmp_path).stderr
