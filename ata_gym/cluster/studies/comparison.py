"""Policies on an emulated cluster, one after the other: each trains the same model in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from time import sleep
from typing import Any

import polars as pl

from ata_gym.cluster.studies.emulation import Emulation
from ata_gym.cluster.studies.rank import Work

SCHEMA: dict[str, Any] = {
    "policy": pl.String,
    "round": pl.Int64,
    "seconds": pl.Float64,  # from the end of the round before, on the clock of the first rank
    "communication": pl.Float64,
    "loss": pl.Float64,
    "tasks": pl.List(pl.Int64),  # of each worker
    "busy": pl.List(pl.Float64),
}
"""The columns of what is recorded, a row for each round."""

_ENDS_WITHIN = 45.0  # Seconds; torchrun gives its ranks 30 to end, and kills them then

ALONE = "one process"  # in the place of a policy: the same training without a cluster


def run(
    emulation: Emulation,
    policy: str,
    problem: str,
    data: Path | None,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> pl.DataFrame:
    """Train with a policy, or ``ALONE``; columns as in ``SCHEMA``. ChildProcessError if a process fails."""
    alone = policy == ALONE
    place = None if data is None else str(data.resolve())
    work = Work(asdict(emulation), "uta" if alone else policy, problem, place, seed, waits=not alone)
    size = 1 if alone else len(emulation.times)
    with tempfile.TemporaryDirectory() as folder:
        task, out, errors = Path(folder, "work.json"), Path(folder, "rounds.jsonl"), Path(folder, "errors.txt")
        task.write_text(json.dumps(work._asdict()), "utf-8")
        with errors.open("w+", encoding="utf-8") as stderr:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"),
                    *("-m", "ata_gym.cluster.studies.rank", str(task), str(out)),
                ],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                while process.poll() is None:
                    sleep(0.2)
                    progress(_lines(out))
            finally:
                _end(process)
            if process.returncode:
                raise ChildProcessError(f"a process of the emulated cluster failed: {_reason(errors)}")
        progress(emulation.rounds)
        rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    return pl.DataFrame([row | {"policy": policy} for row in rows], schema=SCHEMA)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun, which ends its ranks: they have sessions of their own, and would outlive it if it were killed."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _reason(errors: Path) -> str:
    """The last line in which a rank says what went wrong."""
    lines = [line.strip() for line in errors.read_text("utf-8").splitlines()]
    messages = [line.partition(": ")[2] if line.startswith("[rank") else line for line in lines if "Error: " in line]
    return next(
        (line for line in messages if "ChildFailedError" not in line), lines[-1] if lines else "it said nothing"
    )
