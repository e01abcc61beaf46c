"""The page of an experiment while it runs, from the results of finished policies and the checkpoints of the others."""

from __future__ import annotations

from time import monotonic, time

import numpy as np
import polars as pl

from ata_gym.bench.cost_regret import CostRun, with_cost_regret
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.page.experiment_page import experiment_page, read_tasks
from ata_gym.bench.page.note import Note
from ata_gym.bench.page.render import NAME, write
from ata_gym.bench.page.sections import Running
from ata_gym.typing import Floats

EVERY = 5.0  # seconds between two pages


SoFar = tuple[pl.DataFrame, tuple[list[int], Floats] | None]
"""What a policy has done up to now: its records, and the recorded rounds with the tasks of the workers."""


class Live:
    """Writes the page of a running experiment every ``EVERY`` seconds, as its progress is told."""

    def __init__(self, experiment: Experiment, folder: Folder, note: Note) -> None:
        self.experiment, self.folder, self.note = experiment, folder, note
        self.path = folder.path / NAME
        self.names = [one["name"] for one in note["policies"]]
        self.rounds = dict.fromkeys(self.names, 0)
        self.last = -EVERY
        self.done: dict[str, SoFar] = {}

    def update(self, policy: str, rounds: int) -> None:
        """Note how many rounds a policy has played; write the page if it is time."""
        self.rounds[policy] = max(rounds, self.rounds[policy])
        if monotonic() - self.last >= EVERY:
            self.write()

    def write(self) -> None:
        """Write the page of what there is, which may be nothing but the plan."""
        found = {name: so_far for name in self.names if (so_far := self._so_far(name)) is not None}
        share = sum(self.rounds.values()) / (self.experiment.rounds * len(self.names))
        whole = sum(self.folder.finished(name) for name in self.names)
        said = f"Running: {share:.0%}, {whole} of {len(self.names)} policies finished."
        records = pl.concat(records for records, _ in found.values()) if found else None
        tasks = {name: recorded for name, (_, recorded) in found.items() if recorded is not None}
        made = experiment_page(self.note, records, tasks)
        write(made._replace(running=Running(said, share, EVERY, time())), self.path)
        self.last = monotonic()

    def _so_far(self, policy: str) -> SoFar | None:
        """What a policy has done, as far as it is on the disk; None before its first recorded round is."""
        if policy in self.done:
            return self.done[policy]
        if self.folder.finished(policy):
            records = with_cost_regret(self.folder.results([policy]), self.note.get("least_cost"))
            self.done[policy] = records, read_tasks(self.folder, [policy]).get(policy)
            return self.done[policy]
        run = CostRun(self.experiment, policy)
        try:
            run.restore(self.folder.checkpoint(policy))
        except OSError:  # it is replaced at this moment
            return None
        finally:
            run.envs.close()
        points = int(np.searchsorted(run.record_at, run.round, side="right"))
        if not points:
            return None
        tasks = None if run.allocations is None else (run.record_at[:points].tolist(), run.allocations[:points])
        records = run.results().filter(pl.col("round") <= run.round)
        return with_cost_regret(records, self.note.get("least_cost")), tasks
