"""Reading traces of the profiler: its cost beside ``json.load``, and real jobs of known truth."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ata_gym.bench.logs import read_log
from tests.bench.logs.stragglers import SET_UPS, run
from tests.bench.logs.trace_files import gloo, operation, step, write

pytestmark = pytest.mark.benchmark

PEAK = """
import json, re, sys
from pathlib import Path
from ata_gym.bench.logs import read_log
def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
for file in sorted(Path(sys.argv[1]).iterdir()) if sys.argv[2] == "json" else []:
    with file.open() as text:
        json.load(text)
if sys.argv[2] == "log":
    read_log(sys.argv[1])
print(peak() - before)
"""
"""How many KiB a process grows while it reads the files of a folder."""


def job(folder: Path, steps: int, operations: int) -> Path:
    """Traces of two ranks."""
    for rank in range(2):
        events = [
            one
            for k in range(steps)
            for one in (
                step(k, 100 * k, 100),
                *(
                    operation(f"aten::op{j % 20}", 100 * k + 50 * j / operations, 40 / operations)
                    for j in range(operations)
                ),
                *gloo(100 * k + 60 + rank, 30 - rank),
                operation("aten::add_", 100 * k + 90, 8),
            )
        ]
        write(folder / f"rank{rank}.json", events, rank)
    return folder


def load(folder: Path) -> None:
    for file in sorted(folder.iterdir()):
        with file.open() as text:
            json.load(text)


def seconds(play: object, *arguments: object) -> float:
    start = time.process_time()
    play(*arguments)  # type: ignore[operator]
    return time.process_time() - start


@pytest.mark.parametrize("operations", [4, 150])
def test_traces_are_read_in_the_time_of_json(tmp_path, operations):
    ratios = []
    for steps in (500, 2000):
        folder = job(tmp_path / str(steps), steps, operations)
        read_log(folder)
        turns = [(seconds(read_log, folder), seconds(load, folder)) for _ in range(3)]
        log, plain = np.min(turns, axis=0)
        peaks = [
            int(
                subprocess.run(
                    [sys.executable, "-c", PEAK, folder, what],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
            for what in ("log", "json")
        ]
        ratios.append(log / plain)
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(
            f"\n{steps} steps of {operations} operations, {size / 1e6:.0f} MB: {log:.2f} s,"
            f" {log / plain:.2f} times json.load; memory {peaks[0] / peaks[1]:.2f} times"
        )
        assert peaks[0] <= 1.5 * peaks[1]
    assert max(ratios) <= 2.0


@pytest.mark.parametrize("name", list(SET_UPS))
def test_the_stragglers_of_real_jobs_are_named_with_what_they_took(tmp_path, name):
    pytest.importorskip("torch")
    truth = run(name, tmp_path, steps=20)
    log = read_log(tmp_path)
    own = log.seconds.mean(axis=0)
    measured = truth.mean(axis=0)
    last = (log.seconds.argmax(axis=1) == SET_UPS[name].culprit).mean()
    print(
        f"\n{name}: own times {np.round(1e3 * own, 1)} ms, by hand {np.round(1e3 * measured, 1)},"
        f" at most {np.abs(own / measured - 1).max():.1%} apart; the culprit is last in {last:.0%}"
    )
    assert own.argmax() == measured.argmax() == SET_UPS[name].culprit
