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
from ata_gym.training.devices.workers import WARM_UP, Replica, measure_times
from tests.training.small_problem import weights
from tests.training.studies.conftest import sketch


def ata_gym(line, *more):
    return CliRunner().invoke(app, [*shlex.split(line), *map(str, more)])


def measure(out, *more, workers="cpu:1,cpu:2,cpu:4", tasks=5):
    return ata_gym(f"measure --problem quadratic --workers {workers} --tasks {tasks} --out", out, *more)


@pytest.mark.parametrize(("name", "read"), [("trace.csv", pl.read_csv), ("new/trace.parquet", pl.read_parquet)])
def test_a_trace_is_left_that_a_pool_replays_and_a_table_printed(tmp_path, name, read):
    out = tmp_path / name
    result = measure(out, tasks=20)
    assert result.exit_code == 0, result.output
    frame = read(out)
    assert frame.columns == ["worker", "task", "duration"]
    assert frame["worker"].to_list() == [0, 1, 2] * 20
    assert frame["task"].to_list() == [task for task in range(20) for _ in range(3)]
    assert (frame["duration"] > 0).all()
    pool, times = read_trace(out, worker="worker", duration="duration"), frame["duration"].to_numpy().reshape(20, 3).T
    assert [pool.record(i).tolist() for i in range(pool.n)] == times.tolist()
    assert [file.name for file in out.parent.iterdir()] == [out.name]
    rows = [line.split() for line in result.stdout.splitlines() if re.match(r"\s*[012] ", line)]
    assert [row[:3] for row in rows] == [["0", "cpu", "1"], ["1", "cpu", "2"], ["2", "cpu", "4"]]
    mean, sd = 1e3 * times.mean(1), 1e3 * times.std(1, ddof=1)
    shown = np.array([row[3:] for row in rows], float)
    np.testing.assert_allclose(shown, np.stack([mean, sd, sd / mean], axis=1), rtol=1e-6, atol=1e-3)


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
    order, gradients, told, run, gradient = [], [], [], Replica.run, Replica._gradient

    def counted(self, task, work=1, *, keep=False):
        order.append((task, work))
        return run(self, task, work, keep=keep)

    monkeypatch.setattr(Replica, "run", counted)
    monkeypatch.setattr(Replica, "_gradient", lambda *args: gradients.append(len(order)) or gradient(*args))
    trainer = Trainer("quadratic", 1)
    before = weights(trainer).clone()
    times = measure_times(trainer, [Worker(work=1), Worker(work=20)], 8, told.append)
    assert order == [(task, work) for task in range(8) for work in (1, 20)]
    assert gradients.count(0) == WARM_UP  # before any task is recorded
    assert len(gradients) == WARM_UP + 8 * 21
    assert told == list(range(1, 17))
    assert times.shape == (2, 8)
    assert trainer.round == 0  # nothing is trained
    assert torch.equal(weights(trainer), before)


def test_a_task_has_the_samples_and_the_precision_that_are_asked_for(tmp_path, monkeypatch):
    seen, problem = set(), make_problem("digits")
    loss = problem.loss

    def watched(model, batch):
        seen.add((len(batch.labels), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
        return loss(model, batch)

    problem.loss = watched
    monkeypatch.setitem(sys.modules, "mine", types.SimpleNamespace(watched=lambda: problem))
    options = ("--problem", "mine:watched", "--micro-batch", 7, "--precision", "bfloat16")
    result = measure(tmp_path / "trace.csv", *options, workers="cpu:1,cpu:2")
    assert {one for one in seen if one[0] not in {2, 4}} == {(7, True, torch.bfloat16)}  # those see whether samples mix
    assert "2 workers, 10 tasks of 7 samples in bfloat16; to let policies play" in result.stdout


@pytest.mark.parametrize(
    ("found", "code", "sentence"),
    [
        (float("nan"), 2, "the training loss is nan in round 1"),
        (torch.OutOfMemoryError("CUDA out of memory."), 2, "a single task does not fit into the memory of cpu"),
        (KeyboardInterrupt(), 130, "ata-gym: stopped"),
    ],
)
def test_a_measurement_that_ends_early_is_one_sentence_and_leaves_everything_as_it_was(
    tmp_path, monkeypatch, found, code, sentence
):
    problem = make_problem("quadratic")
    loss = problem.loss

    def failing(model, batch):
        if isinstance(found, BaseException):
            raise found
        return loss(model, batch) * found

    problem.loss = failing
    monkeypatch.setitem(sys.modules, "mine", types.SimpleNamespace(failing=lambda: problem))
    (tmp_path / "trace.csv").write_text("as it was")
    result = measure(tmp_path / "trace.csv", "--problem", "mine:failing")
    assert result.exit_code == code
    assert sentence in result.stderr
    assert result.stderr.endswith("; nothing was written\n")
    assert result.stderr.count("\n") == 1
    assert [file.read_text() for file in tmp_path.iterdir()] == ["as it was"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--workers", ","), "name at least one worker"),
        (("--workers", "cpu:fast"), "a worker is DEVICE or DEVICE:WORK"),
        (("--tasks", 1), "tasks must be a whole number from 2"),
        (("--problem", "cifar100"), "needs data"),
        (("--out", "trace.txt"), "must end in .parquet or .csv, not 'trace.txt'"),
        (("--out", "folder.csv"), "folder.csv cannot be written: it is a folder"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, refused, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    refused(measure("trace.csv", *arguments), sentence)
    assert [file.name for file in tmp_path.rglob("*")] == ["folder.csv"]
