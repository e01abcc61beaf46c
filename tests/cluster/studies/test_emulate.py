"""The study of emulated workers: real processes, a table, a picture; and what is said of wrong options."""

import shutil
import sys

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from ata_gym.cli import app
from ata_gym.cluster.studies.emulation import Emulation
from ata_gym.cluster.studies.study import ALONE, SCHEMA, summarise

SMALL = "--speeds 1,3 --task-time 0.001 --budget 6 --rounds 16 --policies uta,lb-bsp-ema"
EVENTS = "--change-at 8 --stall 5,1,0.3 --away 11,13,1"


def emulate(options, out):
    return CliRunner().invoke(app, ["emulate", *options.split(), "--out", str(out)])


def test_processes_train_as_one_and_follow_what_happens_and_what_has_finished_is_not_run_again(tmp_path):
    out = tmp_path / "out"
    done = emulate(f"{SMALL} {EVENTS}", out)
    assert done.exit_code == 0, done.output
    summary = pl.read_csv(out / "table.csv")
    assert summary["policy"].to_list() == ["uta", "lb-bsp-ema"]
    assert summary["times_as_fast"][0] == 1.0
    assert (summary["loss_differs"] < 1e-5).all()
    assert {path.name for path in (out / "plots").iterdir()} == {"emulated.png", "emulated.svg"}
    records = pl.read_parquet(out / "results" / "lb-bsp-ema.parquet")
    tasks, busy = (np.array(records[name].to_list()) for name in ("tasks", "busy"))
    assert (tasks.sum(axis=1) == 6).all()
    assert (tasks[10:13, 1] == 0).all()
    assert (tasks[13:, 1] > 0).any()
    assert records["seconds"][4] > 0.3
    assert (busy[1:4] >= tasks[1:4] * np.array([0.001, 0.003])).all()

    before = {path: path.stat().st_mtime_ns for path in (out / "results").iterdir()}
    assert emulate(f"{SMALL} {EVENTS}", out).exit_code == 0
    assert before == {path: path.stat().st_mtime_ns for path in (out / "results").iterdir()}
    other = emulate(SMALL, out)
    assert other.exit_code == 2
    assert "another configuration" in other.output


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("--speeds fast", "--speeds must be numbers"),
        ("--speeds 1,0", "each relative task time must be a finite number above 0"),
        ("--stall 1,2", "--stall must be three numbers"),
        ("--stall 3,4,5", "the worker of stall must be a whole number from 0 to 3, not 4"),
        ("--stall 1,0,5", "the round of stall must be a whole number from 2 to 200, not 1"),
        ("--stall 201,0,5", "the round of stall must be a whole number from 2 to 200, not 201"),
        ("--stall 3,0,1e9", "the seconds of stall must be a finite number above 0 and at most 1500, not 1000000000"),
        ("--stall 5,0,1 --away 4,6,0", "worker 0 cannot stall in round 5, as it is away then"),
        ("--change-at 1", "the round of change_at must be a whole number from 2 to 200, not 1"),
        ("--change-at 201", "the round of change_at must be a whole number from 2 to 200, not 201"),
        ("--away 1,2,0", "the first round of away must be a whole number from 2 to 200, not 1"),
        ("--away 5,4,0", "the last round of away must be a whole number from 5 to 200, not 4"),
        ("--away 5,201,0", "the last round of away must be a whole number from 5 to 200, not 201"),
        ("--away 5,6,0.5", "the worker of away must be a whole number from 0 to 3, not 0.5"),
        ("--away 5,6,0 --speeds 1", "away leaves nobody there"),
        ("--task-time 1e9", "each task time must be a finite number above 0 and at most 1500, not 1000000000"),
        ("--seed -1", "seed must be a whole number from 0"),
        ("--away 1,2,x", "--away must be numbers"),
        ("--policies nobody", "there is no policy 'nobody'"),
        ("--budget 0", "budget must be a whole number from 1"),
        ("--problem nothing", "there is no problem 'nothing'"),
        ("--problem quadratic", "labelled samples"),
    ],
)
def test_wrong_options_get_a_sentence(tmp_path, wrong, sentence):
    done = emulate(wrong, tmp_path / "out")
    assert done.exit_code == 2
    assert sentence in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def frame(policy, seconds, loss):
    none = [[0, 0]] * len(seconds)
    rows = {"policy": policy, "round": range(1, len(seconds) + 1), "seconds": seconds, "communication": 0.0}
    return pl.DataFrame({**rows, "loss": loss, "tasks": none, "busy": none}, schema=SCHEMA)


def test_the_summary_compares_medians_after_settling_and_finds_when_a_change_was_followed():
    emulation = Emulation(4, (1.0, 1.0), 40, change_at=21)
    before, after = [9.0] * 10 + [2.0] * 10, [5.0] * 7 + [2.1] * 13
    slow = frame("slow", [4.0] * 40, 1.0)
    records = {"slow": slow, "fast": frame("fast", before + after, 1.001), ALONE: frame(ALONE, [1.0] * 40, 1.0)}
    table = summarise(emulation, records)
    assert table["ms_per_round"].to_list() == [4000.0, 2000.0]
    assert table["times_as_fast"].to_list() == [1.0, 2.0]
    assert table["over_least"].to_list() == [2.0, 1.0]
    assert table["rounds_to_follow"].to_list() == [None, 5.0]  # from there on the median of five is short
    np.testing.assert_allclose(table["loss_differs"], [0.0, 0.001])


@pytest.mark.skipif(shutil.which("false") is None, reason="there is no command that only fails")
def test_the_failure_of_a_process_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    done = emulate(SMALL, tmp_path / "out")
    assert done.exit_code == 2
    assert done.stderr == "ata-gym: a process of the emulated cluster failed: it said nothing\n"
