"""The example script joins a cluster and trains."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

ray = pytest.importorskip("ray", reason="the extra cluster")

SCRIPT = Path(__file__).parents[4] / "notebooks" / "cluster" / "train_on_ray.py"


@pytest.mark.usefixtures("cluster")
def test_it_trains():
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, str(SCRIPT), "--address", address, "--workers", "2", "--rounds", "31"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"^loss (\S+); round \d+: ", done.stdout, re.MULTILINE)]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
