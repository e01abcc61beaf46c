"""The example script under torchrun: it learns who is slow, and a checkpoint goes on with another
number of workers.
"""

import contextlib
import os
import re
import runpy
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.waiting import PATIENCE

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("tensorboard")

from tests.cluster.disturbances import Kind  # noqa: E402
from tests.cluster.torchrun import kills  # noqa: E402
from tests.cluster.torchrun.processes import as_torchrun  # noqa: E402

SCRIPT = Path(__file__).parents[3] / "notebooks" / "cluster" / "train.py"


def run_script(script, folder, *options):
    os.chdir(folder)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if torch.cuda.device_count() < 2:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.argv = [str(script), *options]
    with Path(f"said-{os.environ['RANK']}").open("w") as output, contextlib.redirect_stdout(output):
        runpy.run_path(str(script), run_name="__main__")


def test_it_learns_saves_and_goes_on(tmp_path, monkeypatch, capsys):
    common = (
        "--budget",
        "12",
        "--emulate",
        "0.002,0.02",
        "--policy",
        "certainty-equivalence",
        "--save-every",
        "7",
    )
    options = (*common, "--steps", "21", "--tensorboard", "board")
    with as_torchrun(run_script, SCRIPT, tmp_path, *options, size=2) as running:
        running.result(PATIENCE)
    lines = (tmp_path / "said-0").read_text().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["round 1", "round 21"]
    tasks = [
        [int(count) for count in re.findall(r"/\d (\d+)", line.partition("; ")[2])]
        for line in lines
    ]
    assert tasks[0] == [6, 6]
    assert tasks[1][0] > tasks[1][1]
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert state["allocator"]["rounds"] == 21
    (board,) = (tmp_path / "board").iterdir()
    assert board.stat().st_size > 1000

    alone = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process keeps its handler
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *common, "--steps", "41"])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    (line,) = capsys.readouterr().out.splitlines()
    assert re.match(r"round 41: .*/0 12 in", line)


def test_training_is_right_after_a_rank_was_killed_and_torchrun_has_started_all_again(tmp_path):
    kills.attempt(np.random.default_rng(0), tmp_path, [Kind.KILL], ranks=2)
