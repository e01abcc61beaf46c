"""The example script starts a Ray of its own, which nobody else in the network can reach, and trains."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="the extra cluster")

from tests.cluster.sockets import listening
from tests.waiting import PATIENCE

SCRIPT = Path(__file__).parents[4] / "notebooks" / "cluster" / "train_on_ray.py"


def test_it_trains():
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    command = [sys.executable, str(SCRIPT), "--workers", "2", "--rounds", "31"]
    with listening() as addresses:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment)
    addresses.check("gcs_server", "raylet")
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"^loss (\S+); round \d+: ", done.stdout, re.MULTILINE)]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
