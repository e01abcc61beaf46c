"""The study of emulated workers from beginning to end: every policy trains the same model, and a report is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench.experiment.provenance import merged, provenance
from ata_gym.bench.experiment.store import Made, check_code, open_folder, read_frame, write_frame
from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report.report import Report
from ata_gym.cluster.studies import comparison
from ata_gym.cluster.studies.comparison import ALONE
from ata_gym.cluster.studies.emulation import Emulation
from ata_gym.cluster.studies.rank import samples_of
from ata_gym.cluster.studies.report import report
from ata_gym.training.studies.trajectory import made_by_problem
from ata_policies import Allocator


class Training(NamedTuple):
    """What every policy trains."""

    problem: str = "digits"
    data: Path | None = None
    seed: int = 0


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
    samples_of(training.problem, training.data)
    config = {"study": "emulated", **asdict(emulation), "problem": training.problem, "seed": seed}
    folder, names = open_folder(out, config), (*policies, ALONE)
    problem = made_by_problem(training.problem, comparison.__name__)
    made_by = {
        name: merged(provenance("uta" if name == ALONE else name, comparison.__name__), problem) for name in names
    }
    check_code([Made(name, (folder.result(name),), by) for name, by in made_by.items()], rerun_changed)
    records: dict[str, pl.DataFrame] = {}
    with progress_bars(dict.fromkeys(names, emulation.rounds)) as update:
        for name, by in made_by.items():
            if not folder.finished(name):
                frame = comparison.run(emulation, name, *training, partial(update, name))
                write_frame(folder.result(name), frame, by)
            update(name, emulation.rounds)
            records[name] = read_frame(folder.result(name))
    times = ", ".join(f"{1000 * time:.3g}" for time in emulation.times)
    about = f"{training.problem}, B = {budget}, task times of {times} ms emulated by {len(emulation.times)} processes"
    return report(emulation, records, about, out)
