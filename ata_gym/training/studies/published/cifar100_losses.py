"""The paper's network on CIFAR-100: its loss and accuracy on the clocks of the policies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ata_gym.bench.experiment.experiment import Experiment, plural
from ata_gym.bench.experiment.jobs import Effort
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.paper.end_points import PublishedFigure
from ata_gym.bench.report.report import Report
from ata_gym.training.problems.cifar100 import cifar100
from ata_gym.training.studies.curves import (
    LossReading,
    draw,
    equal_clocks_note,
    evaluations_on_clocks,
    losses_on_clocks,
)
from ata_gym.training.studies.kept_trajectory import Trained, train_beside
from ata_gym.training.trainer.trainer import Trainer

PUBLISHED_IMAGES = 50_000


def train(out: Path, rounds: int, effort: Effort, budget: int, data: Path, device: str) -> Trained:
    """Train the paper's network with its optimiser on the user's images, or read what is there."""
    trainer = Trainer(cifar100(data), budget, optimizer="adam", lr=8e-5, device=device)
    return train_beside(out, trainer, rounds, effort, "cifar100", data)


def report(
    experiment: Experiment, policies: Sequence[str], folder: Folder, trained: Trained, known: PublishedFigure
) -> Report:
    """Draw loss and accuracy on the mean clock of each policy, and say what is not as published."""
    trajectory, records = trained.trajectory, folder.results([*policies])
    reading = LossReading.of(trained.trainer.problem, experiment.rounds)
    curves, evaluations = losses_on_clocks(trajectory, records, reading), evaluations_on_clocks(trajectory, records)
    label, note = reading.label(), equal_clocks_note(records)
    problem: Any = trained.trainer.problem
    images: int = problem.size
    said = [
        f"\nThe paper's network, with Adam at 8e-5: {label.replace(chr(10), ' ')}: {curves['loss'][0]:.4g} in the "
        f"first round, {curves['loss'][-1]:.4g} at the end; on the held-out images: loss "
        f"{trajectory['test_loss'][-1]:.4g}, accuracy {trajectory['accuracy'][-1]:.3g}."
    ]
    different = [f"{experiment.rounds:,} rounds (there {known.rounds:,})"] * (experiment.rounds != known.rounds)
    different += [f"{images:,} training images (there {PUBLISHED_IMAGES:,})"] * (images != PUBLISHED_IMAGES)
    if different:
        said.append(f"Other than in the paper: {' and '.join(different)}.")
    if note:
        said.append(note)
    title = f"{experiment.about}, {plural(experiment.seeds, 'seed')}"
    pictures = draw(curves, evaluations, label, title, folder.path / "plots" / "loss", note)
    return Report(curves, [], [], pictures, remark="\n".join(said))
