"""The example script trains, and takes the cluster that is connected."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[4] / "notebooks" / "cluster" / "train_on_ray.py"


@pytest.mark.usefixtures("cluster")
def test_it_trains(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--workers", "2", "--rounds", "31"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    losses = [float(loss) for loss in re.findall(r"^loss (\S+); round \d+: ", capsys.readouterr().out, re.MULTILINE)]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
