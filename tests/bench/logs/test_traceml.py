"""TraceML's telemetry: the times before the wait, and what its files cannot say."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from itertools import product

import numpy as np
import pytest

from ata_gym.bench.logs import read_log
from tests.bench.logs import examples
from tests.bench.logs.examples import traceml_events, write_traceml
from tests.mutated import mutations, read_or_refused

WHOLE = 200.0
"""Milliseconds of a step, of which the loading of data is LOADING."""
LOADING = 10.0


def events(before_wait: float, **fields) -> str:
    """The events of a step with some milliseconds before the wait."""
    times = {"dataloader_next": LOADING, "forward_time": before_wait - LOADING - 5.0}
    times |= {"backward_time": WHOLE - before_wait, "step_time": WHOLE - LOADING}
    return traceml_events(times, **fields)


def rows(ranks: int = 3, steps: int = 10):
    """Steps in which rank r has 50 + 20 r milliseconds before its wait."""
    return [
        (r, step, events(50.0 + 20.0 * r)) for step, r in product(range(1, steps + 1), range(ranks))
    ]


def test_a_time_is_the_step_without_the_backward_pass_and_the_whole_is_kept(tmp_path):
    write_traceml(tmp_path / "telemetry", rows())
    log = read_log(tmp_path / "telemetry")
    np.testing.assert_allclose(log.seconds, np.tile([0.05, 0.07, 0.09], (10, 1)))
    np.testing.assert_allclose(log.step_times, 0.2)
    assert any("65 % of the steps" in one and "not in this log" in one for one in log.remarks)


def test_a_run_is_read_from_its_folder_and_from_the_summary_in_it(tmp_path):
    folder = examples.traceml(tmp_path)
    summary = folder / "final_summary.json"
    summary.write_text('{"schema_version": 1.9, "primary_diagnosis": {}, "step_time": {}}')
    expected = read_log(folder / "aggregator" / "telemetry").seconds
    for path in (folder, summary):
        np.testing.assert_array_equal(read_log(path).seconds, expected)
    (folder / "aggregator" / "telemetry").unlink()
    with pytest.raises(ValueError, match="a summary of TraceML, with means over steps: name the"):
        read_log(summary)


def test_a_database_beside_a_summary_without_the_table_is_refused(tmp_path):
    with closing(sqlite3.connect(tmp_path / "telemetry")) as database:
        database.execute("CREATE TABLE other (id INTEGER)")
    with pytest.raises(ValueError, match="telemetry has no table step_time_samples: record with"):
        read_log(tmp_path)


def test_the_clock_of_the_gpu_counts_where_a_gpu_was_used(tmp_path):
    # the processor only starts the work: its times of the passes are short
    written = []
    for rank, step, _ in rows():
        own = 50.0 + 20.0 * rank
        by_event = json.loads(traceml_events({"dataloader_next": LOADING}))
        gpu = {
            "forward_time": own - LOADING,
            "backward_time": WHOLE - own,
            "step_time": WHOLE - LOADING,
        }
        for name, time in gpu.items():
            by_event[f"_traceml_internal:{name}"] = {
                "cuda:0": {"is_gpu": name != "step_time", "cpu_ms": 1.0, "gpu_ms": time}
            }
        written.append((rank, step, json.dumps(by_event)))
    write_traceml(tmp_path / "telemetry", written)
    log = read_log(tmp_path / "telemetry")
    np.testing.assert_allclose(log.seconds[0], [0.05, 0.07, 0.09])
    np.testing.assert_allclose(log.step_times, 0.2)


def test_where_a_step_has_no_time_of_the_gpu_the_passes_before_the_wait_are_added_up(tmp_path):
    written = [(rank, step, events(50.0 + 20.0 * rank, is_gpu=True)) for rank, step, _ in rows()]
    write_traceml(tmp_path / "telemetry", written)
    log = read_log(tmp_path / "telemetry")
    np.testing.assert_allclose(log.seconds[0], [0.045, 0.065, 0.085])
    assert log.rest is None
    assert any("nor is what runs between the passes" in one for one in log.remarks)


@pytest.mark.parametrize("times", [{"step_time": WHOLE, "dataloader_next": LOADING}, {}])
def test_without_the_passes_it_cannot_say(times, tmp_path):
    times = traceml_events(times)
    write_traceml(tmp_path / "telemetry", [(rank, step, times) for rank, step, _ in rows()])
    with pytest.raises(ValueError, match=r"forward and backward pass.* start the run by"):
        read_log(tmp_path / "telemetry")


def test_ranks_and_steps_that_are_not_there_are_said(tmp_path):
    write_traceml(tmp_path / "telemetry", [(r, s + 40, e) for r, s, e in rows()], world_size=8)
    remarks = read_log(tmp_path / "telemetry").remarks
    assert any(one.startswith("3 of 8 ranks are in the file") for one in remarks)
    assert any(one.startswith("The file begins with step 41") for one in remarks)


def test_a_sharded_run_is_refused(tmp_path):
    path = tmp_path / "telemetry"
    write_traceml(path, rows())
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE runtime_environment (training_strategy TEXT)")
        database.execute("INSERT INTO runtime_environment VALUES ('fsdp')")
        database.commit()
    with pytest.raises(ValueError, match=r"shards the model .* with torch\.profiler instead"):
        read_log(path)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ((0, 1, "{"), "row 1 of step_time_samples"),
        ((0, 1, "[]"), "row 1 of step_time_samples"),
        ((0, 1, b"\x00"), "row 1 of step_time_samples: events_json holds no times"),
        ((None, 1, events(50.0)), "row 1 of step_time_samples: global_rank must be"),
        (("a", 1, events(50.0)), "row 1 of step_time_samples: global_rank must be"),
        ((0, 1.5, events(50.0)), "row 1 of step_time_samples: step must be"),
        (
            (0, 1, events(50.0, cpu_ms=-1.0)),
            "row 1 of step_time_samples: .*cpu_ms must be milliseconds",
        ),
        (
            (0, 1, events(50.0, cpu_ms="x")),
            "row 1 of step_time_samples: .*cpu_ms must be milliseconds",
        ),
        (
            (0, 1, '{"_traceml_internal:step_time": {"cpu": 5}}'),
            "row 1 of step_time_samples: events_json holds no times",
        ),
    ],
)
def test_a_bad_row_is_refused_by_its_number_and_field(row, sentence, tmp_path):
    write_traceml(tmp_path / "telemetry", [row, *rows()])
    with pytest.raises(ValueError, match=sentence):
        read_log(tmp_path / "telemetry")


def test_events_with_a_field_of_another_type_are_read_or_refused_in_a_sentence(tmp_path):
    path = tmp_path / "telemetry"
    times = {"backward_time": WHOLE - 50.0, "step_time": WHOLE}
    for mutation in mutations(json.loads(traceml_events(times))):
        path.unlink(missing_ok=True)
        write_traceml(path, [(0, 1, json.dumps(mutation.document)), *rows(steps=3)[1:]])
        log = read_or_refused(path, partial(read_log, path))
        assert log is None or np.isfinite(log.seconds).all()


def test_files_of_other_versions_and_damaged_ones_are_refused_in_a_sentence(tmp_path):
    path = tmp_path / "telemetry"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE step_time_samples (rank INTEGER, step INTEGER)")
        database.commit()
    with pytest.raises(ValueError, match="lacks events_json: record with traceml-ai"):
        read_log(path)
    path.unlink()
    write_traceml(path, [])
    with pytest.raises(ValueError, match="is empty: let the run end"):
        read_log(path)
    path.unlink()
    write_traceml(path, rows())
    content = path.read_bytes()
    path.write_bytes(content[:6000] + b"\xff" * 4000 + content[10_000:])
    with pytest.raises(ValueError, match="SQLite"):
        read_log(path)


def test_nothing_is_written_beside_a_database_and_a_log_of_a_run_that_was_killed_is_read(tmp_path):
    folder = tmp_path / "whole"
    folder.mkdir()
    write_traceml(folder / "telemetry", rows())
    before = sorted(folder.iterdir())
    read_log(folder / "telemetry")
    assert sorted(folder.iterdir()) == before
    # a copy of files that are open is what a killed run leaves
    live = sqlite3.connect(folder / "telemetry")
    live.execute("PRAGMA wal_autocheckpoint = 0")
    live.execute(
        "INSERT INTO step_time_samples (global_rank, step, events_json) VALUES (0, 0, '{')"
    )
    live.commit()
    killed = tmp_path / "killed"
    killed.mkdir()
    for file in folder.iterdir():
        (killed / file.name).write_bytes(file.read_bytes())
    live.close()
    with pytest.raises(ValueError, match="row 31 of step_time_samples"):
        read_log(killed / "telemetry")


TRAINING = """
import os, sys, time
import torch, torch.distributed as dist, traceml_ai as traceml
dist.init_process_group("gloo")
slow = dist.get_rank() == 1
where = os.environ["WHERE"]
traceml.init(mode="auto")
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def forward(self, x):
        time.sleep(0.02 + 0.03 * (slow and where == "forward"))
        return self.layer(x)
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, i):
        time.sleep(0.01 * (slow and where == "loader"))
        return torch.ones(8), torch.ones(1)
model = torch.nn.parallel.DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for x, y in torch.utils.data.DataLoader(Data(), batch_size=3):
    with traceml.trace_step(model):
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("where", ["forward", "loader"])
def test_the_slow_rank_of_a_run_of_the_tool_itself_is_known(where, tmp_path):
    pytest.importorskip("traceml_ai", reason="traceml-ai is not installed")
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAINING)
    subprocess.run(
        [
            *(sys.executable, "-m", "traceml_ai.launcher.cli", "run", "train.py"),
            *("--nproc-per-node", "3", "--run-name", "job"),
        ],
        cwd=tmp_path,
        env=os.environ | {"WHERE": where, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=200,
    )
    log = read_log(tmp_path / "logs" / "job")
    assert list(log.workers) == ["0", "1", "2"]
    assert (log.seconds.argmax(axis=1) == 1).mean() > 0.9
    assert log.seconds[:, 1].mean() - log.seconds[:, 0].mean() == pytest.approx(0.03, abs=0.01)
