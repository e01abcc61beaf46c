"""The published CIFAR-100 figure, with the loss and the accuracy of the paper's network."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from ata_gym.bench.experiment import plural
from ata_gym.bench.report import charts, losses
from ata_gym.bench.report.page.sections import Chart, Page
from ata_gym.bench.report.pictures import Drawing, against_clocks
from ata_gym.bench.report.report import Report
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.results import Failure
from ata_gym.bench.store.note import Note, read_note
from ata_gym.bench.studies.paper.cifar100 import CIFAR100, Cifar100Figure
from ata_gym.bench.studies.paper.trained.trajectory import open_training, read_trajectory
from ata_gym.bench.studies.training.curves import (
    LossReading,
    evaluations_on_clocks,
    losses_on_clocks,
)
from ata_gym.bench.studies.training.trajectory import Training, keep_trajectory
from ata_gym.training.problems.cifar100 import cifar100
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.utils.files.json_files import fields
from ata_gym.utils.validation import flag, whole_number

PUBLISHED_IMAGES = 50_000
"""The training images of the paper's network."""


def network_training(data: Path, budget: int, device: str) -> Training:
    """The paper's network with its optimiser, on the user's images."""
    trainer = Trainer(cifar100(data), budget, optimizer="adam", lr=8e-5, device=device)
    return Training("cifar100", trainer, data)


@dataclass(frozen=True)
class NetworkFigure(Cifar100Figure):
    """The published CIFAR-100 figure, with the loss and the accuracy of the paper's network."""

    name: ClassVar[str] = "cifar100-network"

    training: Training | None = None
    """What is trained; see ``network_training``."""

    def about(self) -> Note:
        assert self.training is not None
        problem: Any = self.training.trainer.problem
        reading = LossReading.from_problem(problem, self.experiment.rounds)
        return super().about() | {"images": problem.size, "reading": asdict(reading)}

    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        assert self.training is not None
        open_training(self.training, self.experiment.rounds, folder)
        return super().begin(folder, command)

    def run(self, folder: Path, jobs: Sequence[Job], effort: Effort) -> dict[str, Failure]:
        assert self.training is not None
        rounds = self.experiment.rounds
        store = open_training(self.training, rounds, folder)
        keep_trajectory(self.training, store, rounds, effort)
        return super().run(folder, jobs, effort)

    @staticmethod
    def report(folder: Path) -> Report:
        note = read_note(folder, _NETWORK_NOTE)
        return _NetworkContent(
            note, Cifar100Figure.report(folder), read_trajectory(folder)
        ).report()


_NETWORK_NOTE = fields(
    {
        "images": whole_number,
        "reading": fields({"over": whole_number, "exact": flag}),
    },
)


@dataclass(frozen=True)
class _NetworkContent:
    """The losses of the network, beside the report of the figure without it."""

    note: Note
    figure: Report
    trajectory: pl.DataFrame

    @cached_property
    def reading(self) -> LossReading:
        return LossReading(self.note["reading"]["over"], self.note["reading"]["exact"])

    def report(self) -> Report:
        """Make the report."""
        names = [policy["name"] for policy in self.note["policies"]]
        note = losses.equal_clocks_note(self.figure.records)
        drawing = Drawing(against_clocks(self._charts()), names, note)
        return self.figure._replace(
            findings="\n".join([self.figure.findings, *self._sentences()]),
            page=self.page,
            pictures={**self.figure.pictures, "loss": drawing},
        )

    def page(self) -> Page:
        """Make the page: the page without the network, with its losses after the tables."""
        page = self.figure.page()
        sections = [*page.sections]
        sections[2:2] = [chart for row in self._charts() for chart in row]
        return page._replace(
            sections=sections,
            remarks=[*page.remarks, *self._sentences()],
        )

    def _curves(self) -> pl.DataFrame:
        return losses_on_clocks(self.trajectory, self.figure.records, self.reading)

    def _charts(self) -> list[list[Chart]]:
        """For the loss and each held-out figure, the charts against both clocks."""
        names = [policy["name"] for policy in self.note["policies"]]
        places = {name: place for place, name in enumerate(names)}
        label = self.reading.label()
        rows = [charts.against_clocks(self._curves(), "loss", label, places)]
        evaluations = evaluations_on_clocks(self.trajectory, self.figure.records)
        rows += [
            charts.against_clocks(evaluations, figure, figure.replace("_", " "), places)
            for figure in self.trajectory.columns[2:]
        ]
        return rows

    def _sentences(self) -> list[str]:
        """How the training went, and what is not as published."""
        curves = self._curves()
        last_row = self.trajectory.row(-1, named=True)
        sentences = [
            f"The paper's network, with Adam at 8e-5: {self.reading.label()}:"
            f" {curves['loss'][0]:.4g} in the first round, {curves['loss'][-1]:.4g} at the end; on"
            f" the held-out images: loss {last_row['test_loss']:.4g}, accuracy"
            f" {last_row['accuracy']:.3g}.",
        ]
        rounds = self.note["rounds"]
        images = self.note["images"]
        differences = []
        if rounds != CIFAR100.rounds:
            differences.append(f"{plural(rounds, 'round')} (there {CIFAR100.rounds:,})")
        if images != PUBLISHED_IMAGES:
            differences.append(f"{images:,} training images (there {PUBLISHED_IMAGES:,})")
        if differences:
            sentences.append(f"Other than in the paper: {' and '.join(differences)}.")
        equal_clocks = losses.equal_clocks_note(self.figure.records)
        if equal_clocks:
            sentences.append(equal_clocks)
        return sentences
