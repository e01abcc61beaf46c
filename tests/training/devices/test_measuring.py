import re
import shlex
import sys
import types

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from ata_gym.bench.report import style
from ata_gym.cli import app
from ata_gym.pools import read_trace
from ata_gym.training import Trainer, Worker, make_problem
from ata_gym.training.devices.workers import WARM_UP, Replica, autocorrelation, measure_times
from tests.training.studies.conftest import sketch


def ata_gym(line, *more):
    return CliRunner().invoke(app, [*shlex.split(line), *map(str, more)])


def measure(out, *more, workers="cpu:1,cpu:2,cpu:4", tasks=5):
    return ata_gym(f"measure --problem quadratic --workers {workers} --tasks {tasks} --out", out, *more)


def pool_of(path):
    return read_trace(path, worker="worker", duration="duration")


@pytest.mark.parametrize("name", ["trace.csv", "new/trace.parquet"])
def test_a_trace_is_left_that_a_pool_replays_and_a_table_printed(tmp_path, name):
    out = tmp_path / name
    result = measure(out, tasks=20)
    assert result.exit_code == 0, result.output
    frame = (pl.read_csv if out.suffix == ".csv" else pl.read_parquet)(out)
    assert frame.columns == ["worker", "task", "duration"]
    assert frame["worker"].to_list() == [0, 1, 2] * 20
    assert frame["task"].to_list() == [task for task in range(20) for _ in range(3)]
    assert (frame["duration"] > 0).all()
    pool = pool_of(out)
    assert pool.n == 3
    for i in range(3):
        np.testing.assert_array_equal(pool.record(i), frame.filter(pl.col("worker") == i)["duration"])
    assert [file.name for file in out.parent.iterdir()] == [out.name]
    times = np.array([pool.record(i) for i in range(3)])
    rows = [line.split() for line in result.stdout.splitlines() if re.match(r"\s*[012] ", line)]
    for i, (worker, device, work, mean, sd, cv, correlation) in enumerate(rows):
        assert (worker, device, work) == (str(i), "cpu", str([1, 2, 4][i]))
        assert float(mean) == pytest.approx(1e3 * times[i].mean(), abs=1e-3)
        assert float(sd) == pytest.approx(1e3 * times[i].std(ddof=1), abs=1e-3)
        assert float(cv) == pytest.approx(times[i].std(ddof=1) / times[i].mean(), abs=1e-3)
        assert float(correlation) == pytest.approx(np.clip(autocorrelation(times)[i], -1, 1), abs=1e-2)
    assert "autocorrelation" in result.stdout
    assert len(rows) == 3


def test_the_printed_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(style, "save", sketch)
    result = measure("my trace.csv")
    (command,) = re.findall(r"^  ata-gym (bench .*)$", result.stdout, re.MULTILINE)
    played = ata_gym(f"{command} --policies uta --seeds 1 --jobs 1 --rounds 9")
    assert played.exit_code == 0, played.output
    assert "n = 3, B = 3" in played.stdout
    assert (tmp_path / "results" / "my trace" / "table.csv").exists()


def test_workers_take_turns_after_a_warm_up(monkeypatch):
    order, gradients, run, gradient = [], [], Replica.run, Replica._gradient

    def counted(self, task, work=1, *, keep=False):
        order.append((task, work))
        return run(self, task, work, keep=keep)

    monkeypatch.setattr(Replica, "run", counted)
    monkeypatch.setattr(Replica, "_gradient", lambda *args: gradients.append(len(order)) or gradient(*args))
    told = []
    workers = [Worker(work=1), Worker(work=20)]
    trainer = Trainer("quadratic", 1)
    before = trainer.model.x.detach().clone()
    times = measure_times(trainer, workers, 8, told.append)
    assert order == [(task, work) for task in range(8) for work in (1, 20)]
    assert gradients.count(0) == WARM_UP  # before any task is recorded
    assert len(gradients) == WARM_UP + 8 * 21
    assert told == list(range(1, 17))
    assert times.shape == (2, 8)
    assert trainer.round == 0  # nothing is trained
    assert torch.equal(trainer.model.x, before)


def test_a_task_has_the_samples_and_the_precision_that_are_asked_for(tmp_path, monkeypatch):
    seen, problem = [], make_problem("digits")
    loss = problem.loss

    def watched(model, batch):
        seen.append((len(batch.labels), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
        return loss(model, batch)

    problem.loss = watched
    monkeypatch.setitem(sys.modules, "mine", types.SimpleNamespace(watched=lambda: problem))
    options = ("--problem", "mine:watched", "--micro-batch", 7, "--precision", "bfloat16")
    result = measure(tmp_path / "trace.csv", *options, workers="cpu:1,cpu:2")
    assert result.exit_code == 0, result.output
    tasks = [one for one in seen if one[0] not in {2, 4}]  # those are of the check whether samples mix
    assert len(tasks) > 0
    assert set(tasks) == {(7, True, torch.bfloat16)}
    assert "2 workers, 10 tasks of 7 samples in bfloat16; to let policies play" in result.stdout


def test_autocorrelation_against_the_definition():
    times = np.random.default_rng(0).exponential(size=(2, 2000))
    slow = np.cumsum(times, 1) - np.arange(2000)
    for some in (times, slow):
        expected = [np.corrcoef(row[1:], row[:-1])[0, 1] for row in some]
        np.testing.assert_allclose(autocorrelation(some), expected, atol=0.01)
    assert np.isnan(autocorrelation(np.ones((1, 5)))).all()


def test_a_stopped_measurement_leaves_everything_as_it_was(tmp_path, monkeypatch):
    out = tmp_path / "trace.csv"
    assert measure(out).exit_code == 0
    before, run = out.read_bytes(), Replica.run

    def stopped(self, task, work=1, *, keep=False):
        if task == 2:
            raise KeyboardInterrupt
        return run(self, task, work, keep=keep)

    monkeypatch.setattr(Replica, "run", stopped)
    result = measure(out)
    assert result.exit_code == 130
    assert result.stderr == "ata-gym: stopped; nothing was written\n"
    assert out.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["trace.csv"]


def refused(result, sentence, ending="\n"):
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stderr.endswith(ending)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (float("nan"), "the training loss is nan in round 1"),
        (torch.OutOfMemoryError("CUDA out of memory."), "a single task does not fit into the memory of cpu"),
    ],
)
def test_a_task_that_fails_is_one_sentence(tmp_path, monkeypatch, found, sentence):
    problem = make_problem("quadratic")
    loss = problem.loss

    def failing(model, batch):
        if isinstance(found, Exception):
            raise found
        return loss(model, batch) * found

    problem.loss = failing
    monkeypatch.setitem(sys.modules, "mine", types.SimpleNamespace(failing=lambda: problem))
    result = measure(tmp_path / "trace.csv", "--problem", "mine:failing")
    refused(result, sentence, "; nothing was written\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--workers", ","), "name at least one worker"),
        (("--workers", "cpu:fast"), "a worker is DEVICE or DEVICE:WORK"),
        (("--tasks", 1), "tasks must be a whole number from 2"),
        (("--seed", -1), "seed must be a whole number"),
        (("--micro-batch", 0), "micro_batch must be a whole number from 1"),
        (("--problem", "digit"), "did you mean digits"),
        (("--problem", "cifar100"), "needs data"),
        (("--out", "trace.txt"), "must end in .parquet or .csv, not 'trace.txt'"),
        (("--out", "folder.csv"), "folder.csv cannot be written: it is a folder"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    refused(measure("trace.csv", *arguments), sentence)
    assert [file.name for file in tmp_path.rglob("*")] == ["folder.csv"]
