"""What the ways of ``what-if`` cost beside reading the log: at most 20 times as much for a large
job.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ata_gym.bench.logs import Log, read_log
from ata_gym.bench.studies.what_if.ways import (
    OTHER_ENVS,
    played,
    played_steps,
    simple_ways,
    task_times,
)

pytestmark = pytest.mark.benchmark

STEPS = 400
TASKS = 8
POLICIES = ("default", "restarting-beta", "lb-bsp-ema", *OTHER_ENVS)


def table(n: int, path: Path) -> Path:
    """A table of a job: rank, step, seconds; a few ranks are slow."""
    rng = np.random.default_rng(0)
    times = rng.gamma(50.0, 0.02, (STEPS, n)) * rng.lognormal(0.0, 0.05, n)
    times[:, ::97] *= 1.5
    step, rank = np.divmod(np.arange(times.size), n)
    pl.DataFrame({"rank": rank, "step": step, "seconds": times.ravel()}).write_csv(path)
    return path


def processor_time(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The least processor time of several calls, in seconds, and what the last one returns."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        result = call()
        taken.append(time.process_time() - start)
    return min(taken), result


def times_of_ways(log: Log, repeats: int) -> dict[str, float]:
    """The processor time of each way, and of the state that the default leaves."""
    budget = TASKS * len(log.workers)
    times = task_times(log, budget)
    taken = {}
    taken["in hindsight"], _ = processor_time(lambda: simple_ways(log, times, budget), repeats)
    for policy in POLICIES:
        steps = played_steps(policy, *times.shape, budget)
        if steps == 0:
            print(f"  {policy}: not played")
            continue
        # of the first call, the kernels may have to be compiled
        played(policy, times[:1], budget)
        seconds, (_, clock) = processor_time(
            lambda policy=policy, steps=steps: played(policy, times[:steps], budget), repeats
        )
        name = f"{policy}, {steps} steps"
        taken[name] = seconds
        if policy == "default":
            taken["state"], _ = processor_time(
                lambda clock=clock: clock.allocator(log.workers).state_dict(), repeats
            )
    return taken


@pytest.mark.parametrize("n", [256, 1_024])
def test_all_ways_beside_reading_the_table(n: int, tmp_path: Path) -> None:
    path = table(n, tmp_path / "times.csv")
    print(f"\n{n:,} ranks x {STEPS} steps, in times of reading the table:")
    read_log(path)
    read, log = processor_time(lambda: read_log(path), 5)
    taken = times_of_ways(log, 2 if n > 256 else 1)
    # in turns, since the machine may have changed its speed
    read = min(read, processor_time(lambda: read_log(path), 5)[0])
    for name, seconds in taken.items():
        print(f"  {name}: {seconds / read:.2f} ({seconds:.3f} s)")
    ratio = sum(taken.values()) / read
    print(f"  all: {ratio:.1f}, reading {read:.3f} s (target at 1,024 ranks: at most 20)")
    if n > 256:
        assert ratio < 40
