"""The study of emulated workers: each policy trains the same model in real processes, and a report is left."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import polars as pl

from ata_gym.bench.experiment.provenance import merged, provenance
from ata_gym.bench.experiment.store import Made, check_code, open_folder, read_frame, write_frame
from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report.report import Report
from ata_gym.cluster.studies.emulation import Emulation, Training
from ata_gym.cluster.studies.rank import samples_of
from ata_gym.cluster.studies.report import ALONE, report
from ata_gym.training.studies.trajectory import made_by_problem
from ata_policies import Allocator

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


def run(
    emulation: Emulation, policies: Sequence[str], training: Training, out: Path, rerun_changed: bool = False
) -> Report:
    """Train with each policy and with one process alone, where that was not done before, with progress bars.

    Raises
    ------
    ValueError
        For a policy that cannot play, a problem without labelled samples, or a folder of another configuration.
    ChildProcessError
        If a process of a cluster fails.
    """
    budget, seed = emulation.budget, training.seed
    for policy in policies:
        Allocator(len(emulation.times), budget, policy, seed=seed)
    samples_of(training)
    config = {"study": "emulated", **asdict(emulation), "problem": training.problem, "seed": seed}
    folder, names = open_folder(out, config), (*policies, ALONE)
    problem = made_by_problem(training.problem, __name__)
    made_by = {name: merged(provenance("uta" if name == ALONE else name, __name__), problem) for name in names}
    check_code([Made(name, (folder.result(name),), by) for name, by in made_by.items()], rerun_changed)
    records: dict[str, pl.DataFrame] = {}
    with progress_bars(dict.fromkeys(names, emulation.rounds)) as update:
        for name, by in made_by.items():
            if not folder.finished(name):
                frame = _played(emulation, name, training, partial(update, name))
                write_frame(folder.result(name), frame, by)
            update(name, emulation.rounds)
            records[name] = read_frame(folder.result(name))
    times = ", ".join(f"{1000 * time:.3g}" for time in emulation.times)
    about = f"{training.problem}, B = {budget}, task times of {times} ms emulated by {len(emulation.times)} processes"
    return report(emulation, records, about, out)


def _played(emulation: Emulation, policy: str, training: Training, progress: Callable[[int], None]) -> pl.DataFrame:
    """The frame of a training with a policy, or ``ALONE``. ChildProcessError if a process fails."""
    alone = policy == ALONE
    work = emulation, "uta" if alone else policy, training, not alone
    size = 1 if alone else len(emulation.times)
    with tempfile.TemporaryDirectory() as folder:
        task, out, errors = Path(folder, "work.pickle"), Path(folder, "rounds.jsonl"), Path(folder, "errors.txt")
        task.write_bytes(pickle.dumps(work))
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
