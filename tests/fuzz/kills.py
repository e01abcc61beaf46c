"""A command that is killed at any moment goes on where it was, ends with the same bytes and leaves
no process.
"""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tests.waiting import PATIENCE, until

_COMMANDS = {
    "bench": (
        "bench --scenario icml2025-regret --rounds 4000 --seeds 2 --policies ata,gta,uta --jobs"
        " {jobs}"
    ),
    "leaderboard": (
        "leaderboard --quick --scenarios regret --policies uta,gta,dispatch-gta --seeds 1 --jobs"
        " {jobs}"
    ),
    "train": "train --scenario icml2025-regret --rounds 150 --policies uta,ata",
    "learn": (
        "learn --rounds 5 --steps 2000 --rows 4 --evaluations 4 --validation 3 --test 3"
        " --algorithm a2c"
    ),
}
_NEEDS = {"train": "torch", "learn": "stable_baselines3"}
_CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
_MOST = 4
"""Kills of one command."""


def attempt(rng: np.random.Generator, folder: Path) -> None:
    commands = [name for name in _COMMANDS if name not in _NEEDS or find_spec(_NEEDS[name])]
    name = str(rng.choice(commands))
    jobs = int(rng.choice([1, 2]))
    (expected, seconds), out = _reference(name), folder / "out"
    for _ in range(_MOST):
        which = signal.Signals(int(rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])))
        process = _start(name, jobs, out)
        time.sleep(rng.uniform(0, seconds))
        if process.poll() is None:
            if which == signal.SIGKILL:
                process.kill()
            else:
                os.killpg(process.pid, which)
        _, errors = process.communicate(timeout=PATIENCE)
        wait_for_group(process.pid)
        about = f"{name} --jobs {jobs}, {which.name}"
        # a signal may come before Python has its handlers, or after the work is done
        assert process.returncode in {
            0,
            _CODES[which],
            -which,
        }, f"{about}: exit code {process.returncode}: {errors}"
        assert "Traceback" not in errors, f"{about}: {errors}"
    process = _start(name, jobs, out)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, f"{name}: {errors}"
    assert _results(out) == expected, f"{name} --jobs {jobs}: other bytes than without kills"


def _start(name: str, jobs: int, out: Path) -> subprocess.Popen[str]:
    options = [*_COMMANDS[name].format(jobs=jobs).split(), "--save-every", "0.1", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-m", "ata_gym", *options],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@functools.cache
def _reference(name: str) -> tuple[dict[str, bytes], float]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        process = _start(name, 1, Path(folder, "out"))
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        return _results(Path(folder, "out")), time.monotonic() - start


def _results(out: Path) -> dict[str, bytes]:
    files = sorted([*out.rglob("*.parquet"), *out.rglob("agent.zip"), *out.rglob("weights.pt")])
    return {str(file.relative_to(out)): file.read_bytes() for file in files}


def wait_for_group(group: int) -> None:
    def gone() -> bool:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        return False

    until(gone)
